"""Plain randomized smoothing from the same counts: the certification network on its own.

CERTIFY and PREDICT of Cohen et al. (2019). A draw with NaN or infinite logits counts against every
answer.

**The class by its runner-up.** Let p_c be the probability that a draw is of class c, A the guessed
class and B the likeliest other one. Cohen's theorem has two probabilities: the smoothed network
answers A everywhere within

    R = sigma / 2 * (ppf(p_A) - ppf(p_B)).

With one bound only, p_B <= 1 - p_A gives sigma * ppf(LB_A), LB_A at the full alpha. With two, take
LB_A at alpha / 2, and for every other class b an upper bound UB_b at alpha / 2; the radius claimed
is sigma / 2 * (ppf(LB_A) - ppf(max_b UB_b)). The number of classes costs nothing. Proof: B is one
fixed class. If LB_A <= p_A and UB_B >= p_B, then max_b UB_b >= UB_B >= p_B, and the radius claimed
is at most R. Otherwise one of these two bounds has failed: probability <= alpha / 2 + alpha / 2.

Two bounds are better where several other classes share the rest, and where p_A < 1/2; one is
slightly better near the ceiling. Which is used is decided for each image by the draws of round
GUESS, which are independent of those that are bounded.
"""

from dataclasses import dataclass

import numpy as np

from aces.rule.counts import Counts, Looks, Round
from aces.rule.outcomes import ABSTAIN
from aces.rule.sequential import Evidence, evidence_of
from aces.rule.statistics import (
    check_alpha,
    is_majority,
    lower_bound,
    radius,
    radius_between,
    upper_bound,
)


@dataclass(frozen=True)
class Smoothed:
    prediction: np.ndarray  # (N,) int, ABSTAIN where nothing is certified
    radius: np.ndarray  # (N,) float, 0 where nothing is certified


@dataclass(frozen=True)
class ClassBound:
    """What round BOUND shows about the guessed class."""

    p_lower: np.ndarray  # (N,) lower bound of its probability
    radius: np.ndarray  # (N,) within it the smoothed network gives this class; 0 for no certificate


@dataclass(frozen=True)
class Winner:
    """The most frequent class of N images at J looks, against its runner-up."""

    guess: np.ndarray  # (J, N) the lowest class of a tie
    k: np.ndarray  # (J, N) its draws
    rivals: np.ndarray  # (J, N) its draws, the runner-up's and the invalid ones

    def wins(self, levels: np.ndarray) -> np.ndarray:
        """(J, N) With probability >= 1 - level, `guess` is the smoothed network's class wherever
        this is true; levels: (J,).
        """
        return is_majority(self.k, self.rivals, alpha=levels[:, None])


def certify(counts: Counts, *, alpha: float, sigma: float | None = None) -> Smoothed:
    """With probability >= 1 - alpha, for each image: the smoothed network answers `prediction`
    within `radius`.
    """
    sigma = counts.sigma_of(sigma)
    check_alpha(alpha)
    found = bound_class(counts, alpha=alpha, sigma=sigma, two=by_runner_up(counts, alpha=alpha))
    certified = found.radius > 0
    return Smoothed(prediction=np.where(certified, counts.guess, ABSTAIN), radius=found.radius)


def predict(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) With probability >= 1 - alpha, for each image: the smoothed network's class, unless
    ABSTAIN.
    """
    check_alpha(alpha)
    return predict_from(evidence_of(counts, counts.predict_round), alpha=alpha)


def predict_from(evidence: Evidence, *, alpha: float) -> np.ndarray:
    """(N,) `predict` from the looks at a round."""
    top = winner(evidence.looks)
    answers = np.where(top.wins(evidence.levels(alpha)), top.guess, ABSTAIN)
    return evidence.first_answer(answers, abstain=ABSTAIN)


def ceiling(counts: Counts, *, alpha: float, sigma: float | None = None) -> float:
    """The largest radius `certify` can give from so many draws: all of them agree. No average
    certified radius exceeds it.
    """
    evidence, sigma = evidence_of(counts, Round.BOUND), counts.sigma_of(sigma)
    looks = evidence.looks
    p_lower = lower_bound(looks.draws, looks.draws, alpha=alpha * looks.spend).max() - evidence.tv
    return float(radius(p_lower, sigma=sigma))


def bound_class(counts: Counts, *, alpha: float, sigma: float, two: np.ndarray) -> ClassBound:
    """With probability >= 1 - alpha, the smoothed network answers `counts.guess` within the radius.

    two: (N,) whether the class is bounded together with its runner-up.
    """
    evidence = evidence_of(counts, Round.BOUND)
    looks = evidence.looks
    k = guessed(looks.classes, counts.guess)
    p_lower = evidence.lower_bound(k, alpha=alpha)
    within = radius(p_lower, sigma=sigma)
    if two.any():
        p_half = evidence.lower_bound(k, alpha=alpha / 2)
        rivals = rivals_of(looks.classes, counts.guess, looks.draws[:, None])
        p_rival = evidence.upper_bound(rivals, alpha=alpha / 2)
        p_lower = np.where(two, p_half, p_lower)
        within = np.where(two, radius_between(p_half, p_rival, sigma=sigma), within)
    return ClassBound(p_lower=p_lower, radius=within)


def by_runner_up(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) whether the draws of round GUESS promise a larger radius from two bounds than from
    one, if the shares stay what they are.
    """
    n0, looks = counts.settings.n0, evidence_of(counts, Round.BOUND).looks
    n, alpha = int(looks.draws[-1]), alpha * float(looks.spend[-1])
    if n0 == 0 or n == 0:
        return np.zeros(len(counts.guess), dtype=bool)
    classes, guess = counts.classes[Round.GUESS], counts.guess
    # Half a draw for each side: no share is taken to be 0 or 1.
    p_class = (guessed(classes, guess) + 0.5) / (n0 + 1)
    p_rival = (rivals_of(classes, guess, np.asarray(n0)) + 0.5) / (n0 + 1)
    k, rivals = (np.floor(p * n).astype(np.int64) for p in (p_class, p_rival))
    one = radius(lower_bound(k, n, alpha=alpha), sigma=1.0)
    two = radius_between(
        lower_bound(k, n, alpha=alpha / 2), upper_bound(rivals, n, alpha=alpha / 2), sigma=1.0
    )
    return two > one


def guessed(classes: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """(..., N) draws of the guessed class; classes: (..., N, K), guess: (..., N)."""
    guess = np.broadcast_to(guess, classes.shape[:-1])[..., None]
    return np.take_along_axis(classes, guess, axis=-1)[..., 0].astype(np.int64)


def most_frequent_other(classes: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """(..., N) draws of the most frequent class but the guessed one; classes: (..., N, K)."""
    others = classes.astype(np.int64)
    guess = np.broadcast_to(guess, classes.shape[:-1])[..., None]
    np.put_along_axis(others, guess, 0, axis=-1)
    return others.max(axis=-1)


def rivals_of(classes: np.ndarray, guess: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """(..., N) draws of the most frequent class but the guessed one, the invalid ones included.

    classes: (..., N, K); guess, draws: (..., N). At a look that was not made, the draws that are
    missing count as invalid.
    """
    return most_frequent_other(classes, guess) + draws - classes.sum(axis=-1)


def winner(looks: Looks) -> Winner:
    """The most frequent class at each look, the lowest of a tie."""
    guess = looks.classes.argmax(axis=2)
    k = guessed(looks.classes, guess)
    return Winner(
        guess=guess, k=k, rivals=k + rivals_of(looks.classes, guess, looks.draws[:, None])
    )
