"""One theta for the whole project, and where it comes from."""

import numpy as np
import pytest

from aces.rule.working_point import Source, best_within, working_point

THETAS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
NAC = np.array([0.90, 0.89, 0.86, 0.80, 0.70])
ACR = np.array([0.00, 0.10, 0.20, 0.30, 0.25])
CALIBRATION = {"theta": 0.25, "loss": 0.02, "confidence": 0.95, "images": 2000}


def at(**given):
    return working_point(THETAS, nac=NAC, acr=ACR, core_nac=0.9, **given)


def test_the_user_s_theta_goes_before_the_calibrated_one():
    found = at(chosen=0.75, calibration=CALIBRATION)
    assert (found.step, found.theta, found.source) == (3, 0.75, Source.SET)
    assert "report.theta" in found.words


def test_the_calibrated_theta_goes_before_a_choice_on_the_evaluation_images():
    found = at(calibration=CALIBRATION)
    assert (found.theta, found.source) == (0.25, Source.CALIBRATED)
    assert "at most 2 points" in found.words and "95 % confidence" in found.words
    assert "2,000 other test images" in found.words


def test_a_calibration_that_could_show_nothing_says_so():
    found = at(calibration=CALIBRATION | {"theta": 0.0, "shown": False})
    assert found.theta == 0 and "too few to show" in found.words
    assert "the core network answers alone" in found.words


@pytest.mark.parametrize("calibration", [None, {}, {"theta": None, "loss": 0.02}])
def test_without_a_calibrated_theta_the_choice_is_called_optimistic(calibration):
    found = at(calibration=calibration)
    assert (found.theta, found.source) == (0.5, Source.EVALUATION)  # loses 4 points, 0.75 loses 10
    assert "optimistic" in found.words


@pytest.mark.parametrize(("theta", "step"), [(0.0, 0), (0.49, 1), (0.5, 2), (1.0, 4)])
def test_a_theta_between_two_steps_is_rounded_towards_the_core_network(theta, step):
    assert at(calibration={"theta": theta}).step == step


def test_best_within_takes_the_largest_radius_among_the_allowed():
    assert best_within(NAC, ACR, core_nac=0.9, loss=0.10) == 3
    assert best_within(NAC, ACR, core_nac=0.9, loss=0.0) == 0
    assert best_within(NAC - 0.1, ACR, core_nac=0.9, loss=0.0) == 0  # none allowed: most accurate
