"""Metrics on outcomes small enough to count by hand, and intervals that cover."""

import numpy as np
import pytest
from scipy.stats import binom

from aces.rule import ABSTAIN, Outcomes, Route, Selected, metrics
from aces.rule.smoothing import Smoothed

# Five images, one theta. label 1 throughout; by hand: two right certificates (0.3, 0.6), one wrong
# (0.9), a right answer of the core, an abstention whose selection is certified.
BY_HAND = Outcomes(
    prediction=np.array([[1], [1], [0], [1], [ABSTAIN]]),
    radius=np.array([[0.3], [0.6], [0.9], [0.0], [0.0]]),
    route=np.array(
        [[Route.CERTIFY], [Route.CERTIFY], [Route.CERTIFY], [Route.CORE], [Route.ABSTAIN]]
    ),
    selected=np.array([[Selected.CERTIFY]] * 3 + [[Selected.CORE], [Selected.CERTIFY]]),
    selection_radius=np.array([[0.3], [0.7], [0.9], [0.8], [0.4]]),
)
LABEL, NATURAL = np.ones(5, int), np.array([[1], [1], [1], [1], [ABSTAIN]])


def test_curve_by_hand():
    curve = metrics.curve(BY_HAND, NATURAL, LABEL, thetas=[0.5], radii=[0.0, 0.25, 0.5, 0.75])
    expected = {
        "theta": 0.5,
        "nac": 4 / 5,
        "acr": 0.9 / 5,
        "abstention": 1 / 5,
        "core_rate": 1 / 5,
        "certified_accuracy@0": 3 / 5,
        "certified_accuracy@0.25": 2 / 5,
        "certified_accuracy@0.5": 1 / 5,
        "certified_accuracy@0.75": 0,
        "selection_rate@0": 4 / 5,
        "selection_rate@0.25": 4 / 5,
        "selection_rate@0.5": 2 / 5,
        "selection_rate@0.75": 1 / 5,
    }
    assert list(curve) == list(expected)
    assert {name: column.item() for name, column in curve.items()} == pytest.approx(expected)


def test_an_abstention_is_never_right():
    """Also where the label is -1, as in an unlabelled set, or the sentinel would match."""
    outcomes = Outcomes(
        prediction=np.array([[ABSTAIN]]),
        radius=np.zeros((1, 1)),
        route=np.array([[Route.ABSTAIN]]),
        selected=np.array([[Selected.NEITHER]]),
        selection_radius=np.zeros((1, 1)),
    )
    curve = metrics.curve(
        outcomes, np.array([[ABSTAIN]]), np.array([-1]), thetas=[0.0], radii=[0.0]
    )
    assert [curve[name].item() for name in ("nac", "acr", "certified_accuracy@0")] == [0, 0, 0]


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
    certifies = selection > 0
    return Outcomes(
        prediction=rng.integers(0, 2, size=shape),
        radius=np.maximum(selection, 0),
        route=np.where(certifies, Route.CERTIFY, Route.CORE),
        selected=np.where(certifies, Selected.CERTIFY, Selected.CORE),
        selection_radius=np.abs(selection),
    )


def test_the_bootstrap_is_that_of_one_resample_at_a_time():
    rng = np.random.default_rng(1)
    score = rng.exponential(size=(30, 3))
    found = metrics.mean_interval(score, resamples=4000, seed=0)
    means = [score[rng.integers(0, 30, 30)].mean(axis=0) for _ in range(4000)]
    expected = np.quantile(means, [0.025, 0.975], axis=0)
    assert np.array(found) == pytest.approx(expected, abs=0.04)


def test_a_paired_difference_is_narrower_than_two_intervals():
    rng = np.random.default_rng(3)
    one = rng.exponential(size=400)
    other = one + rng.normal(0.1, 0.05, 400)
    low, high = metrics.mean_interval(other - one, resamples=500, seed=0)
    assert 0.09 < low < high < 0.11


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.5, 0.997])
def test_intervals_of_fractions_cover_as_often_as_they_say(rate):
    """Summed exactly over all counts of 500 images; a percentile bootstrap covers 39 % at 0.001."""
    k = np.arange(501)
    low, high = metrics.fraction_interval(k, 500)
    covers = (low <= rate) & (rate <= high)
    assert binom.pmf(k, 500, rate)[covers].sum() >= 0.95
    assert low[0] == 0 and high[0] > 0 and high[-1] == 1 and low[-1] < 1


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
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["acr_low"], other["acr_low"])
    for name in list(curve)[1:]:
        assert np.all(one[f"{name}_low"] <= curve[name] + 1e-6)
        assert np.all(curve[name] - 1e-6 <= one[f"{name}_high"])


def test_summary_names_the_ceiling():
    curve = metrics.curve(BY_HAND, NATURAL, LABEL, thetas=[0.5], radii=[0.0])
    found = metrics.summary(curve, ceiling=0.95)
    assert found["acr_ceiling"] == 0.95
    assert found["acr_max"] == pytest.approx(0.18) and found["acr_max_theta"] == 0.5
