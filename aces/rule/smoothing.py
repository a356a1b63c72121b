"""Plain randomized smoothing from the same counts: the certification network on its own.

CERTIFY and PREDICT of Cohen et al. (2019). A draw with NaN or infinite logits counts against every
answer.
"""

from dataclasses import dataclass

import numpy as np

from aces.rule.counts import Counts, Looks, Round
from aces.rule.sequential import first_answer, group_lower_bound, looks_of
from aces.rule.statistics import check_alpha, is_majority, radius

ABSTAIN = -1


@dataclass(frozen=True)
class Smoothed:
    prediction: np.ndarray  # (N,) int, ABSTAIN where nothing is certified
    radius: np.ndarray  # (N,) float, 0 where nothing is certified


@dataclass(frozen=True)
class Winner:
    """The most frequent class of N images at J looks, against its runner-up."""

    guess: np.ndarray  # (J, N) the lowest class of a tie
    k: np.ndarray  # (J, N) its draws
    rivals: np.ndarray  # (J, N) its draws, the runner-up's and the invalid ones

    def wins(self, *, alpha) -> np.ndarray:
        """With probability >= 1 - alpha, `guess` is the smoothed network's class wherever this is
        true.
        """
        return is_majority(self.k, self.rivals, alpha=alpha)


def certify(counts: Counts, *, sigma: float, alpha: float) -> Smoothed:
    """With probability >= 1 - alpha, for each image: the smoothed network answers `prediction`
    within `radius`.
    """
    counts.check_sigma(sigma)
    certified = radius(bound_class(counts, alpha=alpha), sigma=sigma)
    return Smoothed(prediction=np.where(certified > 0, counts.guess, ABSTAIN), radius=certified)


def predict(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) With probability >= 1 - alpha, for each image: the smoothed network's class, unless
    ABSTAIN.
    """
    check_alpha(alpha)
    looks = looks_of(counts, Round.PREDICT)
    top = winner(looks)
    answers = np.where(top.wins(alpha=alpha * looks.spend[:, None]), top.guess, ABSTAIN)
    return first_answer(answers, looks, abstain=ABSTAIN)


def bound_class(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) With probability >= 1 - alpha, a draw is of class `counts.guess` at least this often."""
    looks = looks_of(counts, Round.BOUND)
    return group_lower_bound(guessed(looks, counts.guess), looks, alpha=alpha)


def guessed(looks: Looks, guess: np.ndarray) -> np.ndarray:
    """(J, N) draws of the guessed class at each look; guess: (N,)."""
    return looks.classes[:, np.arange(len(guess)), guess]


def winner(looks: Looks) -> Winner:
    """At a look that was not made, the last one is repeated: its draws count as invalid."""
    ranked = np.sort(looks.classes, axis=2)
    k = ranked[:, :, -1]
    runner_up = ranked[:, :, -2] if ranked.shape[2] > 1 else 0
    invalid = looks.draws[:, None] - looks.classes.sum(axis=2)
    return Winner(guess=looks.classes.argmax(axis=2), k=k, rivals=k + runner_up + invalid)
