"""The theta chosen with a promise: its test by enumeration, the promise by simulation."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from aces.errors import InputError
from aces.rule.calibration import calibrate, loss_bound, needed_images, p_value
from aces.rule.radii import automatic_radii
from aces.rule.statistics import max_radius

LOSS, CONFIDENCE = 0.05, 0.95


@pytest.mark.parametrize("images", [100, 250])
def test_a_true_hypothesis_is_rejected_as_rarely_as_delta_by_enumeration(images):
    """Every trinomial count, weighed by its exact probability, at the edge of the hypothesis and
    beyond it, for rare and frequent gains.
    """
    delta, cells = 1 - CONFIDENCE, []
    for w, g in itertools.product(range(images + 1), repeat=2):
        if w + g <= images / 2 and w - g <= images * LOSS:  # elsewhere nothing is ever rejected
            cells.append((w, g, p_value(w, g, images, loss=LOSS, delta=delta) <= delta))
    worse, better, rejected = np.array(cells).T
    counts = np.stack([worse, better, images - worse - better], axis=1)[rejected == 1]
    worst = 0.0
    for gain, excess in itertools.product([0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4], [0, 0.01]):
        p = [gain + LOSS + excess, gain, 1 - 2 * gain - LOSS - excess]
        worst = max(worst, multinomial.pmf(counts, images, p).sum())
    assert 0.2 * delta < worst <= delta


def test_a_p_value_is_the_tail_it_claims_to_be():
    """Against a million draws of the trinomial at the worst gain."""
    images, worse, better, delta = 500, 20, 10, 0.05
    found = p_value(worse, better, images, loss=LOSS, delta=delta)
    gamma = delta / 10
    low, high = 0.0, 0.5
    for _ in range(60):  # the upper bound of the share that changes, by bisection
        middle = (low + high) / 2
        low, high = (
            (middle, high) if binom.cdf(worse + better, images, middle) > gamma else (low, middle)
        )
    gain = (low - LOSS) / 2
    drawn = np.random.default_rng(0).multinomial(
        images, [gain + LOSS, gain, 1 - 2 * gain - LOSS], size=10**6
    )
    share = (drawn[:, 0] - drawn[:, 1] <= worse - better).mean()
    assert found == pytest.approx(share + gamma, abs=1e-3)


def world(rng, losses, gains, images):
    """Whether the core is right, and ACES at each theta; what is lost at one theta stays lost."""
    u, v = rng.random((2, images))
    core_right = v < 0.8
    worse = (u[:, None] < (losses + gains) / 0.8) & core_right[:, None]
    better = (u[:, None] < gains / 0.2) & ~core_right[:, None]
    return core_right, (core_right[:, None] & ~worse) | better


WORLDS = {
    "just too much from the third theta on": (np.array([0.0, 0.02, 0.0501, 0.0501, 0.2]), 0.01),
    "just too much at once": (np.full(5, 0.0501), 0.0),
    "many gains": (np.array([0.0, 0.045, 0.0501, 0.06, 0.07]), 0.08),
    "grows slowly": (np.linspace(0, 0.08, 17), 0.02),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_promise_is_broken_as_rarely_as_it_says(name):
    """1,000 worlds of each kind with known losses."""
    losses, gain = WORLDS[name]
    rng, thetas, worlds = np.random.default_rng(7), np.linspace(0, 1, len(losses)), 1000
    broken = chosen = 0
    for _ in range(worlds):
        found = calibrate(
            *world(rng, losses, np.full(len(losses), gain), 400),
            thetas=thetas,
            loss=LOSS,
            confidence=CONFIDENCE,
        )
        true = losses[np.searchsorted(thetas, found.theta)] if found.shown else 0.0
        broken += true > LOSS
        chosen += found.theta > 0
    assert binom.sf(broken - 1, worlds, 1 - CONFIDENCE) > 1e-4, f"{broken} of {worlds}"
    assert chosen > (0 if losses[0] > LOSS else worlds / 20)


def test_a_test_that_ignores_chance_is_noticed():
    """The same simulation: a theta chosen by the measured loss alone breaks the promise often."""
    losses, gain = WORLDS["grows slowly"]
    rng, broken = np.random.default_rng(7), 0
    for _ in range(200):
        core_right, right = world(rng, losses, np.full(len(losses), gain), 400)
        measured = core_right.mean() - right.mean(axis=0)
        broken += losses[np.flatnonzero(measured <= LOSS)[-1]] > LOSS
    assert binom.sf(broken - 1, 200, 1 - CONFIDENCE) < 1e-9


def test_the_evidence_is_all_there():
    rng = np.random.default_rng(0)
    losses = np.linspace(0, 0.2, 11)
    core_right, right = world(rng, losses, np.zeros(11), 2000)
    thetas = np.linspace(0, 1, 11)
    found = calibrate(core_right, right, thetas=thetas, loss=LOSS, confidence=CONFIDENCE)
    step = int(np.searchsorted(thetas, found.theta))
    assert found.shown and 0 < found.theta < 1
    assert found.measured == pytest.approx(core_right.mean() - right[:, step].mean())
    assert found.measured < found.bound <= LOSS
    assert len(found.thetas) == len(found.losses) == len(found.p_values) == step + 2
    assert (np.array(found.p_values[:-1]) <= 0.05).all() and found.p_values[-1] > 0.05
    assert (found.images, found.loss, found.confidence) == (2000, LOSS, CONFIDENCE)


def test_all_thetas_may_keep_the_promise_and_none_may():
    right = np.ones(200, bool)
    same = calibrate(right, np.ones((200, 2), bool), thetas=[0, 1], loss=LOSS, confidence=0.95)
    assert same.theta == 1 and same.shown and same.measured == 0 and same.bound < LOSS
    nothing = calibrate(
        right, np.zeros((200, 2), bool), thetas=[0.5, 1], loss=LOSS, confidence=0.95
    )
    assert nothing.theta == 0 and not nothing.shown and nothing.thetas == (0.5,)


def test_the_bound_is_the_smallest_loss_that_is_rejected():
    bound = loss_bound(60, 40, 2000, confidence=0.95)
    assert p_value(60, 40, 2000, loss=bound, delta=0.05) <= 0.05
    assert p_value(60, 40, 2000, loss=bound - 1e-4, delta=0.05) > 0.05


def test_too_few_images_are_refused_with_the_number_that_is_needed():
    needed = needed_images(loss=0.02, confidence=0.95)
    assert p_value(0, 0, needed, loss=0.02, delta=0.05) <= 0.05
    assert p_value(0, 0, needed - 1, loss=0.02, delta=0.05) > 0.05
    with pytest.raises(InputError, match=f"at least {needed}"):
        calibrate([True] * 50, np.ones((50, 1)), thetas=[0], loss=0.02, confidence=0.95)
    with pytest.raises(InputError, match="allow a larger loss"):
        needed_images(loss=1e-8, confidence=0.95)


@pytest.mark.parametrize(
    "wrong, match",
    [
        (dict(loss=0.0), "loss=0.0"),
        (dict(confidence=1.0), "confidence=1.0"),
        (dict(thetas=[1, 0.5]), "growing"),
        (dict(thetas=[]), "expected"),
        (dict(thetas=[0.5]), "shape"),
    ],
)
def test_bad_input_is_refused(wrong, match):
    arguments = dict(thetas=[0.5, 1.0], loss=0.02, confidence=0.95) | wrong
    with pytest.raises(InputError, match=match):
        calibrate(np.ones(500), np.ones((500, 2)), **arguments)


@pytest.mark.parametrize("sigma, step", [(0.25, 0.125), (0.5, 0.25), (1.0, 0.5)])
def test_automatic_radii_are_those_of_the_paper_at_its_settings(sigma, step):
    """Its tables: 0 to 2 by .25 at sigma .5, 0 to 4 by .5 at sigma 1; at .25 the ceiling is .95."""
    found = automatic_radii(sigma=sigma, n=100_000, alpha=0.001)
    assert found == [i * step for i in range(9)]


@pytest.mark.parametrize("sigma", [0.03, 0.12, 0.25, 0.5, 1.0, 2.0, 7.3])
@pytest.mark.parametrize("n", [50, 1000, 2000, 20_000])
def test_automatic_radii_fit_the_draws(sigma, n):
    found, largest = (
        automatic_radii(sigma=sigma, n=n, alpha=0.001),
        max_radius(n, sigma=sigma, alpha=0.001),
    )
    assert len(found) == 9 and found[0] == 0 and 0.75 * largest < found[-1] <= 1.06 * largest
    assert all(len(f"{radius:g}") <= 6 for radius in found)


def test_automatic_radii_where_nothing_can_be_certified():
    assert len(set(automatic_radii(sigma=0.25, n=3, alpha=0.001))) == 9
