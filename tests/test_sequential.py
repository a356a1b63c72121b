"""Early stopping keeps its promise: bounds over looks, and the test that may be read at any
time."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc, betaln
from scipy.stats import binom

from aces import rule
from aces.errors import InputError
from aces.rule import paper, sequential, smoothing
from aces.rule.counts import Counts, Looks, Round
from aces.rule.events import bins_of
from aces.rule.smoothing import ABSTAIN
from aces.rule.statistics import lower_bound
from made_counts import random_counts, with_looks

HISTOGRAMS = dict.fromkeys(("score", "doubt", "joint_doubt"), np.zeros(0))  # where none is read
ALPHA = 0.001


def first_certified(p0, p, *, alpha, horizon, runs, seed, chunk=1):
    """(runs,) the draw at which the test certifies, read every `chunk` draws; horizon + 1 if it
    never does.
    """
    successes = np.cumsum(np.random.default_rng(seed).random((runs, horizon)) < p, axis=1)[
        :, chunk - 1 :: chunk
    ]
    t = np.arange(chunk, horizon + 1, chunk)
    crossed = sequential.log_evidence(successes, t, p0=p0) >= -np.log(alpha)
    return np.where(crossed.any(axis=1), t[crossed.argmax(axis=1)], horizon + 1)


@pytest.mark.parametrize(
    "p0, p, published",
    [(0.5, 0.999, 12), (0.5, 0.9, 21), (0.5, 0.7, 101), (0.841, 0.95, 133), (0.977, 0.999, 400)],
)
def test_mean_draws(p0, p, published):
    """Mean draws at alpha = 0.001, from a simulation apart from this one."""
    draws = first_certified(p0, p, alpha=ALPHA, horizon=3000, runs=1500, seed=1)
    assert draws.mean() == pytest.approx(published, rel=0.06)


@pytest.mark.parametrize("p0", [0.5, 0.841, 0.977])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("chunk", [1, 50])
def test_false_certificates_are_rare_however_often_one_looks(p0, alpha, chunk):
    """P[certified within 2,000 draws] at the worst case p = p0, exactly, by following the
    distribution of k.
    """
    undecided, certified = np.array([1.0]), 0.0
    for t in range(1, 2001):
        undecided = np.append(undecided, 0) * (1 - p0) + np.insert(undecided, 0, 0) * p0
        if t % chunk == 0:
            crossed = sequential.log_evidence(np.arange(t + 1), t, p0=p0) >= -np.log(alpha)
            certified += undecided[crossed].sum()
            undecided = np.where(crossed, 0, undecided)
    assert alpha / 10 < certified <= alpha


def test_evidence_is_the_mixture_likelihood_ratio():
    """By numerical integration of the mixture's definition."""
    for k, t, p0 in [(0, 0, 0.5), (7, 10, 0.5), (30, 40, 0.6), (2, 12, 0.4), (90, 91, 0.9)]:
        density = lambda p: p ** (k - 0.5) * (1 - p) ** (t - k - 0.5) / np.exp(betaln(0.5, 0.5))
        weight = quad(lambda p: p**-0.5 * (1 - p) ** -0.5, p0, 1)[0] / np.exp(betaln(0.5, 0.5))
        expected = quad(density, p0, 1)[0] / weight / (p0**k * (1 - p0) ** (t - k))
        assert sequential.log_evidence(k, t, p0=p0) == pytest.approx(
            np.log(expected), rel=1e-5, abs=1e-6
        )


def test_evidence_is_a_martingale_at_p0():
    """E[W_(t+1) | k] = W_t at p = p0, so E[W_t] = 1 for every t."""
    for p0 in (0.5, 0.9):
        for t in (1, 20, 300):
            k = np.arange(t + 1)
            assert (
                binom.pmf(k, t, p0) * np.exp(sequential.log_evidence(k, t, p0=p0))
            ).sum() == pytest.approx(1, rel=1e-9)


def test_evidence_stays_finite_for_many_draws():
    t = 10**8
    k = np.array([0, t // 10, t // 2, int(0.9 * t), t])
    found = sequential.log_evidence(k, t, p0=0.5)
    assert np.all(np.isfinite(found)) and np.all(np.diff(found) > 0) and found[-1] > 1e7


def test_anytime_test_decides_and_remembers():
    test = sequential.AnytimeTest(p0=0.5, alpha=ALPHA)
    assert not test.update([5, 5, 0], [10, 10, 10])[:2].any()
    test.update([100, 50, 5], [105, 100, 100])
    assert list(test.certified) == [True, False, False] and list(test.futile) == [
        False,
        False,
        True,
    ]
    test.update([100, 50, 900], [1000, 100, 1000])
    assert list(test.certified) == [True, False, False], "a decision stands, whatever comes later"


@pytest.mark.parametrize(
    "wrong", [dict(p0=1.0, alpha=0.1), dict(p0=0.5, alpha=0), dict(p0=0.5, alpha=0.1, futility=1)]
)
def test_anytime_test_refuses_bad_settings(wrong):
    with pytest.raises(InputError):
        sequential.AnytimeTest(**wrong)


def test_group_bound_is_the_best_bound_of_the_looks_made():
    looks = Looks(
        draws=np.array([10, 100]),
        spend=np.array([0.1, 0.9]),
        made=np.array([1, 2, 2]),
        classes=np.array([[10, 10, 9], [10, 50, 99]])[..., None],
        **HISTOGRAMS,
    )
    first, second = (
        lower_bound([10, 10, 9], 10, alpha=0.1 * ALPHA),
        lower_bound([10, 50, 99], 100, alpha=0.9 * ALPHA),
    )
    expected = [first[0], max(first[1], second[1]), second[2]]
    assert np.array_equal(
        sequential.Evidence(looks).lower_bound(looks.classes[..., 0], alpha=ALPHA), expected
    )


def test_group_bounds_hold_under_the_worst_stopping():
    """Over 200,000 runs that stop at the look most favourable to a false claim: the bound fails
    with rate <= alpha.
    """
    runs, p, alpha = 200_000, 0.6, 0.02
    rng, draws = np.random.default_rng(0), np.array([50, 200, 800])
    k = np.cumsum(rng.binomial(np.diff(draws, prepend=0)[:, None], p, size=(3, runs)), axis=0)
    for made in (np.full(runs, 3), rng.integers(1, 4, runs)):
        looks = Looks(
            draws=draws,
            spend=np.array([0.2, 0.3, 0.5]),
            made=made,
            classes=k[..., None],
            **HISTOGRAMS,
        )
        false = (sequential.Evidence(looks).lower_bound(k, alpha=alpha) > p).sum()
        assert 0 < false and binom.sf(false - 1, runs, alpha) > 1e-4


@pytest.mark.parametrize("p_one, p_class", [(0.5, 1.0), (1.0, 0.5), (0.52, 0.5)])
@pytest.mark.parametrize("multiplicity", paper.MULTIPLICITIES)
def test_predict_over_looks_is_false_as_rarely_as_alpha(p_one, p_class, multiplicity):
    """100,000 images at the worst case, each stopping at the first look that answers: the core
    (class 2) where the certification network (class 0 against 1) is selected, or the class that has
    no majority.
    """
    images, batches, alpha, theta = 2000, 50, 0.05, 0.5
    draws, truth = (
        np.array([40, 120, 400]),
        0 if p_one > 0.5 else 2,
    )  # in a tie of the classes each is false for the other
    false = answered = 0
    for batch in range(batches):
        rng = np.random.default_rng(batch)
        steps = np.diff(draws, prepend=0)[:, None]
        ones, first = (
            np.cumsum(rng.binomial(steps, p, size=(3, images)), axis=0) for p in (p_one, p_class)
        )
        entropy = np.zeros((3, images, 1001), np.int32)
        entropy[..., 500], entropy[..., 501] = ones, draws[:, None] - ones
        classes = np.stack([first, draws[:, None] - first, np.zeros_like(first)], axis=2)
        looks = Looks(
            draws=draws,
            spend=np.array([0.2, 0.3, 0.5]),
            made=np.full(images, 3),
            classes=classes,
            **HISTOGRAMS | {"score": entropy},
        )
        answers = paper.predict_from(
            sequential.Evidence(looks),
            np.full(images, 2),
            alpha=alpha,
            bins=bins_of([theta]),
            multiplicity=multiplicity,
        )[:, 0]
        answered += (answers != ABSTAIN).sum()
        false += ((answers != ABSTAIN) & (answers != truth)).sum()
    assert answered > 0 and binom.sf(false - 1, images * batches, alpha) > 1e-5


def test_the_first_look_that_answers_is_the_one():
    looks = Looks(
        draws=np.array([10, 20]),
        spend=np.array([0.5, 0.5]),
        made=np.array([1, 2, 2, 1]),
        classes=np.zeros((2, 4, 2), np.int64),
        **HISTOGRAMS | {"score": np.zeros((2, 4, 1001), np.int64)},
    )
    answers = np.array([[3, 3, -1, -1], [4, 4, 4, 4]])
    assert sequential.Evidence(looks).first_answer(answers, abstain=ABSTAIN).tolist() == [
        3,
        3,
        4,
        -1,
    ]


def test_adaptive_counts_at_theta_one_equal_the_certification_network():
    rng = np.random.default_rng(3)
    counts = with_looks(random_counts(rng, images=200, n=400), rng)
    outcomes = rule.certify(counts, rng.integers(0, 3, 200), alpha=0.01, thetas=[1.0], rule="paper")
    alone = smoothing.certify(counts, sigma=0.5, alpha=0.01)
    assert (alone.radius > 0).sum() > 20
    assert np.array_equal(outcomes.prediction[:, 0], alone.prediction)
    assert np.array_equal(outcomes.radius[:, 0], alone.radius)


def test_counts_that_stopped_without_looks_are_refused():
    counts = random_counts(np.random.default_rng(0), images=3)
    classes = counts.classes.copy()
    classes[1, 0, 0] += 1
    with pytest.raises(InputError, match="looks"):
        sequential.looks_of(Counts(**{**vars(counts), "classes": classes}), Round.BOUND)


def test_looks_that_spend_more_than_alpha_are_refused():
    rng = np.random.default_rng(0)
    counts = with_looks(random_counts(rng, images=3), rng, spend=(0.5, 0.5, 0.5))
    with pytest.raises(InputError, match="spend 1.5 of alpha"):
        sequential.looks_of(counts, Round.BOUND)


def test_impossible_totals_are_refused():
    with pytest.raises(InputError, match="k successes"):
        sequential.AnytimeTest(p0=0.5, alpha=0.1).update(3, 2)


def test_upper_bounds_mirror_lower_bounds():
    rng = np.random.default_rng(1)
    counts = with_looks(random_counts(rng, images=20, n=200), rng)
    looks, k = counts.looks[Round.BOUND], counts.looks[Round.BOUND].classes[..., 0]
    evidence = sequential.Evidence(looks, tv=1e-4)
    misses = np.maximum(looks.draws[:, None] - k, 0)
    expected = 1 - evidence.lower_bound(misses, alpha=0.01)
    found = evidence.upper_bound(k, alpha=0.01)
    assert (found >= expected).all() and np.allclose(found, expected, rtol=0, atol=2**-52)
    assert (evidence.upper_bound(k, alpha=0.01) > evidence.lower_bound(k, alpha=0.01)).all()


def exact_evidence(k: int, t: int, p0: float):
    """log W by mpmath: the incomplete beta functions by their series."""
    half = mpmath.mpf(1) / 2

    def series(a, b, x):
        """In whole multiples of 2^-200: many times as fast as by numbers of mpmath."""
        one, share = 1 << 200, int(mpmath.ldexp(x, 200))
        above, below = int(2 * (a + b)), int(2 * (a + 1))  # a and b are halves of whole numbers
        term = total = one
        while term > total >> 100:
            term = term * above * share // (below * one)
            total, above, below = total + term, above + 2, below + 2
        return mpmath.exp(a * mpmath.log(x) + b * mpmath.log1p(-x)) / a * total / one

    def incomplete(a, b, x):
        if x <= (a + 1) / (a + b + 2):
            return series(a, b, x)
        return mpmath.beta(a, b) - series(b, a, 1 - x)

    p0, misses = mpmath.mpf(p0), t - k
    mixture = incomplete(misses + half, k + half, 1 - p0) / incomplete(half, half, 1 - p0)
    return mpmath.log(mixture) - k * mpmath.log(p0) - misses * mpmath.log1p(-p0)


def test_no_evidence_exceeds_its_exact_value():
    """From 10 to 100,000 draws, near and above p0, which may be next to 1/2 or next to 1."""
    with mpmath.workdps(40):
        for t in (10, 320, 10_000, 100_000):
            for p0 in (0.5, 0.5 + 2e-14, 0.841, 0.9999):
                for z in (0.5, 3, 5, 50):
                    k = min(t, round(p0 * t + z * np.sqrt(t * p0 * (1 - p0))))
                    exact = exact_evidence(k, t, p0)
                    found = mpmath.mpf(float(sequential.log_evidence(k, t, p0=p0)))
                    assert exact - mpmath.mpf(10) ** -7 < found <= exact, (k, t, p0)


def test_evidence_far_against_a_claim_is_not_raised_where_numbers_get_tiny():
    """The mixture's share underflows here; W is below 1 wherever fewer than p0 * t succeed."""
    t, k = 4000, np.arange(0, 1500)
    assert (sequential.log_evidence(k, t, p0=0.5) < 0).all()
    tiny = betainc(t - k + 0.5, k + 0.5, 0.5)
    near = (tiny > 0) & (tiny < np.finfo(float).tiny)
    assert near.any()
    with mpmath.workdps(40):
        for each in k[near]:
            exact = exact_evidence(int(each), t, 0.5)
            assert float(sequential.log_evidence(each, t, p0=0.5)) <= exact


def test_shares_that_add_up_to_more_than_one_spend_no_more_than_alpha():
    looks = Looks(
        draws=np.array([10, 100]),
        spend=np.array([0.5, 0.5 + 9e-10]),
        made=np.array([2]),
        classes=np.array([[10], [100]])[..., None],
        **HISTOGRAMS,
    )
    evidence = sequential.Evidence(looks)
    assert evidence.shares.sum() <= 1 and evidence.levels(0.01).sum() <= 0.01
