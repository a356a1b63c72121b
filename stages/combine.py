"""Counts and core predictions become one outcome per image and theta, and these become metrics.

Both rules are applied to the same counts. The outcomes and the curve are those of `combine.rule`;
the curve of the other rule is kept beside them, for comparison.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from aces import paths, rule
from aces.errors import InputError
from aces.files import atomic, read_json, write_json
from aces.params import Params
from aces.reporting import results
from aces.reporting.outcomes import tabulate, write_outcomes
from aces.rule import metrics, samples, smoothing
from aces.rule.concerns import evaluation_concerns
from aces.rule.counts import Counts
from aces.rule.radii import automatic_radii
from aces.rule.splits import LOSSES, paired
from aces.rule.working_point import working_point
from aces.tracking import StageRun
from stages.runner import run_stage

TRAINING = ("train_core", "train_certify", "train_select")  # stages that may have concerns
MULTIPLES = (0.5, 1.0, 1.5)  # of sigma: the radii in results/metrics.json


@dataclass(frozen=True)
class Answers:
    """What one rule says of all images at all thetas."""

    outcomes: rule.Outcomes
    natural: np.ndarray  # (N, T) answers of PREDICT
    curve: pd.DataFrame


def combine(params: Params, run: StageRun) -> dict:
    counts, core = samples.read_evaluation()
    radii = radii_of(params, counts)
    answers = {
        name: answer(params, counts, core, rule_name=name, radii=radii) for name in rule.RULES
    }
    chosen = answers[params.combine.rule]
    table = tabulate(
        chosen.outcomes,
        chosen.natural,
        index=counts.index,
        label=counts.label,
        thetas=params.combine.thetas,
    )
    write_outcomes(paths.OUTCOMES, table)
    _write_csv(paths.CURVE, chosen.curve)
    _write_csv(paths.COMPARISON, comparison(params, core, answers, radii=radii))
    summary = summarise(params, counts, core, chosen, radii=radii)
    summary["rules"] = same_price(answers, params.combine.rule, counts.label, core)
    write_json(paths.SUMMARY, summary)
    found = headline(summary, chosen, counts.label, sigma=params.sigma)
    write_json(paths.METRICS, found)
    results.record()
    return found


def radii_of(params: Params, counts: Counts) -> list[float]:
    radii = params.combine.radii
    if radii != "auto":
        return list(radii)
    return automatic_radii(sigma=params.sigma, n=params.sample.n, alpha=params.combine.alpha)


def answer(
    params: Params, counts: Counts, core: np.ndarray, *, rule_name: str, radii: list[float]
) -> Answers:
    settings = params.combine
    options: dict[str, Any] = {
        "alpha": settings.alpha,
        "thetas": settings.thetas,
        "rule": rule_name,
        "multiplicity": settings.multiplicity,
    }
    outcomes = rule.certify(counts, core, **options)
    natural = rule.predict(counts, core, **options)
    curve = metrics.curve(outcomes, natural, counts.label, thetas=settings.thetas, radii=radii)
    return Answers(outcomes, natural, pd.DataFrame(curve))


def alone(params: Params, counts: Counts, *, radii: list[float]) -> dict[str, float]:
    """The certification network by itself: plain randomized smoothing on the same counts."""
    smoothed = smoothing.certify(counts, alpha=params.combine.alpha)
    natural = smoothing.predict(counts, alpha=params.combine.alpha)
    return metrics.individual(smoothed, natural, counts.label, radii=radii)


def comparison(
    params: Params, core: np.ndarray, answers: dict[str, Answers], *, radii: list[float]
) -> pd.DataFrame:
    """What ACES is compared with, one series below the other.

    `paper` or `confident`: the other rule, one row per theta. `sigma`: the certification network
    alone at another evaluation sigma, one row each. `entropy`: where a selection network selects,
    the paper's rule with the entropy in its place, one row per theta.
    """
    others = {name: it.curve for name, it in answers.items() if name != params.combine.rule}
    if params.select.score == "network":
        counts = samples.read_comparison("entropy")
        others["entropy"] = answer(params, counts, core, rule_name="paper", radii=radii).curve
    rows = [
        {"series": name, "sigma": params.sigma, **row}
        for name, curve in others.items()
        for row in curve.to_dict("records")
    ]
    for sigma in params.baseline.sigmas:
        counts = samples.read_comparison(f"sigma-{sigma:g}")
        rows.append({"series": "sigma", "sigma": sigma, **alone(params, counts, radii=radii)})
    accuracies = [f"certified_accuracy@{r:g}" for r in radii]
    return pd.DataFrame(rows, columns=["series", "sigma", "theta", "nac", "acr", *accuracies])


def summarise(
    params: Params, counts: Counts, core: np.ndarray, chosen: Answers, *, radii: list[float]
) -> dict:
    """Everything that a report, a comparison or a model card says of the run in single numbers."""
    settings, curve = params.combine, chosen.curve
    core_nac = float((core == counts.label).mean())
    point = working_point(
        curve["theta"].to_numpy(),
        nac=curve["nac"].to_numpy(),
        acr=curve["acr"].to_numpy(),
        core_nac=core_nac,
        chosen=params.report.theta,
        calibration=results.read_calibration(),
    )
    certify = alone(params, counts, radii=radii)
    columns = {name: curve[name].to_numpy() for name in curve.columns}
    ceiling = rule.ceiling(
        counts, alpha=settings.alpha, rule=settings.rule, multiplicity=settings.multiplicity
    )
    concerns = evaluation_concerns(
        label=counts.label,
        core=core,
        guess=counts.guess,
        abstained=chosen.outcomes.route[:, point.step] == rule.Route.ABSTAIN,
        invalid=int(counts.invalid.sum()),
        num_classes=counts.classes.shape[2],
    )
    return {
        **{name: float(values[point.step]) for name, values in columns.items()},
        "theta_source": point.words,
        "rule": settings.rule,
        "core": {"nac": core_nac},
        "certify": certify,
        **metrics.summary(columns, ceiling=ceiling),
        "mean_draws": float(counts.draws.sum(axis=0).mean()),
        "concerns": [*training_concerns(), *concerns],
    }


def same_price(
    answers: dict[str, Answers], chosen: str, label: np.ndarray, core: np.ndarray
) -> list[dict[str, float]]:
    """The ACR of both rules at several losses of natural accuracy; `difference` is that of the
    chosen rule to the other, with its interval.
    """
    (other,) = [name for name in answers if name != chosen]
    scores = {
        name: dict(metrics.scores(it.outcomes, it.natural, label, radii=[]))
        for name, it in answers.items()
    }
    rows = []
    pairs = paired(scores[chosen], scores[other], core == label, losses=LOSSES)
    for loss, found in zip(LOSSES, pairs, strict=True):
        row = {"loss": loss, chosen: found.ours, other: found.theirs}
        rows.append(row | {"difference": found.difference, "low": found.low, "high": found.high})
    return rows


def headline(summary: dict, chosen: Answers, label: np.ndarray, *, sigma: float) -> dict:
    """results/metrics.json: the working point, in as many columns as fit a terminal.

    Radii are multiples of sigma, so that experiments with several sigmas share their columns.
    """
    step = int(np.abs(chosen.curve["theta"] - summary["theta"]).argmin())
    right = chosen.outcomes.prediction[:, step] == label
    radius = chosen.outcomes.radius[:, step]
    certified = {
        f"certified@{multiple:g}σ": float((right & (radius >= multiple * sigma)).mean())
        for multiple in MULTIPLES
    }
    return {
        **{name: summary[name] for name in ("theta", "nac", "acr")},
        **certified,
        "abstention": summary["abstention"],
        "core_nac": summary["core"]["nac"],
        "certify_nac": summary["certify"]["nac"],
    }


def training_concerns() -> list[str]:
    """What the training stages found suspicious."""
    files = [paths.stage_metrics(stage) for stage in TRAINING]
    found = []
    for file in filter(lambda file: file.exists(), files):
        remedy = f"run `dvc repro -f {file.stem}`"
        concerns = read_json(file, remedy=remedy).get("concerns", [])
        if not isinstance(concerns, list) or not all(isinstance(it, str) for it in concerns):
            raise InputError(f"{file}: its concerns are not a list of sentences: {remedy}")
        found += concerns
    return found


def _write_csv(path, frame: pd.DataFrame) -> None:
    with atomic(path) as temporary:
        frame.to_csv(temporary, index=False)


if __name__ == "__main__":
    run_stage("combine", combine, summary=paths.METRICS)
