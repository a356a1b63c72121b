"""Early stopping: when more draws of an image can change no answer, and no radius by much, at the
thetas of interest.

The looks are fixed beforehand and share alpha (`aces.rule.sequential`), so a bound and an answer
hold however it was decided to stop; what is decided here costs draws or radius, never soundness.
"""

import numpy as np

from aces.params import Adaptive
from aces.rule.composition import agreeing, combine, guess_certifies, places_of, predict_from
from aces.rule.counts import BINS, Looks
from aces.rule.sequential import group_lower_bound
from aces.rule.smoothing import ABSTAIN, guessed
from aces.rule.statistics import lower_bound, max_radius, radius, upper_bound

_OPTIMISM = 0.05  # how likely more draws may turn out better than what is held possible


class LookBook:
    """The looks made so far at one round of N images."""

    def __init__(self, adaptive: Adaptive, *, n: int, chunk: int, images: int, num_classes: int):
        draws, spend = schedule(adaptive, n=n, chunk=chunk)
        self.looks = Looks(
            draws=draws,
            spend=spend,
            made=np.zeros(images, dtype=np.int64),
            classes=np.zeros((len(draws), images, num_classes), dtype=np.int64),
            score=np.zeros((len(draws), images, BINS + 1), dtype=np.int64),
            doubt=np.zeros((len(draws), images, BINS + 1), dtype=np.int64),
            joint_doubt=np.zeros((len(draws), images, BINS + 1), dtype=np.int64),
        )

    def add(self, images: np.ndarray, **totals: np.ndarray) -> None:
        """Take in the pooled counts of `images`, all at the same look.

        totals: classes (N, K); score, doubt and joint_doubt (N, BINS + 1) of the whole round.
        """
        j = self.looks.made[images[0]]
        for name, total in totals.items():
            # From this look on: an image that stops repeats its last look.
            getattr(self.looks, name)[j:, images] = total[images]
        self.looks.made[images] += 1

    def of(self, images: np.ndarray) -> Looks:
        """The looks at these images alone."""
        every = self.looks
        return Looks(
            draws=every.draws,
            spend=every.spend,
            made=every.made[images],
            classes=every.classes[:, images],
            score=every.score[:, images],
            doubt=every.doubt[:, images],
            joint_doubt=every.joint_doubt[:, images],
        )


class Stopping:
    """Whether the looks at some images leave nothing to be gained. At other thetas than those of
    interest answers remain sound, but may have missed some radius.

    guess: (N,) guessed classes; guess_score: (N, BINS + 1) scores of round GUESS, which fix the
    guessed selections.
    """

    def __init__(
        self, adaptive: Adaptive, *, sigma: float, guess: np.ndarray, guess_score: np.ndarray
    ):
        self.sigma, self.tolerance, self.guess = sigma, adaptive.tolerance, guess
        self.alpha = adaptive.alpha / 2  # the strictest level the rule uses
        self.places = places_of(adaptive.thetas)
        self.certifies = guess_certifies(guess_score, self.places)

    def certified(self, looks: Looks, images: np.ndarray) -> np.ndarray:
        """Whether, at every theta, what is possible brings no other route and no radius that is
        much larger.
        """
        certifies, guess = self.certifies[images], self.guess[images]
        events = agreeing(looks, self.places, certifies), guessed(looks, guess)[:, :, None]
        now = [
            radius(group_lower_bound(event, looks, alpha=self.alpha), sigma=self.sigma)
            for event in events
        ]
        later = [
            np.maximum(bound, self._possible(event, looks)) for bound, event in zip(now, events)
        ]
        sign = np.where(certifies, 1, -1)
        margin = self.tolerance * max_radius(
            looks.draws[-1], sigma=self.sigma, alpha=self.alpha * looks.spend[-1]
        )
        settled = np.ones(len(images), dtype=bool)
        for core in (guess, guess + 1):  # the core network may agree with the guess or not
            sure, possible = (
                combine(sign * selection, label, guess, core) for selection, label in (now, later)
            )
            same = (sure.route == possible.route) & (possible.radius - sure.radius <= margin)
            settled &= same.all(axis=1)
        return settled

    def predicted(self, looks: Looks, images: np.ndarray) -> np.ndarray:
        """Whether PREDICT answers at every theta, whatever the core network says."""
        nobody = np.full(len(images), looks.classes.shape[2])  # a core that agrees with no class
        answers = predict_from(
            looks, nobody, alpha=2 * self.alpha, places=self.places, multiplicity="bonferroni"
        )
        return (answers != ABSTAIN).all(axis=1)

    def _possible(self, event: np.ndarray, looks: Looks) -> np.ndarray:
        """The radius that all n draws would give if the event's probability were as high as the
        last look allows.
        """
        j, n = looks.made[0] - 1, looks.draws[-1]
        p = upper_bound(event[j], looks.draws[j], alpha=_OPTIMISM)
        return radius(
            lower_bound(np.floor(p * n).astype(np.int64), n, alpha=self.alpha * looks.spend[-1]),
            sigma=self.sigma,
        )


def schedule(adaptive: Adaptive, *, n: int, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """(J,) draws and (J,) spend of the looks, moved to the ends of chunks; looks that coincide pool
    what they spend.
    """
    ends = [min(n, chunk * int(np.ceil(round(share * n / chunk, 9)))) for share in adaptive.looks]
    draws = np.unique(ends)
    spend = np.array(
        [sum(spend for end, spend in zip(ends, adaptive.spend) if end == draw) for draw in draws]
    )
    return draws.astype(np.int64), spend
