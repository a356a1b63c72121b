"""Two rules compared at the same price, which is a loss of natural accuracy.

`paired` compares them on all images, with a bootstrap interval: what a report says of one run.
`read_elsewhere` chooses theta on one half of the images and reads on the other.

A rule that may choose its theta on the images it is measured on looks better than it is. Here each
of many random splits chooses, for a given loss of natural accuracy, the theta with the largest
average certified radius on one half, and everything is read on the other half. Both rules see the
same splits or resamples, so their differences are paired.

Splits of the same images say how much the choice of theta matters. They do not say how the
difference would vary with other images: `intervals_over_images` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LOSSES = (0.01, 0.02, 0.05, 0.1)  # the losses of natural accuracy at which a report compares
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
    """The mean paired difference of a metric, and between which values it lies in LEVEL of the
    splits. This is not a confidence interval: all splits are of the same images.
    """
    each = ours.metrics[name] - theirs.metrics[name]
    low, high = np.quantile(each, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(each.mean()), float(low), float(high)


def intervals_over_images(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    core_right: np.ndarray,
    *,
    losses: Sequence[float],
    resamples: int = 300,
    splits: int = 10,
    seed: int = 0,
) -> dict[float, dict[str, tuple[float, float]]]:
    """loss -> metric -> the confidence interval of the mean difference that `read_elsewhere` finds.

    The percentile bootstrap over images. In every resample theta is chosen on one half and read on
    the other, for some random splits, by both rules alike. Splits are of the images, not of their
    copies: no image is on both sides. The arguments are those of `read_elsewhere`.
    """
    images, generator, names = len(core_right), np.random.default_rng(seed), list(ours)
    both = [
        np.stack([np.asarray(scores[name], np.float32) for name in names])
        for scores in (ours, theirs)
    ]
    found = np.empty((resamples, len(losses), len(names)))
    for row in found:
        copies = np.bincount(generator.integers(0, images, images), minlength=images)
        halves = _halves(images, splits=splits, seed=generator, weight=copies)
        floors = [halves[0] @ core_right - loss for loss in losses]
        first, second = (_read(scores, halves, floors, names) for scores in both)
        row[:] = first - second
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).tolist()
    return {
        loss: dict(zip(names, zip(lows, highs, strict=True), strict=True))
        for loss, lows, highs in zip(losses, low, high, strict=True)
    }


def _read(
    scores: np.ndarray,
    halves: tuple[np.ndarray, np.ndarray],
    floors: Sequence[np.ndarray],
    names: Sequence[str],
) -> np.ndarray:
    """(L, M) means over splits of M metrics, with theta chosen for each of L floors; scores:
    (M, N, T); halves: two of (S, N); floors: L of (S,), the least natural accuracy.
    """
    chosen, read = (half.astype(np.float32) @ scores for half in halves)  # (M, S, T)
    nac, acr = (chosen[names.index(name)] for name in ("nac", "acr"))
    splits = np.arange(len(nac))
    return np.stack(
        [read[:, splits, _best(nac, acr, floor=floor)].mean(axis=1) for floor in floors]
    )


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
    losses: Sequence[float],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Paired]:
    """For each loss, both rules at the largest average certified radius that costs at most that.

    ours, theirs: `nac` and `acr`, each (N, T); core_right: (N,). The interval is the percentile
    bootstrap over images. Every resample serves both rules and chooses both thetas anew, so it
    holds the uncertainty of that choice too.
    """
    images, generator = len(core_right), np.random.default_rng(seed)
    weight = np.ones((1 + resamples, images))  # the first row: all images
    for row in weight[1:]:
        row[:] = np.bincount(generator.integers(0, images, images), minlength=images)
    weight /= images
    core = weight @ core_right
    curves = [
        [weight @ np.asarray(scores[name], dtype=float) for name in ("nac", "acr")]
        for scores in (ours, theirs)
    ]
    found = []
    for loss in losses:
        first, second = (_largest(nac, acr, floor=core - loss) for nac, acr in curves)
        low, high = np.quantile(first[1:] - second[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found.append(Paired(float(first[0]), float(second[0]), float(low), float(high)))
    return found


def _largest(nac: np.ndarray, acr: np.ndarray, *, floor: np.ndarray) -> np.ndarray:
    """(S,) the average certified radius that each resample chooses."""
    return acr[np.arange(len(acr)), _best(nac, acr, floor=floor)]


def _best(nac: np.ndarray, acr: np.ndarray, *, floor: np.ndarray) -> np.ndarray:
    """(S,) the theta with the largest ACR whose natural accuracy is at least the floor; if there
    is none, the one with the largest natural accuracy.
    """
    within = nac >= floor[:, None] - 1e-6
    return np.where(
        within.any(axis=1), np.where(within, acr, -1.0).argmax(axis=1), nac.argmax(axis=1)
    )


def _halves(
    images: int,
    *,
    splits: int,
    seed: int | np.random.Generator,
    weight: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """(S, N) weights of the mean over either half, for each split; weight: (N,) of each image."""
    random = np.random.default_rng(seed)
    first = np.zeros((splits, images))
    for row in first:
        row[random.permutation(images)[: images // 2]] = 1.0
    halves = (first * weight, (1.0 - first) * weight)
    first, second = (half / half.sum(axis=1, keepdims=True) for half in halves)
    return first, second
