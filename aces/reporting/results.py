"""The files of results/, which the stages `calibrate` and `combine` leave: read and checked here.

They may come from anybody's store, so everything that should be a number has to be one before it
reaches a table or a page. The single numbers of a run have to be those of its curve, and where
there is a manifest, every file has to be the one that it names. The manifest ties the results to
the counts they were made from.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aces import paths
from aces.errors import InputError, one_line
from aces.files import read_json
from aces.manifest import check_manifest, write_manifest

ACCURACY = "certified_accuracy@"
REMEDY = "run `dvc repro -f combine`"
MADE_FROM = (paths.COUNTS, paths.CORE, paths.CALIBRATION)
MADE = (paths.OUTCOMES, paths.CURVE, paths.COMPARISON, paths.SUMMARY, paths.METRICS)
SHOWN = (paths.CURVE, paths.COMPARISON, paths.SUMMARY, paths.CALIBRATION)  # what `read` reads
# What is raised by files that are damaged, or that belong to something else.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError)
SINGLE = ("theta", "loss", "confidence", "images")  # numbers of a calibration that are put in words
CLOSE = 1e-9  # a number in text may lose its last digits

Find = Callable[[str], Path | None]  # where a file of a run lies; None if the run has none


@dataclass(frozen=True)
class Results:
    """What a run found. `calibration` and `comparison` are None where a run has none."""

    curve: pd.DataFrame  # one row per theta, ascending
    summary: dict[str, Any]
    comparison: pd.DataFrame | None
    calibration: dict[str, Any] | None


def record() -> None:
    """Note which files belong together. To be called when all of them are written."""
    write_manifest(paths.RESULTS_MANIFEST, [*MADE_FROM, *MADE])


def check(*files: Path) -> None:
    """Raise InputError unless these files are those that `record` noted."""
    check_manifest(paths.RESULTS_MANIFEST, files, remedy=REMEDY)


def read_project(folder: Path = Path()) -> Results:
    """The results in a project; InputError if they are missing, damaged or do not fit together."""

    def find(name: str) -> Path | None:
        return folder / name if (folder / name).exists() else None

    for path in (paths.CURVE, paths.SUMMARY):
        if find(str(path)) is None:
            raise InputError(f"{path} does not exist: `make repro` or `dvc repro` makes it")
    try:
        return read(find)
    except InputError:
        raise
    except DAMAGED as error:
        raise InputError(
            f"{paths.RESULTS}/ cannot be read ({one_line(error)[:120]}): {REMEDY}"
        ) from None


def read(find: Find) -> Results:
    """The results of a run that has a curve and a summary. Raises one of DAMAGED."""
    manifest = find(str(paths.RESULTS_MANIFEST))
    found = {path: file for path in SHOWN if (file := find(str(path))) is not None}
    if manifest is not None:
        check_manifest(manifest, SHOWN, remedy=REMEDY, find=find)
    curve = read_curve(found[paths.CURVE])
    calibration, comparison = found.get(paths.CALIBRATION), found.get(paths.COMPARISON)
    return Results(
        curve=curve,
        summary=_checked_summary(_read_object(found[paths.SUMMARY]), curve),
        comparison=None if comparison is None else _read_comparison(comparison),
        calibration=None
        if calibration is None
        else _checked_calibration(_read_object(calibration)),
    )


def read_calibration() -> dict[str, Any]:
    """The project's results/calibration.json, which is there before all other results."""
    remedy = "run `dvc repro -f calibrate`"
    content = read_json(paths.CALIBRATION, remedy=remedy)
    try:
        return _checked_calibration(content)
    except DAMAGED as error:
        raise InputError(f"{paths.CALIBRATION}: {one_line(error)[:120]}: {remedy}") from None


def read_curve(path: Path) -> pd.DataFrame:
    return _checked_curve(pd.read_csv(path))


def radii_of(table: pd.DataFrame) -> list[str]:
    """The radii of the certified accuracies, as the columns name them."""
    return [name.removeprefix(ACCURACY) for name in table.columns if name.startswith(ACCURACY)]


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return content


# ---------------------------------------------------------------- tables


def _checked_curve(curve: pd.DataFrame) -> pd.DataFrame:
    """The curve, if it is one: shares and radii under the columns of a curve, thetas ascending."""
    values = _checked_rates(curve[["theta", *(name for name in curve.columns if name != "theta")]])
    if not (np.diff(values["theta"]) > 0).all():
        raise ValueError("the curve's thetas do not ascend")
    return values[list(curve.columns)]


def _checked_rates(table: pd.DataFrame) -> pd.DataFrame:
    """A table of metrics, all of them numbers: an ACR is at least 0, all others are shares."""
    _ = table[["nac", "acr"]]
    for name in table.columns:
        if "@" in name and not math.isfinite(float(name.split("@")[1])):
            raise ValueError(f"the column {name!r} names no radius")
    if not len(table):
        raise ValueError("a table has no rows")
    if not all(kind.kind in "iuf" for kind in table.dtypes):
        raise ValueError("a table has values that are not numbers")
    values = table.astype(float)
    if not np.isfinite(values.to_numpy()).all():
        raise ValueError("a table has values that are not finite numbers")
    shares = values.drop(columns="acr")
    if values.to_numpy().min() < 0 or shares.to_numpy().max() > 1:
        raise ValueError("a table has a share that is not in [0, 1], or a radius below 0")
    return values


def _read_comparison(path: Path) -> pd.DataFrame | None:
    """What ACES is compared with, as `combine` wrote it; None where it is compared with nothing."""
    table = pd.read_csv(path)
    parts = []
    for series, rows in table.groupby("series", sort=False):
        rates = rows.drop(columns=["series", "sigma"]).apply(pd.to_numeric)
        if series == "sigma":  # the certification network alone: there is no theta
            _checked_rates(rates.drop(columns="theta"))
        else:
            _checked_curve(rates.sort_values("theta"))
        sigma = pd.to_numeric(rows["sigma"])
        if not (np.isfinite(sigma) & (sigma > 0)).all():
            raise ValueError("the comparison has a sigma that is no number above 0")
        parts.append(rates.assign(series=str(series), sigma=sigma)[list(table.columns)])
    return pd.concat(parts) if parts else None


# ---------------------------------------------------------------- single numbers


def _checked_summary(summary: dict[str, Any], curve: pd.DataFrame) -> dict[str, Any]:
    """The summary, if what is shown of it is of its kind and agrees with the curve."""
    names = ("nac", "acr", *(f"{ACCURACY}{r}" for r in radii_of(curve)))
    _require_numbers([summary["core"]["nac"], summary["acr_ceiling"]])
    _require_numbers(summary["certify"][name] for name in names)
    for rules in summary.get("rules", []):
        _require_numbers(rules.values())
    for name in ("rule", "theta_source"):
        if not isinstance(summary.get(name, ""), str):
            raise ValueError(f"the summary has {summary[name]!r} as {name}")
    concerns = summary.get("concerns", [])
    if not (isinstance(concerns, list) and all(isinstance(words, str) for words in concerns)):
        raise ValueError("the summary's concerns are not a list of sentences")
    if summary.get("theta") is not None:
        _require_row(summary, curve)
    return summary


def _require_row(summary: Mapping[str, Any], curve: pd.DataFrame) -> None:
    """The single numbers of a run are those of its curve at their theta."""
    _require_numbers([summary["theta"]])
    row = curve[(curve["theta"] - summary["theta"]).abs() < CLOSE]
    if len(row) != 1:
        raise ValueError(f"the curve has no theta {summary['theta']:g}, which the summary is about")
    for name in curve.columns:
        if name in summary:
            _require_numbers([summary[name]])
            if abs(summary[name] - float(row[name].iloc[0])) > CLOSE:
                raise ValueError(f"the summary has another {name} than the curve")


def _checked_calibration(content: dict[str, Any]) -> dict[str, Any]:
    """The calibration without what it leaves open, if everything else in it is a number, a list
    of numbers as long as every other list, or true or false.
    """
    content = {name: value for name, value in content.items() if value is not None}
    lengths = set()
    for name, value in content.items():
        if isinstance(value, list) and name not in SINGLE:
            _require_numbers(value)
            lengths.add(len(value))
        elif name != "shown":
            _require_numbers([value])
    if not isinstance(content.get("shown", True), bool) or len(lengths) > 1:
        raise ValueError("the calibration's parts are not of their kinds and lengths")
    if not 0 <= content.get("theta", 0) <= 1:
        raise ValueError(f"the calibration has the theta {content['theta']}")
    return content


def _require_numbers(values: Iterable[object]) -> None:
    for value in values:
        # Larger integers are no floats: math.isfinite would raise OverflowError.
        whole = type(value) is int and abs(value) < 2**53
        if not whole and not (type(value) is float and math.isfinite(value)):
            raise ValueError(f"{str(value)[:40]!r} stands where a number is expected")
