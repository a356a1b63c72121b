"""Early stopping: when more draws of an image can change no answer, and no radius by much.

The looks are fixed beforehand and share alpha (`aces.sequential`), so a bound holds however it was decided to stop; what
is decided here costs draws or radius, never soundness. RESEARCH 2, "Full radius with early stops".
"""

import numpy as np

from aces.composition import combine, places_of
from aces.counts import Looks
from aces.params import Adaptive
from aces.sequential import group_lower_bound
from aces.statistics import lower_bound, max_radius, radius, upper_bound

_OPTIMISM = 0.05  # how likely more draws may turn out better than what is held possible


class Stopping:
    """The looks made so far at N images, and what they leave to be gained.

    guess_entropy: (N, BINS + 1) scores of round GUESS, which fix the guessed selections; guess: (N,) guessed classes.
    thetas: those whose answers count. At other thetas answers remain sound, but may have missed some radius.
    """

    def __init__(self, adaptive: Adaptive, *, n: int, chunk: int, sigma: float, alpha: float, thetas, guess: np.ndarray,
                 guess_entropy: np.ndarray):
        self.draws, self.spend = schedule(adaptive, n=n, chunk=chunk)
        self.sigma, self.tolerance = sigma, adaptive.tolerance
        self.alpha = alpha / 2  # the strictest level the rule uses
        self.places, self.guess = places_of(thetas), guess
        ones, zeros = _votes(guess_entropy, self.places)
        self.certifies = ones >= zeros
        looks, images = len(self.draws), len(guess)
        self.made = np.zeros(images, dtype=np.int64)
        self.guessed = np.zeros((looks, images), dtype=np.int64)
        self.entropy = np.zeros((looks, images, guess_entropy.shape[1]), dtype=np.int64)

    def look(self, images: np.ndarray, *, guessed: np.ndarray, entropy: np.ndarray) -> np.ndarray:
        """Take in the pooled counts of `images`, all at the same look; returns those worth more draws.

        guessed: (N,) draws of the guessed class; entropy: (N, BINS + 1); both of all images.
        """
        j = self.made[images[0]]
        # From this look on: an image that stops repeats its last look.
        self.guessed[j:, images] = guessed[images]
        self.entropy[j:, images] = entropy[images]
        self.made[images] += 1
        if j == len(self.draws) - 1:
            return images[:0]
        return images[~self._settled(images)]

    @property
    def looks(self) -> Looks:
        return Looks(draws=self.draws, spend=self.spend, made=self.made, guessed=self.guessed, entropy=self.entropy)

    def _settled(self, images: np.ndarray) -> np.ndarray:
        """Whether, at every theta, what is possible brings no other route and no radius that is much larger."""
        made = Looks(draws=self.draws, spend=self.spend, made=self.made[images], guessed=self.guessed[:, images],
                     entropy=self.entropy[:, images])
        certifies, guess = self.certifies[images], self.guess[images]
        ones, zeros = _votes(made.entropy, self.places)
        events = np.where(certifies, ones, zeros), made.guessed[:, :, None]
        now = [radius(group_lower_bound(event, made, alpha=self.alpha), sigma=self.sigma) for event in events]
        later = [np.maximum(bound, self._possible(event, made.made[0] - 1)) for bound, event in zip(now, events)]
        sign = np.where(certifies, 1, -1)
        margin = self.tolerance * max_radius(self.draws[-1], sigma=self.sigma, alpha=self.alpha * self.spend[-1])
        settled = np.ones(len(images), dtype=bool)
        for core in (guess, guess + 1):  # the core network may agree with the guess or not
            sure, possible = (combine(sign * selection, label, guess, core) for selection, label in (now, later))
            same = (sure.route == possible.route) & (possible.radius - sure.radius <= margin)
            settled &= same.all(axis=1)
        return settled

    def _possible(self, event: np.ndarray, j: int) -> np.ndarray:
        """The radius that all n draws would give if the event's probability were as high as look j allows."""
        n = self.draws[-1]
        p = upper_bound(event[j], self.draws[j], alpha=_OPTIMISM)
        return radius(lower_bound(np.floor(p * n).astype(np.int64), n, alpha=self.alpha * self.spend[-1]), sigma=self.sigma)


def schedule(adaptive: Adaptive, *, n: int, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """(J,) draws and (J,) spend of the looks, moved to the ends of chunks; looks that coincide pool what they spend."""
    ends = [min(n, chunk * int(np.ceil(round(share * n / chunk, 9)))) for share in adaptive.looks]
    draws = np.unique(ends)
    spend = np.array([sum(spend for end, spend in zip(ends, adaptive.spend) if end == place) for place in draws])
    return draws.astype(np.int64), spend


def _votes(entropy: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(..., T) valid draws that select the certification network (score <= theta) and the core at each theta."""
    below = np.cumsum(entropy, axis=-1)
    return below[..., places], below[..., -1:] - below[..., places]
