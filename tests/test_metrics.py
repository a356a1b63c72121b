"""Metrics on outcomes small enough to count by hand, and intervals that cover."""

import numpy as np
import pandas as pd
import pytest

from aces.rule import metrics
from aces.rule.composition import ABSTAIN, Outcomes, Route
from aces.rule.smoothing import Smoothed

# Five images, one theta. label 1 throughout; by hand: two right certificates (0.3, 0.6), one wrong
# (0.9), a right answer of the core, an abstention whose selection is certified.
BY_HAND = Outcomes(
    prediction=np.array([[1], [1], [0], [1], [ABSTAIN]]),
    radius=np.array([[0.3], [0.6], [0.9], [0.0], [0.0]]),
    route=np.array(
        [[Route.CERTIFY], [Route.CERTIFY], [Route.CERTIFY], [Route.CORE], [Route.ABSTAIN]]
    ),
    selection=np.array([[0.3], [0.7], [0.9], [-0.8], [0.4]]),
)
LABEL, NATURAL = np.ones(5, int), np.array([[1], [1], [1], [1], [ABSTAIN]])


def test_curve_by_hand():
    curve = metrics.curve(BY_HAND, NATURAL, LABEL, thetas=[0.5], radii=[0.0, 0.25, 0.5, 0.75])
    assert list(curve.columns) == [
        "theta",
        "nac",
        "acr",
        "abstention",
        "core_rate",
        "certified_accuracy@0",
        "certified_accuracy@0.25",
        "certified_accuracy@0.5",
        "certified_accuracy@0.75",
        "selection_rate@0",
        "selection_rate@0.25",
        "selection_rate@0.5",
        "selection_rate@0.75",
    ]
    expected = [
        0.5,
        4 / 5,
        0.9 / 5,
        1 / 5,
        1 / 5,
        3 / 5,
        2 / 5,
        1 / 5,
        0,
        4 / 5,
        4 / 5,
        2 / 5,
        1 / 5,
    ]
    assert curve.iloc[0].to_list() == pytest.approx(expected)


def test_an_abstention_is_never_right():
    """Also where the label is -1, as in an unlabelled set, or the sentinel would match."""
    outcomes = Outcomes(
        prediction=np.array([[ABSTAIN]]),
        radius=np.zeros((1, 1)),
        route=np.array([[Route.ABSTAIN]]),
        selection=np.zeros((1, 1)),
    )
    curve = metrics.curve(
        outcomes, np.array([[ABSTAIN]]), np.array([-1]), thetas=[0.0], radii=[0.0]
    )
    assert curve[["nac", "acr", "certified_accuracy@0"]].to_numpy().sum() == 0


def test_individual_by_hand():
    smoothed = Smoothed(
        prediction=np.array([1, 0, ABSTAIN, 1]), radius=np.array([0.4, 0.9, 0.0, 0.2])
    )
    found = metrics.individual(
        smoothed, np.array([1, 1, ABSTAIN, 1]), np.ones(4, int), radii=[0, 0.25]
    )
    assert found == pytest.approx(
        {
            "nac": 3 / 4,
            "acr": 0.6 / 4,
            "abstention": 1 / 4,
            "certified_accuracy@0": 2 / 4,
            "certified_accuracy@0.25": 1 / 4,
        }
    )


def random_outcomes(rng, images, thetas):
    shape = images, thetas
    selection = rng.normal(0.3, 0.5, size=shape)
    route = np.where(selection > 0, Route.CERTIFY, Route.CORE)
    return Outcomes(
        prediction=rng.integers(0, 2, size=shape),
        radius=np.maximum(selection, 0),
        route=route,
        selection=selection,
    )


def test_intervals_are_the_bootstrap_one_resample_at_a_time():
    rng = np.random.default_rng(1)
    outcomes, natural, label = (
        random_outcomes(rng, 30, 3),
        rng.integers(0, 2, (30, 3)),
        rng.integers(0, 2, 30),
    )
    arguments = dict(thetas=[0, 0.5, 1], radii=[0, 0.25])
    found = metrics.intervals(outcomes, natural, label, **arguments, resamples=4000, seed=0)
    curves = []
    for _ in range(4000):
        picks = rng.integers(0, 30, 30)
        some = Outcomes(
            **{
                name: getattr(outcomes, name)[picks]
                for name in ("prediction", "radius", "route", "selection")
            }
        )
        curves.append(metrics.scores(some, natural[picks], label[picks], radii=[0, 0.25]))
    for name in curves[0]:
        means = np.array([curve[name].mean(axis=0) for curve in curves])
        low, high = np.quantile(means, [0.025, 0.975], axis=0)
        assert found[f"{name}_low"].to_numpy() == pytest.approx(low, abs=0.035), name
        assert found[f"{name}_high"].to_numpy() == pytest.approx(high, abs=0.035), name


def test_intervals_are_seeded_and_hold_the_curve():
    rng = np.random.default_rng(2)
    outcomes, natural, label = (
        random_outcomes(rng, 100, 4),
        rng.integers(0, 2, (100, 4)),
        rng.integers(0, 2, 100),
    )
    arguments = dict(thetas=np.linspace(0, 1, 4), radii=[0.5])
    curve = metrics.curve(outcomes, natural, label, **arguments)
    one, same, other = (
        metrics.intervals(outcomes, natural, label, **arguments, resamples=300, seed=s)
        for s in (7, 7, 8)
    )
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other)
    for name in curve.columns[1:]:
        assert np.all(one[f"{name}_low"] <= curve[name]) and np.all(
            curve[name] <= one[f"{name}_high"]
        )


def test_summary_names_the_ceiling():
    curve = metrics.curve(BY_HAND, NATURAL, LABEL, thetas=[0.5], radii=[0.0])
    found = metrics.summary(curve, ceiling=0.95)
    assert found["acr_ceiling"] == 0.95
    assert found["acr_max"] == pytest.approx(0.18) and found["acr_max_theta"] == 0.5
