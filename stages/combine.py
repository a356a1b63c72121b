"""Counts and core predictions -> one outcome per image and theta -> metrics."""

from pathlib import Path

import numpy as np
import pandas as pd

from aces.params import Params
from aces.reporting.outcomes import tabulate, write_outcomes
from aces.rule import composition, metrics, smoothing
from aces.rule.counts import Counts, read_counts
from aces.tracking import StageRun
from stages.runner import run_stage

RESULTS = Path("results")


def combine(params: Params, run: StageRun) -> dict:
    settings, thetas = params.combine, params.combine.thetas
    counts = read_counts("samples/counts.npz")
    core = np.load("samples/core.npz")["prediction"]
    outcomes, natural, curve = trade_off(params, counts, core)
    summary = {
        "core": {"nac": float((core == counts.label).mean())},
        "certify": alone(params, counts, sigma=params.sigma),
        **metrics.summary(
            curve,
            ceiling=composition.ceiling(
                counts, sigma=params.sigma, alpha=settings.alpha, multiplicity=settings.multiplicity
            ),
        ),
    }

    RESULTS.mkdir(exist_ok=True)
    write_outcomes(
        RESULTS / "outcomes.parquet",
        tabulate(outcomes, natural, index=counts.index, label=counts.label, thetas=thetas),
    )
    curve.to_csv(RESULTS / "curve.csv", index=False)
    comparison(params, core).to_csv(RESULTS / "comparison.csv", index=False)
    return summary


def radii_of(params: Params) -> list[float]:
    radii = params.combine.radii
    return [0.0, 0.25, 0.5, 0.75] if isinstance(radii, str) else radii


def trade_off(
    params: Params, counts: Counts, core: np.ndarray
) -> tuple[composition.Outcomes, np.ndarray, pd.DataFrame]:
    """CERTIFY's outcomes, PREDICT's answers, and the curve over theta."""
    settings, thetas = params.combine, params.combine.thetas
    outcomes = composition.certify(
        counts,
        core,
        sigma=params.sigma,
        alpha=settings.alpha,
        thetas=thetas,
        multiplicity=settings.multiplicity,
    )
    natural = composition.predict(
        counts, core, alpha=settings.alpha, thetas=thetas, multiplicity=settings.multiplicity
    )
    return (
        outcomes,
        natural,
        pd.DataFrame(
            metrics.curve(outcomes, natural, counts.label, thetas=thetas, radii=radii_of(params))
        ),
    )


def alone(params: Params, counts: Counts, *, sigma: float) -> dict[str, float]:
    """The certification network by itself: plain randomized smoothing on the same counts."""
    smoothed = smoothing.certify(counts, sigma=sigma, alpha=params.combine.alpha)
    natural = smoothing.predict(counts, alpha=params.combine.alpha)
    return metrics.individual(smoothed, natural, counts.label, radii=radii_of(params))


def comparison(params: Params, core: np.ndarray) -> pd.DataFrame:
    """What ACES is compared with: its certification network alone at other evaluation sigmas
    (series `sigma`, a row each), and, where a selection network selects, the entropy mechanism in
    its place (series `entropy`, a row a theta).
    """
    folder = Path("samples/comparison")
    rows = [
        {
            "series": "sigma",
            "sigma": sigma,
            **alone(params, read_counts(folder / f"sigma-{sigma:g}.npz"), sigma=sigma),
        }
        for sigma in params.baseline.sigmas
    ]
    if params.select.score == "network":
        counts = read_counts(folder / "entropy.npz")
        rows += [
            {"series": "entropy", "sigma": params.sigma, **row}
            for row in trade_off(params, counts, core)[2].to_dict("records")
        ]
    columns = [
        "series",
        "sigma",
        "theta",
        "nac",
        "acr",
        *(f"certified_accuracy@{r:g}" for r in radii_of(params)),
    ]
    return pd.DataFrame(rows, columns=columns)


if __name__ == "__main__":
    run_stage("combine", combine, summary=RESULTS / "metrics.json")
