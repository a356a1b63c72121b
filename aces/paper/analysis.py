"""The rule applied to the release's logs, and every published number compared with what comes out.

Accuracies and rates are in percent, as published.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from aces.paper.release import METRICS, Key, Release, Run, Table
from aces.rule import metrics
from aces.rule.outcomes import ABSTAIN, Outcomes, Selected
from aces.rule.paper import compose
from aces.rule.smoothing import Smoothed

COLUMNS = [
    "dataset",
    "method",
    "sigma",
    "selection",
    "core",
    "theta",
    "metric",
    "radius",
    "value",
    "published",
]


@dataclass(frozen=True)
class Number:
    """A cell of a published table, and what the rule gives for it (None where its logs are
    missing).
    """

    table: Table
    theta: float
    metric: str
    radius: float | None
    published: str
    value: float | None

    @property
    def column(self) -> str:
        return _column(self.metric, self.radius)

    @property
    def agrees(self) -> bool:
        return self.value is not None and self.shown == self.published

    @property
    def shown(self) -> str:
        """The value with the digits of the published number."""
        digits = len(self.published.partition(".")[2])
        return "missing" if self.value is None else f"{self.value:.{digits}f}"

    def __str__(self) -> str:
        return (
            f"{self.table.key} {self.table.core} theta {self.theta:.2f} {self.column}: "
            f"published {self.published}, found {self.shown}"
        )


def default_radii(sigma: float) -> list[float]:
    """The columns of the paper's tables."""
    return [i * (0.5 if sigma >= 1 else 0.25) for i in range(9)]


def outcomes_of(run: Run, core: str, *, abstain_as_selected: bool) -> Outcomes:
    """Algorithm 1 on the logged certificates of the selection and of the class.

    `abstain_as_selected` is the published analysis' quirk: where the selection abstains (-1, which
    is not 0), it takes the certification network as selected with radius 0.
    """
    neither = Selected.CERTIFY if abstain_as_selected else Selected.NEITHER
    selected = _selected(run.selection, neither=neither)
    return compose(
        selected=selected,
        selection_radius=np.where(run.selection == ABSTAIN, 0.0, run.selection_radius),
        class_radius=run.radius[:, None],
        # A certified radius may have been printed as 0.0: the answer says whether it is certified.
        certified=(run.prediction != ABSTAIN)[:, None],
        guess=run.prediction,
        core=run.cores[core],
    )


def natural_of(run: Run, core: str) -> np.ndarray:
    """(N, T) Algorithm 4 on the logged predictions: the same rule, on whether each test was
    passed."""
    return compose(
        selected=_selected(run.natural_selection, neither=Selected.NEITHER),
        selection_radius=np.zeros(run.natural_selection.shape),
        class_radius=np.zeros((len(run.natural), 1)),
        certified=(run.natural != ABSTAIN)[:, None],
        guess=run.natural,
        core=run.cores[core],
    ).prediction


def _selected(logged: np.ndarray, *, neither: Selected) -> np.ndarray:
    """(N, T) who is selected by the logs, which write 1 for the certification network and 0 for the
    core.
    """
    return np.select([logged == 1, logged == 0], [Selected.CERTIFY, Selected.CORE], neither)


def curve_of(run: Run, core: str, *, radii, abstain_as_selected: bool) -> pd.DataFrame:
    """The metrics at each theta, in percent but for the ACR."""
    outcomes = outcomes_of(run, core, abstain_as_selected=abstain_as_selected)
    curve = pd.DataFrame(
        metrics.curve(outcomes, natural_of(run, core), run.label, thetas=run.thetas, radii=radii)
    )
    return curve.apply(
        lambda column: column if column.name in ("theta", "acr") else (100 * column).round(9)
    )


def individual_of(run: Run, *, radii) -> dict[str, float]:
    """The certification network on its own, in percent but for the ACR; its bounds are at alpha /
    2, as logged.
    """
    found = metrics.individual(
        Smoothed(run.prediction, run.radius), run.natural, run.label, radii=radii
    )
    return {
        name: value if name == "acr" else round(100 * value, 9) for name, value in found.items()
    }


def analyse(release: Release, *, abstain_as_selected: bool) -> tuple[pd.DataFrame, list[Number]]:
    """All numbers in the long format of paper.csv, and every published number beside what was
    found.
    """
    curves = {
        (run.key, core): curve_of(
            run,
            core,
            radii=radii_of(run.key, release.tables),
            abstain_as_selected=abstain_as_selected,
        )
        for run in release.runs
        for core in run.cores
    }
    numbers = [
        number
        for table in release.tables
        for number in _numbers(table, curves.get((table.key, table.core)))
    ]
    published: dict[tuple, dict] = defaultdict(dict)
    for number in numbers:  # NAC and ACR stand in both tables of a run
        published[number.table.key, number.table.core].setdefault(
            (number.theta, number.column), float(number.published)
        )
    frames = [
        _long(key, core, curve, published[key, core]) for (key, core), curve in curves.items()
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(
        columns=COLUMNS
    ), numbers


def errata(release: Release, numbers: list[Number]) -> list[Number]:
    """Which of `numbers` differ from the published ones only by the quirk: with it, they agree."""
    _, quirky = analyse(release, abstain_as_selected=True)
    return [
        number
        for number, other in zip(numbers, quirky, strict=True)
        if not number.agrees and other.agrees
    ]


def listing(numbers: list[Number]) -> pd.DataFrame:
    """Numbers as a table, with where they were published."""
    columns = [*COLUMNS[:8], "published", "found", "table"]
    rows = [
        (
            number.table.key.dataset,
            number.table.key.method,
            number.table.key.sigma,
            number.table.key.selection,
            number.table.core,
            number.theta,
            number.metric,
            number.radius,
            number.published,
            number.shown,
            number.table.path,
        )
        for number in numbers
    ]
    return pd.DataFrame(rows, columns=columns)


def radii_of(key: Key, tables: list[Table]) -> list[float]:
    """The radii of the run's published tables, or the paper's."""
    return sorted(
        {radius for table in tables if table.key == key for radius in table.radii}
    ) or default_radii(key.sigma)


def individuals(release: Release) -> pd.DataFrame:
    """One row for each certification network on its own."""
    rows = [
        {
            "dataset": run.key.dataset,
            "method": run.key.method,
            "sigma": run.key.sigma,
            "selection": run.key.selection,
            **individual_of(run, radii=radii_of(run.key, release.tables)),
        }
        for run in release.runs
    ]
    return pd.DataFrame(rows)


def _numbers(table: Table, curve: pd.DataFrame | None) -> list[Number]:
    """The cells of a table in reading order."""
    places = [("nac", None), ("acr", None), *((table.metric, radius) for radius in table.radii)]
    rows = {} if curve is None else curve.set_index("theta").to_dict("index")
    numbers = []
    for theta, cells in table.rows.items():
        for (metric, radius), cell in zip(places, cells, strict=True):
            value = rows.get(theta, {}).get(_column(metric, radius))
            numbers.append(Number(table, theta, metric, radius, cell, value))
    return numbers


def _column(metric: str, radius: float | None) -> str:
    return metric if radius is None else f"{metric}@{radius:g}"


def _long(
    key: Key, core: str, curve: pd.DataFrame, published: dict[tuple[float, str], float]
) -> pd.DataFrame:
    """The curve with one row for each number, theta by theta."""
    kept = [name for name in curve.columns if name in ("nac", "acr") or name.startswith(METRICS)]
    long = curve.melt("theta", kept, var_name="column").sort_values(
        "theta", kind="stable", ignore_index=True
    )
    place = long["column"].str.partition("@")
    return long.assign(
        dataset=key.dataset,
        method=key.method,
        sigma=key.sigma,
        selection=key.selection,
        core=core,
        metric=place[0],
        radius=pd.to_numeric(place[2].replace("", None)),
        published=[
            published.get(cell, float("nan"))
            for cell in zip(long["theta"], long["column"], strict=True)
        ],
    )[COLUMNS]
