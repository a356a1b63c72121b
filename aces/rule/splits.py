"""Two rules compared at the same price: theta is chosen on one half of the images and read on the
other.

A rule that may choose its theta on the images it is measured on looks better than it is. Here each
of many random splits chooses, for a given loss of natural accuracy, the theta with the largest
average certified radius on one half, and everything is read on the other half. Both rules see the
same splits, so their differences are paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SPLITS = 100
LEVEL = 0.95  # of the intervals over splits


@dataclass(frozen=True)
class Reading:
    """What a rule achieves on the images that its theta was not chosen on, for each split."""

    theta: np.ndarray  # (S,)
    loss: np.ndarray  # (S,) of natural accuracy, against the core network
    metrics: dict[str, np.ndarray]  # name -> (S,)

    def mean(self, name: str) -> float:
        return float(self.metrics[name].mean())


def read_elsewhere(
    scores: Mapping[str, np.ndarray],
    core_right: np.ndarray,
    *,
    thetas: Sequence[float] | np.ndarray,
    loss: float,
    splits: int = SPLITS,
    seed: int = 0,
) -> Reading:
    """Choose theta on one half of the images for this loss, and read the scores on the other half.

    scores: metric -> (N, T) score of each image, with `nac` and `acr` among them; core_right: (N,)
    whether the core network is right; thetas: (T,). If no theta is within the loss, the one with
    the largest natural accuracy is chosen.
    """
    chosen, read = _halves(len(core_right), splits=splits, seed=seed)
    nac, acr = (chosen @ np.asarray(scores[name], dtype=float) for name in ("nac", "acr"))
    within = nac >= (chosen @ core_right)[:, None] - loss - 1e-12
    best = np.where(
        within.any(axis=1), np.where(within, acr, -1.0).argmax(axis=1), nac.argmax(axis=1)
    )
    rows = np.arange(splits)
    found = {
        name: (read @ np.asarray(score, dtype=float))[rows, best] for name, score in scores.items()
    }
    lost = read @ core_right - found["nac"]
    return Reading(theta=np.asarray(thetas, dtype=float)[best], loss=lost, metrics=found)


def difference(ours: Reading, theirs: Reading, name: str) -> tuple[float, float, float]:
    """The mean paired difference of a metric, and the interval that holds LEVEL of the splits."""
    each = ours.metrics[name] - theirs.metrics[name]
    low, high = np.quantile(each, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(each.mean()), float(low), float(high)


def _halves(images: int, *, splits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(S, N) weights of the mean over either half, for each split."""
    random = np.random.default_rng(seed)
    first = np.zeros((splits, images))
    for row in first:
        row[random.permutation(images)[: images // 2]] = 1.0
    second = 1.0 - first
    return first / first.sum(axis=1, keepdims=True), second / second.sum(axis=1, keepdims=True)
