"""The theta chosen with a promise: its test by enumeration, the promise by simulation."""

import dataclasses
import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import binom, multinomial

from aces import rule
from aces.errors import InputError
from aces.grid import BINS, thetas
from aces.rule.calibration import calibrate, needed_images, p_value
from aces.rule.choice import Choice
from aces.rule.counts import Looks
from aces.rule.radii import automatic_radii
from aces.rule.sequential import Evidence
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


@pytest.mark.parametrize("images, loss, delta", [(40, 0.2, 0.2), (60, 0.15, 0.05), (30, 0.45, 0.3)])
def test_a_p_value_is_valid_at_every_level_by_brute_force(images, loss, delta):
    """All trinomial counts, under every (p, q) of a fine grid with p - q >= loss, also where every
    image changes: the p-value is at most x with probability <= x, for every x up to delta.
    """
    counts = np.array(
        [(w, g, images - w - g) for w in range(images + 1) for g in range(images + 1 - w)]
    )
    values = np.array([p_value(w, g, images, loss=loss, delta=delta) for w, g, _ in counts])
    order = np.argsort(values, kind="stable")
    levels = values[order]
    last = np.append(levels[1:] > levels[:-1], True) & (levels <= delta)  # ties belong together
    assert last.any() and (values >= 0).all() and (values <= 1).all()
    excess, worst = -1.0, 0.0
    for gain, above in itertools.product(np.linspace(0, 0.5, 41), (0, 1e-9, 0.02, 0.2, 1 - loss)):
        p = gain + loss + above
        if p + gain <= 1 + 1e-12:
            pmf = multinomial.pmf(counts, images, [p, gain, max(1 - p - gain, 0.0)])
            rates = np.cumsum(pmf[order])[last]
            excess, worst = max(excess, (rates - levels[last]).max()), max(worst, rates[-1])
    assert excess <= 1e-12 and worst > 0.2 * delta


@pytest.mark.parametrize("images, loss", [(200, 0.05), (2000, 0.02)])
def test_the_p_value_grows_with_losses_and_with_changes(images, loss):
    """On this the early stopping of `Choice` relies."""
    rng = np.random.default_rng(0)
    for worse, better in rng.integers(0, images // 5, (100, 2)).tolist():
        here = p_value(worse, better, images, loss=loss, delta=0.05)
        assert here <= p_value(worse + 1, better, images, loss=loss, delta=0.05) + 1e-14
        assert here <= p_value(worse + 1, better + 1, images, loss=loss, delta=0.05) + 1e-14


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
    assert found.measured < LOSS
    assert len(found.thetas) == len(found.losses) == len(found.p_values) == step + 2
    assert (np.array(found.p_values[:-1]) <= 0.05).all() and found.p_values[-1] > 0.05
    assert (found.images, found.loss, found.confidence) == (2000, LOSS, CONFIDENCE)


def test_all_thetas_may_keep_the_promise_and_none_may():
    right = np.ones(200, bool)
    same = calibrate(right, np.ones((200, 2), bool), thetas=[0, 1], loss=LOSS, confidence=0.95)
    assert same.theta == 1 and same.shown and same.measured == 0
    nothing = calibrate(
        right, np.zeros((200, 2), bool), thetas=[0.5, 1], loss=LOSS, confidence=0.95
    )
    assert nothing.theta == 0 and not nothing.shown and nothing.thetas == (0.5,)


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
        (dict(loss=0.0), r"loss=0.0 not in \(0, 1\)"),
        (dict(loss=1.0), r"loss=1.0 not in \(0, 1\)"),
        (dict(confidence=1.0), r"confidence=1.0 not in \(0, 1\)"),
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


# --- Early stopping: the choice is that of all draws.
LOOKS, SPEND, IMAGES = np.array([40, 160, 640]), np.array([0.05, 0.1, 0.85]), 500


def drawn_world(rng):
    """(all looks at all images, guessed classes, the core's classes, labels): easy and hard images,
    classes and doubts that depend on each other, some draws invalid.
    """
    label = rng.integers(0, 3, IMAGES)
    core = np.where(rng.random(IMAGES) < 0.85, label, rng.integers(0, 3, IMAGES))
    p = np.eye(3)[label] * rng.beta(2, 0.7, IMAGES)[:, None] * 9 + rng.random((IMAGES, 3))
    p /= p.sum(axis=1, keepdims=True)
    guess, draws = p.argmax(axis=1), int(LOOKS[-1])
    classes = (rng.random((IMAGES, draws, 1)) > p.cumsum(axis=1)[:, None, :2]).sum(axis=2)
    doubt = rng.beta(2, 4 * p.max(axis=1)[:, None], (IMAGES, draws))
    bins = np.ceil(doubt * BINS).astype(int)
    valid = rng.random((IMAGES, draws)) > 0.01
    images = np.broadcast_to(np.arange(IMAGES)[:, None], bins.shape)
    shape = (len(LOOKS), IMAGES, BINS + 1)
    looks = Looks(
        draws=LOOKS,
        spend=SPEND,
        made=np.full(IMAGES, len(LOOKS)),
        classes=np.zeros((len(LOOKS), IMAGES, 3), int),
        score=np.zeros(shape, int),
        doubt=np.zeros(shape, int),
        joint_doubt=np.zeros(shape, int),
    )
    for j, stop in enumerate(LOOKS):
        part = valid & (np.arange(draws) < stop)
        mine = part & (classes == guess[:, None])
        np.add.at(looks.classes[j], (images[part], classes[part]), 1)
        np.add.at(looks.doubt[j], (images[part], bins[part]), 1)
        np.add.at(looks.joint_doubt[j], (images[mine], bins[mine]), 1)
    looks.score[:] = looks.doubt
    return looks, guess, core, label


def with_early_stops(choice, looks, guess):
    """The choice, and how many draws it took; image by image the looks end when it is settled."""
    left, draws = np.arange(len(guess)), 0
    for j in range(len(looks.draws)):
        made = dataclasses.replace(looks.part(left), made=np.full(len(left), j + 1))
        draws += len(left) * int(looks.draws[j] - (looks.draws[j - 1] if j else 0))
        left = left[~choice.settled(Evidence(made), guess[left], left)]
    return choice.calibration(), draws


@pytest.mark.parametrize("name", rule.RULES)
@pytest.mark.parametrize("seed", range(6))
def test_early_stopping_does_not_change_the_choice(seed, name):
    looks, guess, core, label = drawn_world(np.random.default_rng(seed))
    steps = thetas(0.02)
    answers = partial(rule.predict_from, alpha=0.001, thetas=steps, rule=name)
    promise = dict(thetas=steps, loss=[0.02, 0.03, 0.06][seed % 3], confidence=0.95)
    right = answers(Evidence(looks), guess, core) == label[:, None]
    whole = calibrate(core == label, right, **promise)
    found, draws = with_early_stops(Choice(answers, core, label, **promise), looks, guess)
    for field in ("theta", "measured", "shown", "images"):
        assert getattr(found, field) == getattr(whole, field)
    assert found.thetas == whole.thetas, "both stop at the same theta"
    assert draws < 0.6 * IMAGES * LOOKS[-1]
    assert whole.theta > 0


def test_a_choice_that_stops_too_early_is_noticed(monkeypatch):
    """Without the thetas that matter an image would stop at its first look."""
    monkeypatch.setattr(Choice, "_matters", lambda self: np.zeros(self.open.shape[1], bool))
    same = 0
    for seed in range(6):
        looks, guess, core, label = drawn_world(np.random.default_rng(seed))
        steps = thetas(0.02)
        answers = partial(rule.predict_from, alpha=0.001, thetas=steps)
        promise = dict(thetas=steps, loss=0.03, confidence=0.95)
        right = answers(Evidence(looks), guess, core) == label[:, None]
        whole = calibrate(core == label, right, **promise)
        found, _ = with_early_stops(Choice(answers, core, label, **promise), looks, guess)
        same += (found.theta, found.measured) == (whole.theta, whole.measured)
    assert same < 3


@pytest.mark.parametrize("second, settled", [(1, True), (rule.ABSTAIN, False)])
def test_thetas_beyond_a_loss_that_is_too_large_are_worth_no_draws(second, settled):
    """Every answer at theta 0.5 is wrong, or open; those at theta 1 are open."""
    right = np.zeros(400, dtype=int)
    answers = np.tile([0, second, rule.ABSTAIN], (len(right), 1))
    promise = dict(thetas=[0.1, 0.5, 1.0], loss=0.02, confidence=0.95)
    choice = Choice(lambda *_: answers, right, right, **promise)
    assert (choice.settled(None, right, np.arange(len(right))) == settled).all()
    assert choice.calibration().theta == 0.1


def test_too_few_images_are_refused_before_anything_is_drawn():
    with pytest.raises(InputError, match="50 calibration images are too few"):
        Choice(None, np.zeros(50), np.zeros(50), thetas=[0.5], loss=0.02, confidence=0.95)


def reruns(parameter: str) -> set[str]:
    """The stages that DVC runs again if a parameter changes, and all that read what these write."""
    stages = yaml.safe_load((Path(__file__).parents[1] / "dvc.yaml").read_text())["stages"]

    def reads(stage: dict) -> bool:
        return any(f"{parameter}.".startswith(f"{name}.") for name in stage.get("params", []))

    def files(entries: list) -> set[str]:
        return {next(iter(it)) if isinstance(it, dict) else it for it in entries}

    found = {name for name, stage in stages.items() if reads(stage)}
    while True:
        written = set().union(*(files(stages[name].get("outs", [])) for name in found))
        more = {name for name, stage in stages.items() if files(stage.get("deps", [])) & written}
        if more <= found:
            return found
        found |= more


@pytest.mark.parametrize("name", ["rule", "multiplicity", "alpha", "radii", "theta_step"])
def test_another_rule_draws_no_evaluation_image_again(name):
    assert "combine" in reruns(f"combine.{name}")
    assert "sample" not in reruns(f"combine.{name}")


def test_another_promise_draws_no_evaluation_image_again_and_radii_no_image_at_all():
    for name in ("loss", "confidence", "n"):
        assert "calibrate" in reruns(f"calibrate.{name}")
        assert "sample" not in reruns(f"calibrate.{name}")
    assert "calibrate" not in reruns("combine.radii")
    assert "sample" in reruns("sample.n"), "what does draw again is noticed"
