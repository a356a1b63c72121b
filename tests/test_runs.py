"""Finished runs and attacks as the report and `aces compare` read them."""

import dataclasses
import json

import pytest

from aces.reporting import attacks
from aces.reporting.remarks import above_natural
from aces.reporting.runs import read_curve
from stored_runs import stored


@pytest.fixture
def run(tmp_path):
    return stored(tmp_path, "aa11", "calm-owl", seed=0)


def test_a_radius_stands_for_a_multiple_of_sigma_where_it_is_near(run):
    """The radii are 0, 0.25, 0.5, 0.75, and sigma is 0.25."""
    curve = read_curve(run)
    assert (curve.radii, curve.sigma) == (["0", "0.25", "0.5", "0.75"], 0.25)
    near = {multiple: curve.near(multiple) for multiple in (0.0, 1.0, 2.2, 4.0)}
    assert near == {0.0: None, 1.0: "0.25", 2.2: "0.5", 4.0: None}
    without = dataclasses.replace(curve, curve=curve.curve[["theta", "nac", "acr"]])
    assert without.near(1.0) is None
    for sigma in ("0", "-0.25", "much"):
        assert dataclasses.replace(curve, params=curve.params | {"sigma": sigma}).near(1.0) is None


@pytest.mark.parametrize("name", ["curve.csv", "summary.json"])
def test_a_run_without_all_of_its_results_has_none(name, run):
    (run.folder / "results" / name).unlink()
    assert read_curve(run) is None


def test_a_curve_without_radius_0_has_nothing_to_explain(run):
    curve = read_curve(run).curve
    assert above_natural(curve.drop(columns="certified_accuracy@0")) is None


def test_an_attack_that_does_not_say_what_it_is_about_is_not_shown(tmp_path):
    counts = {"images": 20, "certified": 2, "breaches": [], "scales": [], "curve": []}
    path = tmp_path / "attack.json"
    path.write_text(json.dumps(counts | {"theta": 0.4, "files": {"a": "b"}}))
    assert attacks.read_attack(path, {"a": "b"})["images"] == 20
    path.write_text(json.dumps(counts | {"theta": 0.4, "files": {}}))
    assert attacks.read_attack(path, {"a": "b"}) is None
