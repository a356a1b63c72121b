"""What outcomes are worth: natural and certified accuracy, average certified radius, who answered.

Every metric is a mean over images of one score per image and theta. Fractions lie in [0, 1]. N
images, T thetas. A curve is a dictionary of columns, one value per theta.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from aces.rule.outcomes import ABSTAIN, Outcomes, Route, Selected
from aces.rule.smoothing import Smoothed
from aces.rule.statistics import lower_bound, upper_bound

LEVEL = 0.95  # of the intervals
Numbers = Sequence[float] | np.ndarray


def curve(
    outcomes: Outcomes, natural: np.ndarray, label: np.ndarray, *, thetas: Numbers, radii: Numbers
) -> dict[str, np.ndarray]:
    """(T,) columns: theta, nac, acr, abstention, core_rate, certified_accuracy@<r>...,
    selection_rate@<r>...

    natural: (N, T) answers of PREDICT; label: (N,).
    """
    means = {
        name: score.mean(axis=0) for name, score in scores(outcomes, natural, label, radii=radii)
    }
    return {"theta": np.asarray(thetas, dtype=float), **means}


def intervals(
    outcomes: Outcomes,
    natural: np.ndarray,
    label: np.ndarray,
    *,
    thetas: Numbers,
    radii: Numbers,
    resamples: int,
    seed: int,
    level: float = LEVEL,
) -> dict[str, np.ndarray]:
    """(T,) columns: theta, then <metric>_low and <metric>_high of each metric of the curve.

    Fractions have Clopper and Pearson's interval, which covers at least as often as it says, also
    near 0 and 1, where a bootstrap does not. The average certified radius has the percentile
    bootstrap over images; one set of resamples serves all thetas.
    """
    columns = {"theta": np.asarray(thetas, dtype=float)}
    for name, score in scores(outcomes, natural, label, radii=radii):
        low, high = (
            fraction_interval(score.sum(axis=0), len(label), level=level)
            if score.dtype == bool
            else mean_interval(score, resamples=resamples, seed=seed, level=level)
        )
        columns |= {f"{name}_low": low, f"{name}_high": high}
    return columns


def fraction_interval(
    k: np.ndarray | int, n: int, *, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's two-sided interval of a probability, k successes in n trials."""
    tail = (1 - level) / 2
    return lower_bound(k, n, alpha=tail), upper_bound(k, n, alpha=tail)


def mean_interval(
    score: np.ndarray, *, resamples: int, seed: int, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile bootstrap interval of the mean over images; score: (N,) or (N, T).

    For a difference of two rules or two runs on the same images, give the differences: the interval
    is then paired.
    """
    images, generator = len(score), np.random.default_rng(seed)
    # How often each resample has each image. Single precision is ample for a quantile of 1,000
    # resamples, and twice as fast.
    chosen = np.empty((resamples, images), dtype=np.float32)
    for row in chosen:
        row[:] = np.bincount(generator.integers(0, images, images), minlength=images)
    means = chosen @ np.asarray(score, dtype=np.float32) / images
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def scores(
    outcomes: Outcomes, natural: np.ndarray, label: np.ndarray, *, radii: Numbers
) -> Iterator[tuple[str, np.ndarray]]:
    """(metric, (N, T) score of each image): what the curve averages, one metric after the other.

    Certified accuracy at r: the answer is right and its radius at least r; at 0 every right answer
    counts, the core's too. Selection rate at r: the certification network is certifiably selected
    within r (whether or not its class is certified).
    """
    label = label[:, None]
    correct = _right(outcomes.prediction, label)
    yield "nac", _right(natural, label)
    yield "acr", np.where(correct, outcomes.radius, 0.0)
    yield "abstention", outcomes.route == Route.ABSTAIN
    yield "core_rate", outcomes.route == Route.CORE
    for r in radii:
        yield f"certified_accuracy@{r:g}", correct & (outcomes.radius >= r)
    selected = outcomes.selected == Selected.CERTIFY
    for r in radii:
        yield f"selection_rate@{r:g}", selected & (outcomes.selection_radius >= r)


def individual(
    smoothed: Smoothed, natural: np.ndarray, label: np.ndarray, *, radii: Numbers
) -> dict[str, float]:
    """The same metrics for a network on its own: nac, acr, abstention, certified_accuracy@<r>;
    natural: (N,).
    """
    correct = _right(smoothed.prediction, label)
    return {
        "nac": float(_right(natural, label).mean()),
        "acr": float(np.where(correct, smoothed.radius, 0.0).mean()),
        "abstention": float((smoothed.prediction == ABSTAIN).mean()),
        **{
            f"certified_accuracy@{r:g}": float((correct & (smoothed.radius >= r)).mean())
            for r in radii
        },
    }


def summary(curve: Mapping[str, np.ndarray], *, ceiling: float) -> dict[str, float]:
    """The curve in a few numbers, with the ACR's ceiling (`aces.rule.ceiling`)."""
    column = {name: np.asarray(curve[name]) for name in ("theta", "nac", "acr", "abstention")}
    best = int(column["acr"].argmax())
    return {
        "acr_ceiling": ceiling,
        "acr_max": float(column["acr"][best]),
        "acr_max_theta": float(column["theta"][best]),
        "nac_first_theta": float(column["nac"][0]),
        "nac_last_theta": float(column["nac"][-1]),
        "abstention_max": float(column["abstention"].max()),
    }


def _right(answer: np.ndarray, label: np.ndarray) -> np.ndarray:
    return (answer == label) & (answer != ABSTAIN)  # an unlabelled image has the label -1 too
