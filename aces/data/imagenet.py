"""ImageNet (ILSVRC 2012) from a folder of the user's: `val/<wnid>/*.JPEG` and
`train/<wnid>/*.JPEG`.

The folder is `ACES_IMAGENET`, or else `<datasets>/imagenet`. Validation images are resized to 256
and cropped to 224 pixels in the middle, as in Cohen et al. (2019): certificates speak of the image
the network then sees. The training images stay where they are; only their paths are kept.
"""

from pathlib import Path

import numpy as np

from aces.data import known, places
from aces.data.listing import class_files, class_folders
from aces.data.splits import Part, Splits
from aces.errors import InputError

CLASSES = 1000


def load() -> Splits:
    """The validation images in the order of their paths, and the training images.

    Without a folder `train` there are none of these: published networks can still be evaluated.
    """
    root, about = places.imagenet(), known.imagenet()
    train = root / "train"
    return Splits(
        train=_listing(train) if train.is_dir() else Part([], np.empty(0, np.int64)),
        test=_listing(root / "val"),
        classes=about.classes,
        mean=about.mean,
        std=about.std,
        size=about.shape[1],
        resize=about.resize,
        root=places.IMAGENET,
        benchmark=True,
    )


def _listing(part: Path) -> Part:
    """All images of `part` with their labels."""
    classes = class_folders(part)
    if len(classes) != CLASSES:
        raise InputError(
            f"{part} has {len(classes)} class folders, expected {CLASSES}: sort the images into "
            "one folder for each wnid, such as n01440764"
        )
    return class_files(part, classes)
