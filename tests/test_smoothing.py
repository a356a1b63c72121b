"""Plain randomized smoothing: Cohen's CERTIFY and PREDICT on the counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest, norm

from aces.errors import InputError
from aces.rule import smoothing
from aces.rule.smoothing import ABSTAIN
from made_counts import from_joint, random_counts


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.05]))
def test_agrees_with_the_algorithms_one_image_at_a_time(seed, alpha):
    """Cohen et al. (2019), CERTIFY and PREDICT; an invalid draw is one for the runner-up."""
    counts = random_counts(np.random.default_rng(seed), images=5, n=50, n_predict=50)
    smoothed, natural = (
        smoothing.certify(counts, sigma=0.5, alpha=alpha),
        smoothing.predict(counts, alpha=alpha),
    )
    for i in range(5):
        k = counts.classes[1, i, counts.guess[i]]
        p = beta.ppf(alpha, k, 50 - k + 1) if k else 0.0
        assert smoothed.prediction[i] == (counts.guess[i] if p > 0.5 else ABSTAIN)
        assert smoothed.radius[i] == pytest.approx(max(0.5 * norm.ppf(p), 0), rel=1e-9)
        order = np.argsort(-counts.classes[2, i], kind="stable")
        n_a, n_b = (
            counts.classes[2, i, order[0]],
            counts.classes[2, i, order[1]] + counts.invalid[2, i],
        )
        sure = n_a > n_b and binomtest(int(n_a), int(n_a + n_b)).pvalue <= alpha
        assert natural[i] == (order[0] if sure else ABSTAIN)


@pytest.mark.parametrize(
    "classes", [[0.5 - 1e-6, 0.5 + 1e-6], [0.33, 0.335, 0.335], [0.2] * 4 + [0.2 - 1e-6, 1e-6]]
)
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_false_answers_are_rarer_than_alpha(classes, alpha):
    images, joint = 20_000, np.array([np.zeros(len(classes)), classes])
    counts = from_joint(
        joint / joint.sum(), images=images, n0=5, n=200, n_predict=200, rng=np.random.default_rng(0)
    )
    best = int(np.argmax(classes))
    natural = smoothing.predict(counts, alpha=alpha)
    false = ((natural != ABSTAIN) & (natural != best)).sum()
    assert binom.sf(false - 1, images, alpha) > 1e-5
    smoothed = smoothing.certify(counts, sigma=0.5, alpha=alpha)
    false = (smoothed.radius > np.maximum(0.5 * norm.ppf(np.array(classes)[counts.guess]), 0)).sum()
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
