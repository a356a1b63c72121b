"""The files of results/ are read by one reader, and only as a set."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aces import paths
from aces.errors import InputError
from aces.files import write_json, write_npz
from aces.reporting import results
from simulated import simulated_run

CALIBRATION = {
    "theta": 0.3,
    "loss": 0.02,
    "confidence": 0.95,
    "images": 2000,
    "shown": True,
    "thetas": [0.2, 0.3],
    "losses": [0.0, 0.01],
}


def write_results(folder: Path) -> None:
    """What `calibrate` and `combine` leave; arrays of nothing stand for the counts."""
    run = simulated_run(images=30, theta_step=0.05)
    for path in (*results.MADE_FROM, paths.OUTCOMES):
        write_npz(folder / path, nothing=np.zeros(1))
    write_json(folder / paths.CALIBRATION, CALIBRATION)
    write_csv(folder / paths.CURVE, run.curve)
    write_csv(folder / paths.COMPARISON, run.comparison)
    row = run.curve[np.isclose(run.curve["theta"], 0.3)].iloc[0].to_dict()
    more = {"theta_source": "calibrated", "rule": "paper", "concerns": [], "rules": []}
    write_json(folder / paths.SUMMARY, row | run.metrics | more)
    write_json(folder / paths.METRICS, {"theta": 0.3, "nac": row["nac"]})


def write_csv(path: Path, table: pd.DataFrame) -> None:
    table.to_csv(path, index=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_results(folder)
    return folder


@pytest.fixture
def project(written, tmp_path, monkeypatch) -> Path:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        results.read_project()
    assert "\n" not in str(caught.value) and "dvc repro -f combine" in str(caught.value)


def change(path: Path, **changes: object) -> None:
    """A JSON file with values changed, or left out where they are `...`."""
    content = json.loads(path.read_text()) | changes
    write_json(path, {name: value for name, value in content.items() if value is not ...})


def test_what_was_written_is_read(project):
    results.record()
    found = results.read_project()
    assert found.summary["theta"] == 0.3 and found.calibration == CALIBRATION
    assert found.curve.equals(pd.read_csv(paths.CURVE))
    assert set(found.comparison["series"]) == {"sigma", "confident"}
    assert results.read_calibration() == CALIBRATION
    results.check(*results.MADE_FROM, *results.MADE)


@pytest.mark.parametrize("path", results.SHOWN, ids=str)
def test_a_file_of_another_run_is_refused(project, path):
    """Nothing in the file is wrong but its digest."""
    results.record()
    path.write_bytes(path.read_bytes() + b"\n")
    refused(f"{path.name} is not the file that results/manifest.json names")


def test_a_single_number_that_was_changed_is_refused(project):
    """`certify` says what the certification network does alone: no other file has these numbers."""
    results.record()
    alone = json.loads(paths.SUMMARY.read_text())["certify"]
    change(paths.SUMMARY, certify=alone | {"nac": 0.99})
    refused("summary.json is not the file")


def test_results_of_other_counts_are_refused(project):
    results.record()
    write_npz(paths.COUNTS, nothing=np.ones(1))
    with pytest.raises(InputError, match="counts.npz is not the file that results/manifest.json"):
        results.check(*results.MADE_FROM)


SUMMARIES = {
    "another accuracy": {"nac": 0.123},
    "a theta that is none": {"theta": "0.3"},
    "text": {"acr_ceiling": "<script>"},
    "truth": {"acr_ceiling": True},
    "infinite": {"acr_ceiling": float("inf")},
    "too large": {"acr_ceiling": 10**400},
    "no core": {"core": ...},
    "core is a list": {"core": [1]},
    "no radii": {"certify": {"nac": 0.5, "acr": 0.1}},
    "concerns are a word": {"concerns": "none"},
    "concerns are numbers": {"concerns": [1]},
    "rules are words": {"rules": [{"loss": "much"}]},
    "rules are numbers": {"rules": [1]},
    "a rule that is none": {"rule": 3},
}


@pytest.mark.parametrize("kind", SUMMARIES)
def test_a_summary_that_is_none_is_refused(project, kind):
    change(paths.SUMMARY, **SUMMARIES[kind])
    refused("results/ cannot be read")


def test_a_summary_about_a_theta_that_the_curve_has_not_got_is_refused(project):
    change(paths.SUMMARY, theta=0.31)
    refused("the curve has no theta 0.31, which the summary is about")


def test_a_summary_that_is_no_object_is_refused(project):
    paths.SUMMARY.write_text("[" * 100_000)
    refused("results/ cannot be read")
    paths.SUMMARY.write_text("[1]")
    refused("summary.json holds no JSON object")


CURVES = {
    "text": lambda curve: curve.assign(nac="high"),
    "truth": lambda curve: curve.assign(nac=True),
    "missing": lambda curve: curve.drop(columns="acr"),
    "infinite": lambda curve: curve.assign(acr=np.inf),
    "empty cells": lambda curve: curve.assign(acr=np.nan),
    "more than all": lambda curve: curve.assign(nac=1.5),
    "a negative radius": lambda curve: curve.assign(acr=-0.1),
    "descending": lambda curve: curve[::-1],
    "a theta twice": lambda curve: pd.concat([curve, curve]).sort_values("theta"),
    "no rows": lambda curve: curve[:0],
    "no radius": lambda curve: curve.assign(**{"certified_accuracy@<b>": 0.5}),
    "an infinite radius": lambda curve: curve.assign(**{"certified_accuracy@inf": 0.5}),
}


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("path", [paths.CURVE, paths.COMPARISON], ids=str)
def test_a_curve_that_is_none_is_refused(project, path, kind):
    table = CURVES[kind](pd.read_csv(path))
    write_csv(path, table)
    if path == paths.COMPARISON and kind in ("no rows", "descending"):
        found = results.read_project().comparison  # rows may come in any order, and be none
        assert (found is None) == (kind == "no rows")
    else:
        refused("results/ cannot be read")


def test_a_curve_without_rows_is_called_so(project):
    write_csv(paths.CURVE, pd.read_csv(paths.CURVE)[:0])
    refused("a table has no rows")


@pytest.mark.parametrize("sigma", [0.0, -0.25, np.inf, np.nan])
def test_a_comparison_has_the_noise_of_each_row(project, sigma):
    table = pd.read_csv(paths.COMPARISON)
    table.loc[0, "sigma"] = sigma
    write_csv(paths.COMPARISON, table)
    refused("the comparison has a sigma that is no number above 0")


CALIBRATIONS = {
    "text": {"images": "many"},
    "a theta that is none": {"theta": 3.0},
    "losses of other thetas": {"losses": [0.1]},
    "losses are words": {"losses": ["a", "b"]},
    "shown is a number": {"shown": 1},
    "an object": {"loss": {}},
    "a list for a number": {"images": [1, 2]},
}


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_a_calibration_that_is_none_is_refused(project, kind):
    change(paths.CALIBRATION, **CALIBRATIONS[kind])
    refused("results/ cannot be read")
    with pytest.raises(InputError, match="calibration.json.*dvc repro -f calibrate"):
        results.read_calibration()


def test_a_run_without_calibration_is_read(project):
    write_json(paths.CALIBRATION, {"theta": None, "images": 0})
    assert results.read_project().calibration == {"images": 0}
