"""What outcomes are worth: natural and certified accuracy, average certified radius, who answered.

Every metric is a mean over images of one score per image and theta, so a curve is a mean and a
bootstrap a product. Fractions lie in [0, 1]. N images, T thetas.
"""

import numpy as np
import pandas as pd

from aces.rule.composition import ABSTAIN, Outcomes, Route
from aces.rule.smoothing import Smoothed

LEVEL = 0.95  # of the bootstrap intervals


def curve(
    outcomes: Outcomes, natural: np.ndarray, label: np.ndarray, *, thetas, radii
) -> pd.DataFrame:
    """One row for each theta: theta, nac, acr, abstention, core_rate, certified_accuracy@<r>...,
    selection_rate@<r>...

    natural: (N, T) answers of PREDICT; label: (N,).
    """
    means = {
        name: score.mean(axis=0)
        for name, score in scores(outcomes, natural, label, radii=radii).items()
    }
    return pd.DataFrame({"theta": np.asarray(thetas, dtype=float), **means})


def intervals(
    outcomes: Outcomes,
    natural: np.ndarray,
    label: np.ndarray,
    *,
    thetas,
    radii,
    resamples: int,
    seed: int,
    level: float = LEVEL,
) -> pd.DataFrame:
    """The curve's percentile bootstrap intervals over images: theta, then <metric>_low and
    <metric>_high.

    One set of resamples serves all thetas and metrics, so intervals along a curve belong together.
    """
    images = len(label)
    draws = np.random.default_rng(seed).multinomial(
        images, np.full(images, 1 / images), size=resamples
    )
    tails = (1 - level) / 2, (1 + level) / 2
    columns = {"theta": np.asarray(thetas, dtype=float)}
    for name, score in scores(outcomes, natural, label, radii=radii).items():
        low, high = np.quantile(draws @ score.astype(float) / images, tails, axis=0)
        columns |= {f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns)


def scores(
    outcomes: Outcomes, natural: np.ndarray, label: np.ndarray, *, radii
) -> dict[str, np.ndarray]:
    """Metric -> (N, T) score of each image: what the curve averages.

    Certified accuracy at r: the answer is right and its radius at least r; at 0 every right answer
    counts, the core's too. Selection rate at r: the certification network is certifiably selected
    within r (whether or not its class is certified).
    """
    label = label[:, None]
    correct = _right(outcomes.prediction, label)
    selected = outcomes.selection > 0
    return {
        "nac": _right(natural, label),
        "acr": np.where(correct, outcomes.radius, 0.0),
        "abstention": outcomes.route == Route.ABSTAIN,
        "core_rate": outcomes.route == Route.CORE,
        **{f"certified_accuracy@{r:g}": correct & (outcomes.radius >= r) for r in radii},
        **{f"selection_rate@{r:g}": selected & (outcomes.selection >= r) for r in radii},
    }


def individual(
    smoothed: Smoothed, natural: np.ndarray, label: np.ndarray, *, radii
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


def summary(curve: pd.DataFrame, *, ceiling: float) -> dict[str, float]:
    """The curve in a few numbers, with the ACR's ceiling (`aces.rule.composition.ceiling`)."""
    first, last, best = curve.iloc[0], curve.iloc[-1], curve.loc[curve["acr"].idxmax()]
    return {
        "acr_ceiling": ceiling,
        "acr_max": float(best["acr"]),
        "acr_max_theta": float(best["theta"]),
        "nac_first_theta": float(first["nac"]),
        "nac_last_theta": float(last["nac"]),
        "abstention_max": float(curve["abstention"].max()),
    }


def _right(answer: np.ndarray, label: np.ndarray) -> np.ndarray:
    return (answer == label) & (answer != ABSTAIN)  # an unlabelled image has the label -1 too
