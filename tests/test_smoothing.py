"""Plain randomized smoothing: Cohen's CERTIFY and PREDICT on the counts."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

import naive
from aces.errors import InputError
from aces.rule import smoothing
from aces.rule.smoothing import ABSTAIN
from made_counts import from_joint, random_counts
from made_counts import settings as made
from worlds import smoothing_limit


@settings(max_examples=80)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.05]))
def test_agrees_with_the_algorithms_one_image_at_a_time(seed, alpha):
    """Cohen et al. (2019), CERTIFY and PREDICT; an invalid draw is one for the runner-up."""
    counts = random_counts(np.random.default_rng(seed), images=5, n=50, n_predict=50)
    smoothed, natural = (
        smoothing.certify(counts, sigma=0.5, alpha=alpha),
        smoothing.predict(counts, alpha=alpha),
    )
    for i in range(5):
        prediction, radius, answer = naive.smoothed_one(counts, i, sigma=0.5, alpha=alpha)
        assert (smoothed.prediction[i], natural[i]) == (prediction, answer)
        assert smoothed.radius[i] == pytest.approx(radius, rel=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.05]), st.booleans())
def test_one_bound_is_that_of_cohen(seed, alpha, looks):
    """Cohen et al. (2019): sigma * ppf of the one-sided Clopper-Pearson bound."""
    counts = random_counts(np.random.default_rng(seed), images=5, n=50, looks=looks)
    found = smoothing.bound_class(counts, alpha=alpha, sigma=0.5, two=np.zeros(5, bool))
    for i in range(5):
        expected = naive.class_radius(counts, i, sigma=0.5, alpha=alpha)
        assert found.radius[i] == pytest.approx(expected, rel=1e-9)


# (p_A, p_B) -> radius / sigma by one bound and by two: n = 2,000, alpha 0.001, rounded.
GAINS = {
    (0.45, 0.2): (0.0, 0.26),
    (0.6, 0.2): (0.165, 0.448),
    (0.9, 0.05): (1.163, 1.323),
    (0.99, 0.005): (2.076, 2.150),
}


@pytest.mark.parametrize("p_class, p_rival", GAINS)
def test_the_runner_up_gives_more_where_others_share_the_rest(p_class, p_rival):
    n, one, two = 2000, *GAINS[p_class, p_rival]
    rest = n - round(p_class * n) - round(p_rival * n)
    counts = shares([round(p_class * n), round(p_rival * n), rest // 2, rest - rest // 2], n0=1000)
    for mask, expected in ((False, one), (True, two)):
        found = smoothing.bound_class(counts, alpha=0.001, sigma=1.0, two=np.array([mask]))
        assert found.radius.item() == pytest.approx(expected, abs=2e-3)
    assert smoothing.by_runner_up(counts, alpha=0.001).all()


def test_near_the_ceiling_one_bound_is_chosen():
    counts = shares([2000, 0, 0], n0=100)
    assert not smoothing.by_runner_up(counts, alpha=0.001).any()
    ceiling = smoothing.ceiling(counts, alpha=0.001)
    assert smoothing.certify(counts, alpha=0.001).radius.item() == ceiling


def test_without_guesses_one_bound_is_chosen():
    counts = shares([2000, 0, 0], n0=100)
    counts = dataclasses.replace(counts, settings=made(0, 2000, 2000))
    assert not smoothing.by_runner_up(counts, alpha=0.001).any()


def shares(classes, *, n0):
    """Counts of one image; round GUESS has the same shares as round BOUND, rounded down."""
    classes = np.array(classes)
    counts = random_counts(np.random.default_rng(0), images=1, classes=len(classes))
    first = classes * n0 // classes.sum()
    first[0] += n0 - first.sum()
    return dataclasses.replace(
        counts,
        classes=np.stack([first, classes, classes])[:, None],
        invalid=np.zeros((3, 1), int),
        guess=np.zeros(1, int),
        settings=made(n0, int(classes.sum()), int(classes.sum())),
    )


@pytest.mark.parametrize("guess", [0, 1, 2])
def test_two_bounds_are_false_as_rarely_as_alpha_by_enumeration(guess):
    """Every count of 40 draws of three classes, and of two classes and invalid draws, weighed by
    its exact probability, in worlds over the whole simplex: the radius exceeds the true one with
    probability <= alpha.
    """
    n, alpha = 40, 0.05
    cells = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    counts = dataclasses.replace(
        random_counts(np.random.default_rng(0), images=1),
        classes=np.stack([cells] * 3),
        invalid=np.zeros((3, len(cells)), int),
        guess=np.full(len(cells), guess),
        settings=made(5, n, n),
    )
    everyone = np.ones(len(cells), bool)
    radius = smoothing.bound_class(counts, alpha=alpha, sigma=0.5, two=everyone).radius
    worst = 0.0
    steps = np.arange(0, 1.0001, 0.02)
    for p in steps:
        for q in steps[steps <= 1 - p + 1e-9]:
            world = np.array([p, q, max(1 - p - q, 0.0)])
            false = radius > smoothing_limit(world)[guess] + 1e-12
            worst = max(worst, multinomial.pmf(cells, n, world / world.sum())[false].sum())
    assert 0.001 < worst <= alpha


@pytest.mark.parametrize(
    "classes", [[0.5 - 1e-6, 0.5 + 1e-6], [0.33, 0.335, 0.335], [0.2] * 4 + [0.2 - 1e-6, 1e-6]]
)
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_false_answers_are_rarer_than_alpha(classes, alpha):
    images, joint = 5_000, np.array([np.zeros(len(classes)), classes])
    counts = from_joint(
        joint / joint.sum(), images=images, n0=5, n=200, n_predict=200, rng=np.random.default_rng(0)
    )
    best = int(np.argmax(classes))
    natural = smoothing.predict(counts, alpha=alpha)
    false = ((natural != ABSTAIN) & (natural != best)).sum()
    assert binom.sf(false - 1, images, alpha) > 1e-5
    smoothed = smoothing.certify(counts, sigma=0.5, alpha=alpha)
    limit = smoothing_limit(np.array(classes) / np.sum(classes))[counts.guess]
    false = (smoothed.radius > limit).sum()
    assert binom.sf(false - 1, images, alpha) > 1e-5


def test_one_class_and_no_valid_draw():
    counts = from_joint(
        [[0.0], [1.0]], images=4, n0=5, n=100, n_predict=100, rng=np.random.default_rng(0)
    )
    assert np.all(smoothing.predict(counts, alpha=0.001) == 0)
    counts = from_joint(
        [[0.0], [1.0]],
        images=4,
        n0=5,
        n=100,
        n_predict=100,
        rng=np.random.default_rng(0),
        p_invalid=1.0,
    )
    assert np.all(smoothing.predict(counts, alpha=0.001) == ABSTAIN)
    assert np.all(smoothing.certify(counts, sigma=0.5, alpha=0.001).prediction == ABSTAIN)


def test_a_sigma_other_than_that_of_the_draws_is_refused():
    with pytest.raises(InputError, match="made with sigma=0.5"):
        smoothing.certify(random_counts(np.random.default_rng(0)), sigma=0.25, alpha=0.001)


def test_alpha_is_checked():
    with pytest.raises(InputError, match="alpha"):
        smoothing.predict(random_counts(np.random.default_rng(0)), alpha=0)
