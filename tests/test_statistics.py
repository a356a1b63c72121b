"""Bounds, tests and radii against scipy, published values, and simulation."""

import itertools

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
