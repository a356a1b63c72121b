"""The confident rule: its naive twin, exact enumeration, simulation, and a broken rule that the
same checks notice.

A world is known by what a draw does at one theta: P[c] of "class c and doubt <= theta" for each
class, the rest being doubtful or invalid. For enumeration and simulation the histograms have two
bins only, <= theta and > theta: the rule is asked for bin 0.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

import made_counts
import naive
from aces import rule
from aces.errors import InputError
from aces.rule import ABSTAIN, Route, Selected, confident, smoothing
from aces.rule.counts import Counts, Looks, Round
from confident_worlds import LESS, MORE, SIGMA, WORLDS, is_false, wrong
from made_counts import random_counts

THETAS = [0.0, 0.001, 0.25, 0.499, 0.5, 0.75, 0.999, 1.0]
BIN = np.array([0])  # the theta of worlds


@settings(max_examples=80)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.001, 0.05, 0.3]),
    st.booleans(),
    st.integers(1, 12),
    st.integers(1, 60),
    st.booleans(),
)
def test_the_rule_agrees_with_its_naive_twin(seed, alpha, looks, n0, n, own_draws):
    """Random counts with ties, k = 0, k = n, invalid draws; PREDICT with draws of its own and from
    those of round BOUND.
    """
    rng = np.random.default_rng(seed)
    n = max(n, 4) if looks else n
    counts = random_counts(rng, images=4, n0=n0, n=n, n_predict=n if own_draws else 0, looks=looks)
    core = rng.integers(0, 3, size=4)
    outcomes = rule.certify(counts, core, alpha=alpha, thetas=THETAS)
    natural = rule.predict(counts, core, alpha=alpha, thetas=THETAS)
    for i, (t, theta) in itertools.product(range(4), enumerate(THETAS)):
        prediction, radius, route = naive.confident_certify_one(
            counts, i, core[i], sigma=SIGMA, alpha=alpha, theta=theta
        )
        assert outcomes.prediction[i, t] == prediction
        assert outcomes.radius[i, t] == pytest.approx(radius, rel=1e-9)
        assert Route(outcomes.route[i, t]).name == route
        assert natural[i, t] == naive.confident_predict_one(
            counts, i, core[i], alpha=alpha, theta=theta
        )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.05]), st.booleans(), st.booleans())
def test_at_theta_one_it_is_plain_smoothing(seed, alpha, looks, own_draws):
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, n=200, n_predict=100 if own_draws else 0, looks=looks)
    core = rng.integers(0, 3, size=6)
    outcomes = rule.certify(counts, core, alpha=alpha, thetas=[0.5, 1.0])
    alone = smoothing.certify(counts, alpha=alpha)
    np.testing.assert_array_equal(outcomes.prediction[:, 1], alone.prediction)
    np.testing.assert_array_equal(outcomes.radius[:, 1], alone.radius)
    np.testing.assert_array_equal(
        rule.predict(counts, core, alpha=alpha, thetas=[0.5, 1.0])[:, 1],
        smoothing.predict(counts, alpha=alpha),
    )


def test_the_radius_grows_with_theta():
    counts = random_counts(np.random.default_rng(1), images=50, n=400)
    outcomes = rule.certify(counts, counts.guess, alpha=0.01, thetas=THETAS)
    assert (np.diff(outcomes.p_class[:, :-1], axis=1) >= 0).all()
    assert (outcomes.radius[:, :-1] > 0).any()


# --- Soundness by simulation.
ALPHA, N = 0.05, 300


def counted(
    cells, guess, *, n0, draws=None, spend=(1.0,), certifies=None, doubtful=None, made=None
) -> Counts:
    """Counts of images at one theta, in both rounds the same draws.

    cells: (J, N, K + 1) draws at each look: of each class with little doubt, and the rest, which
    is invalid, or of the class `doubtful` with more doubt than theta; guess: (N,); certifies: (N,)
    s_hat; made: looks that each image had.
    """
    steps, images, columns = cells.shape
    sure, rest = cells[:, :, :-1], cells[:, :, -1]
    first = np.zeros((images, columns - 1), int)
    first[np.arange(images), guess] = n0
    few = n0 if certifies is None else np.where(certifies, n0, 0)
    mine = np.take_along_axis(sure, guess[None, :, None], axis=2)[:, :, 0]
    classes, beyond = sure.copy(), rest * (doubtful is not None)
    if doubtful is not None:
        classes[:, :, doubtful] += rest
    every = np.stack([sure.sum(axis=2), beyond], axis=-1)
    joint = np.stack([mine, beyond * (guess == doubtful)], axis=-1)
    draws = np.array([cells[0, 0].sum()]) if draws is None else np.asarray(draws)
    looks = Looks(
        draws=draws,
        spend=np.asarray(spend),
        made=np.full(images, steps if made is None else made),
        classes=classes,
        score=every,
        doubt=every,
        joint_doubt=joint,
    )
    guesses = np.stack([np.broadcast_to(few, images), n0 - np.broadcast_to(few, images)], axis=-1)
    invalid = rest[-1] - beyond[-1]
    return Counts(
        classes=np.stack([first, classes[-1], classes[-1]]),
        score=np.stack([guesses, every[-1], every[-1]]),
        doubt=np.stack([guesses, every[-1], every[-1]]),
        joint_score=np.stack([guesses * 0, joint[-1], joint[-1]]),
        joint_doubt=np.stack([guesses * 0, joint[-1], joint[-1]]),
        invalid=np.stack([np.zeros(images, int), invalid, invalid]),
        index=np.arange(images),
        label=np.zeros(images, int),
        guess=guess,
        settings=made_counts.settings(n0, int(draws[-1]), int(draws[-1])),
        looks={Round.BOUND: looks, Round.PREDICT: looks} if steps > 1 else {},
    )


def answers(counts, core, alpha=ALPHA):
    """(prediction, radius) of CERTIFY and the answer of PREDICT, at the one theta."""
    cores = np.full(len(counts.guess), core)
    outcomes = confident.certify(counts, cores, sigma=SIGMA, alpha=alpha, bins=BIN)
    natural = confident.predict(counts, cores, alpha=alpha, bins=BIN)
    return outcomes.prediction[:, 0], outcomes.radius[:, 0], natural[:, 0]


def simulated(name, rng, images, *, shares=(1.0,), spend=(1.0,)):
    """Counts of images of a world, and their false claims by CERTIFY and PREDICT."""
    p, core, forced = WORLDS[name]
    world = np.append(p, max(1 - sum(p), 0.0))
    draws = [int(share * N) for share in shares]
    steps = np.diff(draws, prepend=0)
    cells = np.cumsum(
        [rng.multinomial(step, world / world.sum(), size=images) for step in steps], 0
    )
    if forced is None:
        first = rng.multinomial(7, world / world.sum(), size=images)[:, :-1]
        guess = first.argmax(axis=1)
        certifies = 2 * first.max(axis=1) > 7
    else:
        guess, certifies = np.full(images, forced[1]), np.full(images, forced[0] == 1)
    counts = counted(cells, guess, n0=7, draws=draws, spend=spend, certifies=certifies)
    answer, radius, natural = answers(counts, core)
    return np.array([is_false(answer, radius, p, core).sum(), wrong(natural, p, core).sum()])


LOOKS = {"fixed": {}, "looks": dict(shares=(0.1, 0.4, 1.0), spend=(0.2, 0.3, 0.5))}


@pytest.mark.parametrize("how", LOOKS)
@pytest.mark.parametrize("world", WORLDS)
def test_false_claims_are_rarer_than_alpha(world, how):
    """CERTIFY and PREDICT on 10,000 images of each world and way, 320,000 in all: not significantly
    (1e-5) above alpha anywhere.
    """
    rng, false, images = np.random.default_rng(3), np.zeros(2, int), 10_000
    batch = 500 if "many" in world else 5_000
    for _ in range(images // batch):
        false += simulated(world, rng, batch, **LOOKS[how])
    assert (binom.sf(false - 1, images, ALPHA) > 1e-5).all(), f"{false} of {images}"


def enumerated(n):
    """(cells, 4) all counts of n draws in E_0, E_1, E_2 and none of them."""
    parts = itertools.product(range(n + 1), repeat=3)
    return np.array([(a, b, c, n - a - b - c) for a, b, c in parts if a + b + c <= n])


def chances(cells, p):
    """The exact probability of each count in a world."""
    return multinomial.pmf(cells, cells[0].sum(), np.append(p, 1 - sum(p)))


def false_rate(pmf, given, p, core):
    """The exact probability of a false claim by CERTIFY, and by PREDICT."""
    answer, radius, natural = given
    return pmf[is_false(answer, radius, p, core)].sum(), pmf[wrong(natural, p, core)].sum()


GRID = [0.0, 0.03, 0.1, 0.3, LESS, MORE, 0.55, 0.7, 0.9]
JOINTS = [p for p in itertools.product(GRID, repeat=3) if sum(p) <= 1]


GUESSES = list(itertools.product((False, True), (0, 1), (0, 2)))  # s_hat, c_hat, core


@pytest.mark.parametrize("doubtful", [None, 0, 2])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_no_world_makes_false_claims_likelier_than_alpha_by_enumeration(alpha, doubtful):
    """Every count of 16 draws in three classes, weighed by its exact probability, in every world of
    a grid, for every guess and core: the worst rate is at most alpha, and close to it. The other
    draws are invalid, or doubtful and of one of the classes.
    """
    cells = enumerated(16)
    worst, weights = np.zeros(2), [chances(cells, p) for p in JOINTS]
    for certifies, guess, core in GUESSES:
        s_hat, c_hat = np.full(len(cells), certifies), np.full(len(cells), guess)
        counts = counted(cells[None], c_hat, n0=7, certifies=s_hat, doubtful=doubtful)
        given = answers(counts, core, alpha)
        for pmf, p in zip(weights, JOINTS, strict=True):
            worst = np.maximum(worst, false_rate(pmf, given, p, core))
    assert (worst <= alpha + 1e-12).all() and (worst > 0.4 * alpha).all(), worst / alpha


@pytest.mark.parametrize("doubtful", [None, 2])
def test_no_stopping_makes_false_claims_likelier_than_alpha_by_enumeration(doubtful):
    """Looks at 8 and 16 draws, enumerated as above. After the first look someone who knows the
    world, the rule and the draws decides for each image whether it stops, so that as many claims as
    possible are false.
    """
    alpha, part = 0.1, enumerated(8)
    pairs = np.array(list(itertools.product(range(len(part)), repeat=2))).T
    looks = np.stack([part[pairs[0]], part[pairs[0]] + part[pairs[1]]])
    worst, weights = np.zeros(2), [chances(part, p) for p in JOINTS]
    for certifies, guess, core in GUESSES:
        s_hat, c_hat = (np.full(pairs.shape[1], it) for it in (certifies, guess))
        how = dict(n0=7, draws=[8, 16], spend=(0.4, 0.6), certifies=s_hat, doubtful=doubtful)
        stop, go_on = (
            answers(counted(looks, c_hat, made=made, **how), core, alpha) for made in (1, 2)
        )
        for pmf, p in zip(weights, JOINTS, strict=True):
            for which, claim in enumerate((_false_certificate, _false_prediction)):
                now, later = (
                    claim(given, p, core).reshape(len(part), -1) for given in (stop, go_on)
                )
                rate = pmf @ np.maximum(now[:, 0], later @ pmf)
                worst[which] = max(worst[which], rate)
    assert (worst <= alpha + 1e-12).all() and (worst > 0.4 * alpha).all(), worst / alpha


def _false_certificate(given, p, core):
    return is_false(given[0], given[1], p, core)


def _false_prediction(given, p, core):
    return wrong(given[2], p, core)


@pytest.mark.parametrize("core", [0, 2])
def test_classes_that_share_the_rest_do_not_stand_in_the_way(core):
    """Five other classes have nine tenths of the sure draws together, none has a fifth: the core
    answers, or the guess if it is the core's.
    """
    cells = np.array([[[30, 54, 54, 54, 54, 54, 0]]])
    for certifies in (False, True):
        counts = counted(cells, np.array([0]), n0=7, certifies=np.array([certifies]))
        answer, radius, natural = answers(counts, core, 0.001)
        assert natural == [core] and radius == [0]
        assert answer == [core if core == 0 or not certifies else ABSTAIN]


# --- Broken rules must be noticed by the same simulation.


def without_other_classes(evidence, guess, bins):
    """Forgets the draws of other classes: nothing speaks against the core but the guess."""
    mine = confident.at_most(evidence.looks.joint_doubt, bins)
    return mine, np.zeros_like(mine)


def without_classes(evidence, guess, bins):
    """Takes every confident draw for one of the guessed class, as the paper's selection does."""
    mine = confident.at_most(evidence.looks.doubt, bins)
    return mine, np.zeros_like(mine)


def of_one_other_class(evidence, guess, bins):
    """Watches one other class that was picked beforehand, not the most frequent one."""
    mine, others = true_events(evidence, guess, bins)
    watched = smoothing.guessed(evidence.looks.classes, (guess + 2) % 3)
    return mine, np.minimum(others, watched[..., None])


true_events = confident.events
BROKEN = {
    "another class has the majority, core agrees": [without_other_classes, of_one_other_class],
    "another class has the majority": [without_classes],
}


@pytest.mark.parametrize(
    "world, broken", [(world, broken) for world, rules in BROKEN.items() for broken in rules]
)
def test_a_broken_rule_is_noticed(monkeypatch, world, broken):
    monkeypatch.setattr(confident, "events", broken)
    false = simulated(world, np.random.default_rng(3), 5_000)
    assert (binom.sf(false - 1, 5_000, ALPHA) < 1e-9).any()


def test_both_sides_of_one_bound_at_the_full_level_would_be_noticed():
    """Without s_hat CERTIFY would claim a radius or the core from the same draws: twice alpha."""
    cells = enumerated(16)
    p, core, rates = (0.0, MORE, 0.0), 0, []
    for certifies in (True, False):
        guess, s_hat = np.full(len(cells), 1), np.full(len(cells), certifies)
        counts = counted(cells[None], guess, n0=7, certifies=s_hat)
        rates.append(false_rate(chances(cells, p), answers(counts, core, 0.2), p, core)[0])
    assert max(rates) <= 0.2 < sum(rates)


def test_what_is_recorded_belongs_together():
    counts = random_counts(np.random.default_rng(5), images=300, n=300)
    core = np.random.default_rng(6).integers(0, 3, 300)
    found = rule.certify(counts, core, alpha=0.01, thetas=THETAS)
    assert set(np.unique(found.route)) == set(Route)
    certify, core_route = found.route == Route.CERTIFY, found.route == Route.CORE
    assert (found.selected[certify] == Selected.CERTIFY).all()
    assert (found.selected[core_route] == Selected.CORE).all()
    neither = (found.route == Route.AGREE) | (found.route == Route.ABSTAIN)
    assert (found.selected[neither] == Selected.NEITHER).all()
    assert (found.selection_radius[neither] == 0).all()
    assert (found.radius[~certify] == 0).all() and (found.radius[certify] > 0).all()
    assert (found.p_select[core_route] >= 0.5).all()


def test_at_theta_zero_the_core_answers():
    """The doubt of a draw is above 0 unless its logits are infinitely far apart."""
    counts = random_counts(np.random.default_rng(0), images=20, n=100, bins=(1, 500, 1000))
    core = np.full(20, 2)
    assert (rule.predict(counts, core, alpha=0.001, thetas=[0.0]) == core[:, None]).all()
    found = rule.certify(counts, core, alpha=0.001, thetas=[0.0])
    assert (found.prediction == core[:, None]).all() and (found.route == Route.CORE).all()


def test_the_distance_of_the_noise_is_part_of_the_promise():
    """Bounds are lowered by it, and tests spend draws * tv of alpha."""
    counts = random_counts(np.random.default_rng(2), images=40, n=400, n_predict=400)
    distant = dataclasses.replace(counts, settings=dataclasses.replace(counts.settings, tv=1e-3))
    thetas, core = [0.5, 1.0], np.zeros(40, int)
    near, far = (rule.certify(c, core, alpha=0.01, thetas=thetas) for c in (counts, distant))
    lowered = np.maximum(near.p_class - 1e-3, 0)
    np.testing.assert_allclose(far.p_class, lowered, atol=1e-12)
    assert (far.radius <= near.radius).all() and (far.radius < near.radius).any()
    for name in rule.RULES:
        given = rule.predict(distant, core, alpha=0.01, thetas=[1.0], rule=name)
        assert (given == ABSTAIN).all(), "400 * 0.001 is more than alpha"
    close = dataclasses.replace(counts, settings=dataclasses.replace(counts.settings, tv=1e-9))
    for name in rule.RULES:
        given = rule.predict(close, core, alpha=0.01, thetas=thetas, rule=name)
        assert (given != ABSTAIN).any()


def test_many_images_are_answered_in_parts(monkeypatch):
    counts = random_counts(np.random.default_rng(4), images=30, n=60, looks=True)
    core = np.zeros(30, int)
    for name in rule.RULES:
        arguments = dict(alpha=0.05, thetas=THETAS, rule=name)
        whole, natural = (
            rule.certify(counts, core, **arguments),
            rule.predict(counts, core, **arguments),
        )
        with monkeypatch.context() as patched:
            patched.setattr(rule, "_CELLS", 7 * len(THETAS))
            parts = rule.certify(counts, core, **arguments)
            np.testing.assert_array_equal(rule.predict(counts, core, **arguments), natural)
        for each in dataclasses.fields(whole):
            np.testing.assert_array_equal(getattr(parts, each.name), getattr(whole, each.name))


def test_without_guesses_it_is_refused():
    counts = dataclasses.replace(
        random_counts(np.random.default_rng(0)), settings=made_counts.settings(0, 40, 30)
    )
    for ask in (rule.certify, rule.predict):
        with pytest.raises(InputError, match="n0=0"):
            ask(counts, np.zeros(6, int), alpha=0.01, thetas=[0.5])
    assert (rule.predict(counts, np.zeros(6, int), alpha=0.01, thetas=[1.0]) != -2).all()


def test_unknown_rules_are_refused():
    counts = random_counts(np.random.default_rng(0))
    with pytest.raises(InputError, match="rule='bold'"):
        rule.certify(counts, np.zeros(6, int), alpha=0.01, thetas=[0.5], rule="bold")


def test_the_confident_rule_is_the_default_where_nothing_needs_the_papers():
    assert rule.rule_of(None, selects=False) == "confident"
    assert rule.rule_of("paper", selects=False) == "paper"
    assert rule.rule_of(None, selects=True) == rule.rule_of("paper", selects=True) == "paper"
    with pytest.raises(InputError, match="no use for a selection network"):
        rule.rule_of("confident", selects=True)
    with pytest.raises(InputError, match="rule='guess': expected one of confident, paper"):
        rule.rule_of("guess", selects=False)
