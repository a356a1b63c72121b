"""scikit-learn's digits: 1797 grey images of 8x8 pixels, for tests; needs no network."""

import numpy as np

from aces.data.known import DIGITS
from aces.data.splits import Part, Splits

TEST_IMAGES = 360


def load() -> Splits:
    """360 test images, and the other 1437 for training."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    image = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    label = digits.target.astype(np.int64)
    # The classes recur in a cycle, so the split is by a permutation (RandomState's is the same in
    # every numpy).
    order = np.random.RandomState(0).permutation(len(label))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Splits(
        train=Part(image[train], label[train]),
        test=Part(image[test], label[test]),
        classes=DIGITS.classes,
        mean=DIGITS.mean,
        std=DIGITS.std,
        benchmark=True,
    )
