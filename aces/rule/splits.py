"""Two rules compared at the same price, which is a loss of natural accuracy.

`paired` compares them on all images, with a bootstrap interval: what a report says of one run.
`read_elsewhere` chooses theta on one half of the images and reads on the other.

A rule that may choose its theta on the images it is measured on looks better than it is. Here each
of many random splits chooses, for a given loss of natural accuracy, the theta with the largest
average certified radius on one half, and everything is read on the other half. Both rules see the
same splits or resamples, so their differences are paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LOSSES = (0.01, 0.02, 0.05, 0.1)  # of natural accuracy, at which a report compares
SPLITS = 100
RESAMPLES = 1000
LEVEL = 0.95  # of the intervals


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
    best = _best(nac, acr, floor=chosen @ core_right - loss)
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


@dataclass(frozen=True)
class Paired:
    """The average certified radii of two rules at the same price, and their difference."""

    ours: float
    theirs: float
    low: float  # of the interval of ours - theirs
    high: float

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


def paired(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    core_right: np.ndarray,
    *,
    loss: float,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Paired:
    """Both rules at the largest average certified radius that costs at most `loss`.

    ours, theirs: `nac` and `acr`, each (N, T); core_right: (N,). The interval is the percentile
    bootstrap over images. Every resample serves both rules and chooses both thetas anew, so it
    holds the uncertainty of that choice too.
    """
    images, generator = len(core_right), np.random.default_rng(seed)
    weight = np.ones((1 + resamples, images), dtype=np.float32)  # the first row: all images
    for row in weight[1:]:
        row[:] = np.bincount(generator.integers(0, images, images), minlength=images)
    weight /= images
    floor = weight @ np.asarray(core_right, dtype=np.float32) - loss
    first, second = (_largest(scores, weight, floor) for scores in (ours, theirs))
    low, high = np.quantile(first[1:] - second[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Paired(float(first[0]), float(second[0]), float(low), float(high))


def _largest(scores: Mapping[str, np.ndarray], weight: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """(S,) the average certified radius that each row of weights would choose."""
    nac, acr = (weight @ np.asarray(scores[name], dtype=np.float32) for name in ("nac", "acr"))
    return acr[np.arange(len(weight)), _best(nac, acr, floor=floor)]


def _best(nac: np.ndarray, acr: np.ndarray, *, floor: np.ndarray) -> np.ndarray:
    """(S,) the theta with the largest ACR whose natural accuracy is at least the floor; if there
    is none, the one with the largest natural accuracy.
    """
    within = nac >= floor[:, None] - 1e-6
    return np.where(
        within.any(axis=1), np.where(within, acr, -1.0).argmax(axis=1), nac.argmax(axis=1)
    )


def _halves(images: int, *, splits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(S, N) weights of the mean over either half, for each split."""
    random = np.random.default_rng(seed)
    first = np.zeros((splits, images))
    for row in first:
        row[random.permutation(images)[: images // 2]] = 1.0
    second = 1.0 - first
    return first / first.sum(axis=1, keepdims=True), second / second.sum(axis=1, keepdims=True)
