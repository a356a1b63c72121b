"""Plain randomized smoothing from the same counts: the certification network on its own.

CERTIFY and PREDICT of Cohen et al. (2019). A draw with NaN or infinite logits counts against every answer.
"""

from dataclasses import dataclass

import numpy as np

from aces.counts import Counts, Round
from aces.sequential import group_lower_bound, looks_of
from aces.statistics import check_alpha, is_majority, radius

ABSTAIN = -1


@dataclass(frozen=True)
class Smoothed:
    prediction: np.ndarray  # (N,) int, ABSTAIN where nothing is certified
    radius: np.ndarray      # (N,) float, 0 where nothing is certified


@dataclass(frozen=True)
class Winner:
    """The most frequent class of round PREDICT, against its runner-up."""

    guess: np.ndarray   # (N,) the lowest class of a tie
    k: np.ndarray       # (N,) its draws
    rivals: np.ndarray  # (N,) its draws, the runner-up's and the invalid ones

    def wins(self, *, alpha) -> np.ndarray:
        """With probability >= 1 - alpha, `guess` is the smoothed network's class wherever this is true."""
        return is_majority(self.k, self.rivals, alpha=alpha)


def certify(counts: Counts, *, sigma: float, alpha: float) -> Smoothed:
    """With probability >= 1 - alpha, for each image: the smoothed network answers `prediction` within `radius`."""
    certified = radius(bound_class(counts, alpha=alpha), sigma=sigma)
    return Smoothed(prediction=np.where(certified > 0, counts.guess, ABSTAIN), radius=certified)


def predict(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) With probability >= 1 - alpha, for each image: the smoothed network's class, unless ABSTAIN."""
    check_alpha(alpha)
    top = winner(counts)
    return np.where(top.wins(alpha=alpha), top.guess, ABSTAIN)


def bound_class(counts: Counts, *, alpha: float) -> np.ndarray:
    """(N,) With probability >= 1 - alpha, a draw is of class `counts.guess` at least this often."""
    looks = looks_of(counts)
    return group_lower_bound(looks.guessed, looks, alpha=alpha)


def winner(counts: Counts) -> Winner:
    classes = counts.classes[Round.PREDICT]
    guess = classes.argmax(axis=1)
    ranked = np.sort(classes, axis=1)
    k = ranked[:, -1]
    runner_up = ranked[:, -2] if classes.shape[1] > 1 else 0
    return Winner(guess=guess, k=k, rivals=k + runner_up + counts.invalid[Round.PREDICT])
