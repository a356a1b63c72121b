"""Finished runs as `aces compare` and `aces summary` show them: named, sorted and grouped."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pandas as pd

from aces.data.known import TITLES
from aces.errors import InputError, one_line
from aces.reporting import results
from aces.reporting.inputs import METHODS, RULES
from aces.reporting.results import Results, radii_of
from aces.rule.working_point import WorkingPoint, best_within, working_point

SHOWN = 4  # parameters in the name of a run at most
LONGEST = 48  # characters of a name
TOLERANCE = 0.25  # of sigma, within which a radius stands for a multiple of sigma
# Parameters that tell runs apart best, with their short names; an empty one shows the value alone.
SHORT = {
    "certify.method": "",
    "sigma": "σ",
    "certify.arch": "",
    "core.arch": "core",
    "select.score": "by",
    "select.mechanism": "by",
    "combine.rule": "rule",
    "combine.multiplicity": "",
    "combine.alpha": "α",
    "sample.n": "n",
    "sample.precision": "",
    "sample.adaptive.enabled": "early stopping",
    "seed": "seed",
}


class StoredRun(Protocol):
    """What `aces.tracking` knows of a finished run."""

    id: str
    name: str
    params: dict[str, str]

    def artifact(self, path: str) -> Path | None: ...


@dataclass(frozen=True)
class RunCurve:
    """A finished run: its flattened parameters, its curve and its metrics as `combine` wrote them.

    others: the curve of each other rule from the same draws, where it is known.
    """

    id: str
    name: str
    params: dict[str, str]
    curve: pd.DataFrame
    metrics: dict
    others: dict[str, pd.DataFrame] = field(default_factory=dict)
    calibration: Mapping | None = None
    concerns: list[str] = field(default_factory=list)

    @property
    def radii(self) -> list[str]:
        return radii_of(self.curve)

    @property
    def sigma(self) -> float:
        return _number(self.params.get("sigma"), math.nan)

    @property
    def dataset(self) -> str:
        name = self.params.get("dataset.name", "unknown dataset")
        return TITLES.get(name, short_value(name))

    @property
    def rule(self) -> str:
        return self.params.get("combine.rule", "paper")

    @property
    def core_nac(self) -> float:
        return float(self.metrics["core"]["nac"])

    @property
    def working_point(self) -> WorkingPoint:
        """Where the run itself stands: its calibrated theta, or `report.theta`."""
        calibration = self.calibration
        if calibration is None and "theta" in self.metrics:
            calibration = {"theta": self.metrics["theta"]}
        chosen = _number(self.params.get("report.theta"), math.nan)
        return working_point(
            self.curve["theta"].to_numpy(),
            nac=self.curve["nac"].to_numpy(),
            acr=self.curve["acr"].to_numpy(),
            core_nac=self.core_nac,
            chosen=None if math.isnan(chosen) else chosen,
            calibration=calibration,
        )

    def step(self, loss: float | None) -> int:
        """The row of the working point, or of the largest ACR that gives up at most `loss` of the
        core network's natural accuracy.
        """
        if loss is None:
            return self.working_point.step
        nac, acr = self.curve["nac"].to_numpy(), self.curve["acr"].to_numpy()
        return best_within(nac, acr, core_nac=self.core_nac, loss=loss)

    def at(self, loss: float | None) -> pd.Series:
        """The curve at `step`."""
        return self.curve.iloc[self.step(loss)]

    def near(self, multiple: float) -> str | None:
        """The radius of the curve that is nearest to so many sigma; None if none is near."""
        found = min(self.radii, key=lambda r: abs(float(r) - multiple * self.sigma), default=None)
        if found is None or not self.sigma > 0:
            return None
        near = abs(float(found) / self.sigma - multiple) <= TOLERANCE + 1e-9 and float(found) > 0
        return found if near else None


def read_curve(run: StoredRun) -> RunCurve | None:
    """Read the results of a run; None where it has none. Text in place of a number is refused."""
    if run.artifact("results/curve.csv") is None or run.artifact("results/summary.json") is None:
        return None
    try:
        found = results.read(run.artifact)
    except results.DAMAGED as error:
        raise InputError(
            f"run {run.name} ({run.id[:8]}): its results cannot be read ({one_line(error)[:120]}): "
            f"run `dvc repro` again, or name the other runs"
        ) from None
    params = {str(name): str(value) for name, value in run.params.items()}
    return _as_curve(found, id=run.id, name=run.name, params=params)


def read_results(folder: Path, params: dict[str, str]) -> RunCurve:
    """The results in this project, which has these parameters."""
    return _as_curve(results.read_project(folder), id="", name="this run", params=params)


def _as_curve(found: Results, *, id: str, name: str, params: dict[str, str]) -> RunCurve:
    return RunCurve(
        id=id,
        name=name,
        params=params,
        curve=found.curve,
        metrics=found.summary,
        concerns=found.summary.get("concerns", []),
        others=_other_rules(found.comparison),
        calibration=found.calibration,
    )


def _other_rules(comparison: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """The curves of other rules from the same draws."""
    if comparison is None:
        return {}
    series = {rule: comparison[comparison["series"] == rule] for rule in RULES}
    return {
        rule: rows.drop(columns=["series", "sigma"]).sort_values("theta")
        for rule, rows in series.items()
        if len(rows)
    }


def distinct(runs: list[RunCurve]) -> list[RunCurve]:
    """Without repetitions: of runs with the same parameters and curve the first stays."""
    kept: list[RunCurve] = []
    for run in runs:
        if not any(run.params == other.params and run.curve.equals(other.curve) for other in kept):
            kept.append(run)
    return kept


def ordered(runs: list[RunCurve]) -> list[RunCurve]:
    """By dataset, then by training method, then by sigma as a number."""
    return sorted(runs, key=lambda run: (run.dataset, _method(run), run.sigma))


def grouped(runs: list[RunCurve]) -> dict[str, list[RunCurve]]:
    """The runs of each dataset, sorted: numbers are comparable within one dataset only."""
    found: dict[str, list[RunCurve]] = {}
    for run in ordered(runs):
        found.setdefault(run.dataset, []).append(run)
    return found


def _method(run: RunCurve) -> str:
    return run.params.get("certify.method", "")


def differing(runs: list[RunCurve]) -> list[str]:
    """The parameters that are not the same in all runs, in the order of the first."""
    names = list(dict.fromkeys(name for run in runs for name in run.params))
    return [name for name in names if len({run.params.get(name) for run in runs}) > 1]


def labels(runs: list[RunCurve], *, without: str | None = None) -> list[str]:
    """What tells the runs apart, shortly: the parameters in which they differ.

    Where these are many, those of `SHORT` have to do if they suffice; else the runs' names stand.
    without: a parameter that is told elsewhere; runs that differ in it may have the same name.
    """
    names = [name for name in differing(runs) if name != without]

    def place(run: RunCurve) -> str | None:
        return run.params.get(without) if without is not None else None

    if len(names) > SHOWN:
        telling = [name for name in SHORT if name in names][:SHOWN]
        values = {(place(run), *(run.params.get(name) for name in telling)) for run in runs}
        names = telling if len(values) == len(runs) else []
    elif not names and without is not None:
        names = ["certify.method"]
    names.sort(key=lambda name: (list(SHORT).index(name) if name in SHORT else len(SHORT), name))
    found = [
        ", ".join(_spoken(name, run.params.get(name, "none")) for name in names)[:LONGEST]
        if names
        else run.name[:LONGEST]
        for run in runs
    ]
    places = [(label, place(run)) for label, run in zip(found, runs, strict=True)]
    return [
        f"{label} ({run.id[:8]})" if places.count((label, place(run))) > 1 else label
        for label, run in zip(found, runs, strict=True)
    ]


def _spoken(name: str, value: str) -> str:
    short = SHORT.get(name, name.rpartition(".")[2])
    value = (
        METHODS.get(value, short_value(value)) if name == "certify.method" else short_value(value)
    )
    return f"{short} {value}".strip()


def short_value(value: str) -> str:
    """A path without its folders and suffix, a function without its module, a number as it is."""
    if not math.isnan(_number(value, math.nan)):
        return value
    name = value.rpartition(":")[2] if ":" in value else value
    return Path(name).name.split(".")[0] or value


def _number(value: str | None, default: float) -> float:
    try:
        found = float(value) if value is not None else default
    except ValueError:
        return default
    return found if math.isfinite(found) else default
