"""Bounds, tests and radii: what a number of successes says about a probability.

Notation, after Cohen et al. (2019): `k` successes in `n` independent draws of probability p;
`alpha` the probability that a statement is false. Everything broadcasts; numpy and scipy only.
"""

from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from aces.errors import InputError

# What the library functions give is moved by more than their error, so that a bound and a radius are
# never above their exact value, and a p-value never below it. The errors were measured against 40
# digits (n up to 2^31, alpha down to 10^-100), relative, in units of 2^-53. The quantile errs by 7.
# The errors of the beta function and of its inverse grow with n, because its logarithm is a sum of
# terms of size n: the beta function errs by 5,300 at n = 10^6; its inverse, above 1/2, by 4 up to
# n = 10^7 and by 36 at most, and below 1/2 by 1,200 or n / 7.
_UNIT = 2.0**-53
_DOWN = 1 - 8 * _UNIT
_QUANTILE = 2.0**-49  # more than the relative error of a quantile
# At a smaller alpha the inverse gives NaN, or bounds that are wrong in the third digit.
_SMALLEST_ALPHA = 1e-100


Numbers = float | Sequence[float] | np.ndarray


def lower_bound(k: Numbers, n: Numbers, *, alpha: Numbers) -> np.ndarray:
    """With probability >= 1 - alpha, `lower_bound(k, n, alpha=alpha) <= p`.

    k, n: integers, 0 <= k <= n; alpha: in (0, 1). All broadcast. One-sided Clopper and Pearson
    (1934): the p at which k or more successes have probability alpha; 0 at k = 0, and below an
    alpha of 10^-100. Rounded down.
    """
    check_alpha(alpha)
    k, n = np.asarray(k), np.asarray(n)
    if np.size(k) and not _possible(k, n):
        raise InputError("k successes in n draws: expected 0 <= k <= n everywhere")
    if n.ndim == 0 and np.ndim(alpha) == 0 and _worth_a_table(k, int(n)):
        return _tabulated(_clopper_pearson, k, int(n), float(np.asarray(alpha)))
    return _clopper_pearson(*np.broadcast_arrays(k, n, np.asarray(alpha, dtype=float)))


def upper_bound(k: Numbers, n: Numbers, *, alpha: Numbers) -> np.ndarray:
    """With probability >= 1 - alpha, `p <= upper_bound(k, n, alpha=alpha)`: the mirror of
    `lower_bound`. Rounded up.
    """
    return complement(lower_bound(np.asarray(n) - np.asarray(k), n, alpha=alpha), up=True)


def complement(p: Numbers, *, up: bool) -> np.ndarray:
    """1 - p, rounded up or down, in [0, 1]: what is left of a bound is a bound in the other
    direction, also in its last digit.
    """
    towards = np.inf if up else -np.inf
    return np.clip(np.nextafter(1.0 - np.asarray(p, dtype=float), towards), 0.0, 1.0)[()]


def minus(p: Numbers, distance: Numbers) -> np.ndarray:
    """p - distance, rounded down, and 0 at least: a lower bound for a law that is so far away."""
    apart = np.nextafter(np.asarray(p, dtype=float) - distance, -np.inf)
    return np.where(np.asarray(distance) > 0, np.maximum(apart, 0.0), p)[()]


def radius(p_lower: Numbers, *, sigma: Numbers) -> np.ndarray:
    """The l2 radius within which an event of probability >= p_lower under N(0, sigma^2) keeps the
    majority.

    `sigma * ppf(p_lower)`, rounded down, and 0 where p_lower <= 1/2. Cohen et al. (2019), Theorem 1
    with p_B <= 1 - p_A. Infinite at p_lower = 1, which no bound reaches.
    """
    _check_sigma(sigma)
    p_lower = np.asarray(p_lower, dtype=float)
    exact = np.asarray(sigma) * ndtri(np.maximum(p_lower, 0.5))
    return np.where(p_lower > 0.5, exact * _DOWN, 0.0)[()]


def radius_between(p_lower: Numbers, p_upper: Numbers, *, sigma: Numbers) -> np.ndarray:
    """The l2 radius within which an event of probability >= p_lower stays likelier than every
    event of probability <= p_upper.

    `sigma / 2 * (ppf(p_lower) - ppf(p_upper))`, rounded down, and 0 where p_lower <= p_upper. Cohen
    et al. (2019), Theorem 1.
    """
    _check_sigma(sigma)
    low, high = np.broadcast_arrays(np.asarray(p_lower, float), np.asarray(p_upper, float))
    above = low > high
    low, high = ndtri(np.where(above, low, 0.5)), ndtri(np.where(above, high, 0.5))
    # Each quantile is moved the unfavourable way before the difference, which may cancel.
    gap = (low - np.abs(low) * _QUANTILE) - (high + np.abs(high) * _QUANTILE)
    return np.where(above, np.maximum(np.asarray(sigma) / 2 * gap * _DOWN, 0.0), 0.0)[()]


def max_radius(n: Numbers, *, sigma: Numbers, alpha: Numbers) -> np.ndarray:
    """The largest radius n draws can certify: all of them agree. No average certified radius
    exceeds it.
    """
    return radius(lower_bound(n, n, alpha=alpha), sigma=sigma)


def two_sided_p_value(k: Numbers, n: Numbers) -> np.ndarray:
    """The two-sided binomial test of p = 1/2: how likely a fair coin is at least as far from n / 2
    as k. Rounded up.
    """
    k, n = np.asarray(k), np.asarray(n)
    if n.ndim == 0 and _worth_a_table(k, int(n)):
        return _tabulated(_two_tails, k, int(n), 0.0)
    return _two_tails(k, n)


def is_majority(k: Numbers, n: Numbers, *, alpha: Numbers) -> np.ndarray:
    """Whether k of n is a majority, by the two-sided test at `alpha`.

    Two-sided, because the candidate is picked from the draws that test it: the winner of a
    multinomial beats its runner-up (k against n - k) falsely with probability <= alpha (Hung and
    Fithian, 2019, rank verification).
    """
    k, n = np.asarray(k), np.asarray(n)
    return (2 * k > n) & (two_sided_p_value(k, n) <= alpha)


def floor_digits(value: float, digits: int) -> str:
    """`value` for display, rounded down to `digits` decimals: what is shown never exceeds what is
    certified.
    """
    return str(
        Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_FLOOR)
    )


def check_alpha(alpha: Numbers) -> None:
    if not np.all((np.asarray(alpha) > 0) & (np.asarray(alpha) < 1)):
        raise InputError(
            f"alpha={alpha} not in (0, 1): it is the probability that an answer may be wrong, such "
            "as 0.001"
        )


def _check_sigma(sigma: Numbers) -> None:
    if not np.all(np.asarray(sigma) > 0):
        raise InputError(f"sigma={sigma}: expected a number above 0, in [0, 1] pixel units")


def _possible(k: np.ndarray, n: np.ndarray) -> bool:
    """Whether 0 <= k <= n everywhere."""
    most = k.max() <= n if n.ndim == 0 else (k <= n).all()
    return bool(k.min() >= 0 and most)


def _clopper_pearson(k: np.ndarray, n: Numbers, alpha: Numbers) -> np.ndarray:
    n = np.asarray(n)
    bound = betaincinv(np.maximum(k, 1), n - k + 1.0, alpha)
    error = np.where(bound > 0.5, np.maximum(2.0**3, n * 2.0**-20), np.maximum(2.0**13, n))
    claims = (k > 0) & (np.asarray(alpha) >= _SMALLEST_ALPHA)
    return np.where(claims, bound * (1 - error * _UNIT), 0.0)[()]


def _two_tails(k: np.ndarray, n: Numbers, _: float = 0.0) -> np.ndarray:
    n = np.asarray(n)
    larger = np.maximum(k, n - k)
    tail = betainc(np.maximum(larger, 1), n - larger + 1.0, 0.5)  # P[at least `larger` of n]
    rounded_up = tail * (1 + (n + 2.0**12) * _UNIT)
    return np.where(n > 0, np.minimum(1.0, 2.0 * rounded_up), 1.0)[()]


def _worth_a_table(k: np.ndarray, n: int) -> bool:
    return k.size >= 1000 and n <= 100 * k.size


def _tabulated(function: Callable, k: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """function(k, n, alpha), computed once for all equal k in 0..n: the beta function costs most.

    Tables are kept, so that a computation in pieces does not begin anew with each piece.
    """
    table = _table(function, n, alpha)
    found = table[k]
    if np.isnan(found).any():
        missing = np.unique(k[np.isnan(found)])
        table[missing] = function(missing, n, alpha)
        found = table[k]
    return found


@lru_cache(maxsize=32)
def _table(function: Callable, n: int, alpha: float) -> np.ndarray:
    return np.full(n + 1, np.nan)
