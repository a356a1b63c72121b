"""Fewer draws, the same guarantee: bounds over several looks, and a test that may be read at any
time.

Two ways to stop early soundly; k successes in t draws of probability p.
- Group-sequential: the looks are fixed beforehand and share alpha, so the largest bound over the
  looks made is a lower bound at 1 - alpha (union bound), and the first answer is right at 1 -
  alpha, however it was decided to stop. They give a full radius.
- An anytime-valid test of p <= p0: it may be read after any draw, for as long as one likes (Ville's
  inequality). It gives a yes or no for one p0: 1/2 for a class or a selection, Phi(r / sigma) for a
  radius r.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaln

from aces.errors import InputError
from aces.rule.counts import Counts, Looks, Round
from aces.rule.statistics import Numbers, check_alpha, complement, lower_bound, minus


@dataclass(frozen=True)
class Evidence:
    """What the draws of one round show: the only place where counts become bounds.

    The drawn noise is within total variation `tv` of the exact Gaussian law, per draw. This is part
    of the promise, in two ways.
    - Bounds: the probability of an event under the drawn noise differs from the exact one by at
      most tv. So tv is subtracted from every lower bound and added to every upper bound.
    - Tests that compare two classes: n draws can be coupled with n exact ones so that all of them
      agree with probability >= 1 - n * tv. So n * tv is subtracted from the level of the test.
    Differences are rounded in the direction that claims less.
    """

    looks: Looks
    tv: float = 0.0

    def lower_bound(self, k: np.ndarray, *, alpha: float) -> np.ndarray:
        """With probability >= 1 - alpha, for each event: its probability is at least the bound
        returned.

        k: (J, N, ...) successes at each look; returns (N, ...): the largest bound over the looks
        made. Look j fails with probability <= spend[j] * alpha, and the spends sum to at most 1.
        """
        return self.lower_bounds(k, alpha=alpha).max(axis=0)

    def upper_bound(self, k: np.ndarray, *, alpha: float) -> np.ndarray:
        """With probability >= 1 - alpha, for each event: its probability is at most the bound
        returned. The mirror of `lower_bound`: an event fails where its complement happens.
        """
        return complement(self.lower_bound(self._misses(k), alpha=alpha), up=True)

    def lower_bounds(self, k: np.ndarray, *, alpha: float) -> np.ndarray:
        """(J, N, ...) the lower bound of each look by itself, which fails with probability <=
        spend[j] * alpha; 0 at a look that was not made.
        """
        bounds = np.zeros(k.shape)
        for j, (n, spend) in enumerate(zip(self.looks.draws, self.shares, strict=True)):
            made, level = self.looks.made > j, float(spend * alpha)
            if made.all():
                bounds[j] = lower_bound(k[j], int(n), alpha=level)
            elif made.any():
                bounds[j, made] = lower_bound(k[j, made], int(n), alpha=level)
        return minus(bounds, self.tv)

    def upper_bounds(self, k: np.ndarray, *, alpha: float) -> np.ndarray:
        """(J, N, ...) the mirror of `lower_bounds`."""
        return complement(self.lower_bounds(self._misses(k), alpha=alpha), up=True)

    def levels(self, alpha: float) -> np.ndarray:
        """(J,) levels of tests at each look; a negative one rejects nothing."""
        levels = minus(self.shares * alpha, self.looks.draws * self.tv)
        return np.where(levels > 0, levels, -1.0)

    @property
    def shares(self) -> np.ndarray:
        """(J,) what each look spends of alpha. Shares that were written as decimals may add up to a
        little more than 1: they are made smaller, so that no more than alpha is spent.
        """
        return self.looks.spend / max(1.0, math.fsum(self.looks.spend))

    def first_answer(self, answers: np.ndarray, *, abstain: int) -> np.ndarray:
        """With probability >= 1 - alpha, an answer is right: (N, ...) that of the first look made
        that does not abstain.

        answers: (J, N, ...), those of look j false with probability <= spend[j] * alpha.
        """
        first = np.full(answers.shape[1:], abstain, dtype=answers.dtype)
        for j, found in enumerate(answers):
            made = np.expand_dims(self.looks.made > j, tuple(range(1, found.ndim)))
            first = np.where(made & (first == abstain), found, first)
        return first

    def _misses(self, k: np.ndarray) -> np.ndarray:
        """(J, N, ...) draws in which the event did not happen."""
        return np.maximum(self.looks.draws.reshape(-1, *[1] * (k.ndim - 1)) - k, 0)


def evidence_of(counts: Counts, round_: Round) -> Evidence:
    return Evidence(looks_of(counts, round_), counts.settings.tv)


def looks_of(counts: Counts, round_: Round) -> Looks:
    """The looks at a round; a round of fixed n is one look, which spends all of alpha."""
    if round_ in counts.looks:
        looks = counts.looks[round_]
        if not looks.spend.sum() <= 1 + 1e-9:
            raise InputError(
                f"the looks spend {looks.spend.sum():g} of alpha: expected at most 1; sample again"
            )
        return looks
    name = {Round.GUESS: "n0", Round.BOUND: "n", Round.PREDICT: "n_predict"}[round_]
    draws, n = counts.draws[round_], counts.settings.draws_of(round_)
    if np.any(draws != n):
        raise InputError(
            f"the counts hold {draws.min()} to {draws.max()} draws of each image where "
            f"settings.{name}={n}: a run that stops early must record its looks; sample again"
        )
    return Looks(
        draws=np.array([n]),
        spend=np.array([1.0]),
        made=np.ones(len(counts.guess), dtype=np.int64),
        classes=counts.classes[round_][None],
        score=counts.score[round_][None],
        doubt=counts.doubt[round_][None],
        joint_doubt=counts.joint_doubt[round_][None],
    )


def log_evidence(k: Numbers, t: Numbers, *, p0: Numbers) -> np.ndarray:
    """log W, the evidence against p <= p0 after k successes in t draws; P[W ever >= 1/alpha] <=
    alpha if p <= p0. Rounded down.

    W is the likelihood ratio of a mixture over p > p0 (Beta(1/2, 1/2), cut off at p0) to p0: a
    nonnegative martingale of mean 1 at p0, a supermartingale below. Broadcasts; finite for any t.
    """
    k, t = np.asarray(k, dtype=float), np.asarray(t, dtype=float)
    misses, p0 = t - k, np.asarray(p0, dtype=float)
    prior = np.log(betainc(0.5, 0.5, 1 - p0)) + betaln(0.5, 0.5)
    mixture = betaln(k + 0.5, misses + 0.5) + _log_betainc(misses + 0.5, k + 0.5, 1 - p0)
    found = mixture - prior - k * np.log(p0) - misses * np.log1p(-p0)
    # The terms of the sum, and the logarithms of factorials in them, are of size t log t at most
    # (misses * log(1 - p0) is larger only where the evidence is far below 0). So is their error, in
    # units of 2^-53. Measured against 40 digits, what is subtracted is at least 20 times the error.
    return found - _EVIDENCE_ERROR * ((t + 1) * np.log(t + 2) + misses * np.abs(np.log1p(-p0)))


_EVIDENCE_ERROR = 2.0**-48


class AnytimeTest:
    """Tests of p <= p0 that may be read after any draw: feed the totals so far, stop where
    `decided`.

        test = AnytimeTest(p0=0.5, alpha=0.001)
        while not test.decided.all():
            k, t = ...                  # totals so far, one for each event
            test.update(k, t)

    With probability >= 1 - alpha for each event, `certified` is true only if p > p0. `futile` (p is
    below p0, at the level `futility`) only saves draws: giving up is always sound, so it costs no
    alpha.
    """

    def __init__(self, *, p0: Numbers, alpha: Numbers, futility: float = 0.05):
        check_alpha(alpha)
        check_alpha(futility)
        if not np.all((np.asarray(p0) > 0) & (np.asarray(p0) < 1)):
            raise InputError(f"p0={p0} not in (0, 1): it is the probability to exceed, such as 0.5")
        self.p0, self.alpha, self.futility = np.asarray(p0), np.asarray(alpha), futility
        self.certified: np.ndarray = np.asarray(False)
        self.futile: np.ndarray = np.asarray(False)

    def update(self, k: Numbers, t: Numbers) -> np.ndarray:
        """Take in k successes of t draws in total; returns `decided`. What was decided once stays
        decided.
        """
        k, t = np.asarray(k), np.asarray(t)
        if np.any((k < 0) | (k > t)):
            raise InputError("k successes in t draws: expected 0 <= k <= t everywhere")
        gain = log_evidence(k, t, p0=self.p0) >= -np.log(self.alpha)
        loss = log_evidence(t - k, t, p0=1 - self.p0) >= -np.log(self.futility)
        certified, futile = self.certified, self.futile
        self.certified = certified | (gain & ~futile)
        self.futile = futile | (loss & ~self.certified)
        return self.decided

    @property
    def decided(self) -> np.ndarray:
        return self.certified | self.futile


def _log_betainc(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log of the regularised incomplete beta function; its first term, a little less, where it
    underflows.
    """
    value, tiny = betainc(a, b, x), np.finfo(float).tiny
    first_term = a * np.log(x) + b * np.log1p(-x) - np.log(a) - betaln(a, b)
    return np.where(value >= tiny, np.log(np.maximum(value, tiny)), first_term)
