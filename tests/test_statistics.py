"""Bounds, tests and radii against scipy, published values, and simulation."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from aces.errors import InputError
from aces.rule import statistics


def test_golden_radii():
    """sigma 0.25, k = n = 100,000: the largest radius in the authors' logs is 0.947, from the bound
    at 0.0005.
    """
    at_half = statistics.radius(statistics.lower_bound(100_000, 100_000, alpha=0.0005), sigma=0.25)
    at_full = statistics.radius(statistics.lower_bound(100_000, 100_000, alpha=0.001), sigma=0.25)
    assert f"{at_half:.5f}" == "0.94694" and f"{at_half:.3}" == "0.947"
    assert f"{at_full:.5f}" == "0.95286"


def test_golden_ceilings():
    """n = 100,000, in units of sigma: ppf(alpha ** (1 / n)), computed apart, at alpha / 2 and alpha
    = 0.001.
    """
    assert f"{statistics.max_radius(100_000, sigma=1.0, alpha=0.0005):.3f}" == "3.788"
    assert f"{statistics.max_radius(100_000, sigma=1.0, alpha=0.001):.3f}" == "3.811"  # 3.81143


@given(
    st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.floats(1e-6, 0.4),
)
def test_lower_bound_is_clopper_pearson(draw, alpha):
    k, n = draw
    expected = 0.0 if k == 0 else beta.ppf(alpha, k, n - k + 1)
    interval = binomtest(k, n).proportion_ci(confidence_level=1 - 2 * alpha, method="exact")
    assert statistics.lower_bound(k, n, alpha=alpha) == pytest.approx(expected, rel=1e-12)
    assert statistics.lower_bound(k, n, alpha=alpha) == pytest.approx(
        interval.low, rel=1e-8, abs=1e-12
    )
    assert statistics.upper_bound(k, n, alpha=alpha) == pytest.approx(
        interval.high, rel=1e-8, abs=1e-12
    )


def test_many_bounds_equal_single_bounds():
    """The table over equal k gives the very same numbers."""
    k = np.random.default_rng(0).integers(0, 301, size=(40, 50))
    single = [statistics.lower_bound(int(value), 300, alpha=0.001) for value in k.ravel()]
    assert np.array_equal(statistics.lower_bound(k, 300, alpha=0.001).ravel(), single)


def test_bounds_hold_at_their_level():
    """Exactly, by summing over all k: P[bound > p] <= alpha for every p, and nearly alpha
    somewhere.
    """
    n, alpha = 60, 0.01
    k = np.arange(n + 1)
    bound = statistics.lower_bound(k, n, alpha=alpha)
    from scipy.stats import binom

    probabilities = np.linspace(0.01, 0.99, 981)
    failure = np.array([binom.pmf(k, n, p)[bound > p].sum() for p in probabilities])
    assert failure.max() <= alpha
    assert failure.max() > 0.95 * alpha


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_two_sided_p_value_is_scipys(draw):
    k, n = draw
    assert statistics.two_sided_p_value(k, n) == pytest.approx(
        binomtest(k, n, 0.5).pvalue, rel=1e-9
    )


def test_a_clear_minority_is_no_majority():
    assert statistics.two_sided_p_value(5, 1000) < 1e-9
    assert not statistics.is_majority(5, 1000, alpha=0.001)
    assert statistics.is_majority(995, 1000, alpha=0.001)
    assert not statistics.is_majority(0, 0, alpha=0.001)


def test_radius_is_zero_up_to_one_half_and_below_the_exact_value():
    p = np.array([0.0, 0.3, 0.5, np.nextafter(0.5, 1), 0.9, 0.999999])
    found = statistics.radius(p, sigma=0.5)
    assert list(found[:3]) == [0, 0, 0] and np.all(found[3:] > 0)
    from scipy.stats import norm

    assert np.all(found[3:] < 0.5 * norm.ppf(p[3:]))
    assert found[4:] == pytest.approx(0.5 * norm.ppf(p[4:]), rel=1e-14)


@given(st.floats(0, 10), st.integers(0, 6))
def test_displayed_radii_never_exceed_the_radius(value, digits):
    shown = statistics.floor_digits(value, digits)
    assert float(shown) <= value < float(shown) + 10.0**-digits * (1 + 1e-6) + 1e-12


def test_floor_digits_shows_the_digits_asked_for():
    assert statistics.floor_digits(0.9528999, 3) == "0.952"
    assert statistics.floor_digits(0.29, 2) == "0.29"
    assert statistics.floor_digits(0, 3) == "0.000"


@pytest.mark.parametrize("alpha", [0, 1, 2, -0.1, float("nan")])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(InputError, match="alpha"):
        statistics.lower_bound(1, 2, alpha=alpha)


def test_impossible_counts_are_refused():
    with pytest.raises(InputError, match="0 <= k <= n"):
        statistics.lower_bound(3, 2, alpha=0.1)
    with pytest.raises(InputError, match="sigma"):
        statistics.radius(0.9, sigma=0)


# --- Nothing is ever rounded up, against 40 digits.


def exact_tail(k, n, p):
    """Pr[at least k of n] at probability p, term by term (p < k / n)."""
    log = mpmath.loggamma
    term = mpmath.exp(
        log(n + 1) - log(k + 1) - log(n - k + 1) + k * mpmath.log(p) + (n - k) * mpmath.log1p(-p)
    )
    total, odds = term, p / (1 - p)
    for j in range(k, n):
        term *= (n - j) * odds / (j + 1)
        total += term
        if term < total * mpmath.mpf(10) ** -35:
            break
    return total


def test_no_radius_exceeds_its_exact_value():
    """336 bounds, the radii of those above 1/2, the tail at the bound, and at the probability that
    the radius stands for, is at most alpha. Then both are at most the exact ones.
    """
    checked = 0
    with mpmath.workdps(40):
        for n, alpha, share in itertools.product(
            [20, 100, 1000, 2000, 10_000, 100_000],
            [1e-12, 2e-8, 1e-4, 5e-4, 1e-3, 0.01, 0.05, 0.3],
            [0.1, 0.62, 0.8, 0.9, 0.99, 0.999, 1.0],
        ):
            k = round(share * n)
            bound = statistics.lower_bound(k, n, alpha=alpha)
            assert exact_tail(k, n, mpmath.mpf(float(bound))) <= mpmath.mpf(alpha)
            if bound > 0.5:
                for sigma in (0.25, 1.0):
                    scaled = mpmath.mpf(float(statistics.radius(bound, sigma=sigma))) / mpmath.mpf(
                        sigma
                    )
                    assert exact_tail(k, n, mpmath.ncdf(scaled)) <= mpmath.mpf(alpha)
                checked += 1
    assert checked >= 200


@pytest.mark.parametrize(
    "k, n, alpha",
    [
        (1_467_949_172, 1_718_443_580, 1.27e-9),  # above 1/2, where the inverse errs most
        (100_000, 1_000_000, 1e-6),
        (24, 15_118_632, 0.655),
        (2069, 2103, 3.22e-270),
        (2, 218, 8.85e-237),  # the inverse gives NaN
        (99_997, 100_000, 5e-324),
    ],
)
def test_no_bound_exceeds_its_exact_value_at_the_extremes(k, n, alpha):
    """Where the inverse of the beta function was found to err most."""
    bound = float(statistics.lower_bound(k, n, alpha=alpha))
    with mpmath.workdps(40):
        assert bound == 0 or exact_tail(k, n, mpmath.mpf(bound)) <= mpmath.mpf(alpha)
    assert (bound == 0) == (alpha < 1e-100)


@pytest.mark.parametrize("sigma", [0.12, 0.25, 1.0])
def test_no_radius_between_two_bounds_exceeds_its_exact_value(sigma):
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for _ in range(200):
            high, low = np.sort(rng.beta(0.3, 0.3, 2)).tolist()
            if not 0 < high < low < 1:
                continue
            gap = mpmath.erfinv(2 * mpmath.mpf(low) - 1) - mpmath.erfinv(2 * mpmath.mpf(high) - 1)
            exact = mpmath.mpf(sigma) / mpmath.sqrt(2) * gap
            found = mpmath.mpf(float(statistics.radius_between(low, high, sigma=sigma)))
            assert exact * (1 - mpmath.mpf(10) ** -9) - mpmath.mpf(10) ** -14 < found <= exact
    assert (
        statistics.radius_between(0.4, 0.4, sigma=sigma)
        == 0
        == statistics.radius_between(0.3, 0.4, sigma=sigma)
    )


def test_no_p_value_is_below_its_exact_value():
    """Two-sided tests from 5 to a million draws: twice the exact tail of a fair coin."""
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        half = mpmath.mpf(1) / 2
        for n in (5, 12, 100, 1000, 10_000, 100_000, 1_000_000):
            for z in rng.uniform(0.5, 7, 6):
                k = min(n, int(n / 2 + z * np.sqrt(n) / 2) + 1)
                exact = 2 * exact_tail(k, n, half)
                found = mpmath.mpf(float(statistics.two_sided_p_value(k, n)))
                assert min(exact, 1) <= found <= exact * (1 + mpmath.mpf(10) ** -9)


def test_what_is_left_of_a_bound_is_a_bound_in_the_other_direction():
    """1 - p for small p, where 1 - p in double precision is rounded either way."""
    rng = np.random.default_rng(0)
    p = np.concatenate([10 ** rng.uniform(-17, 0, 2000), [0.0, 0.5, 1.0]])
    up, down = statistics.complement(p, up=True), statistics.complement(p, up=False)
    for value, high, low in zip(p.tolist(), up.tolist(), down.tolist(), strict=True):
        exact = 1 - Fraction(value)
        assert 0 <= low <= exact <= high <= 1
        assert high - low < 2**-51
    plain = 1.0 - p
    assert any(Fraction(one) < 1 - Fraction(other) for one, other in zip(plain, p, strict=True))


def test_no_upper_bound_is_below_its_exact_value():
    """Few misses among many draws, where 1 - bound has few digits left."""
    with mpmath.workdps(40):
        for n, misses, alpha in itertools.product([1000, 100_000], [0, 1, 3, 40], [1e-12, 1e-3]):
            bound = mpmath.mpf(float(statistics.upper_bound(n - misses, n, alpha=alpha)))
            # p <= bound fails where n - misses or fewer successes are unlikely.
            assert bound == 1 or exact_tail(misses, n, 1 - bound) <= mpmath.mpf(alpha)


def test_a_distance_is_subtracted_downwards():
    rng = np.random.default_rng(0)
    p, distance = rng.random(2000), 10 ** rng.uniform(-17, -10, 2000)
    found = statistics.minus(p, distance)
    exact = [Fraction(a) - Fraction(b) for a, b in zip(p, distance, strict=True)]
    assert all(Fraction(a) <= b for a, b in zip(found.tolist(), exact, strict=True))
    assert statistics.minus(0.7, 0.0) == 0.7 and statistics.minus(1e-9, 1e-3) == 0
