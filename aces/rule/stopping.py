"""Early stopping: when more draws of an image can change no answer, and no radius by much, at the
thetas of interest, by either rule.

The looks are fixed beforehand and share alpha (`aces.rule.sequential`), so a bound and an answer
hold however it was decided to stop; what is decided here costs draws or radius, never soundness.

Simulated from the counts of the default networks (`aces bench stopping`; 500 images, sigma 0.25, all
thetas, the confident rule), five geometric looks from 2 % on, tolerance 0.015, against all draws and
one look: at n = 100,000, 47 % of the draws keep 99.3 % of the average certified radius, 99.0 % at the
worst theta, and 0.1 points more images abstain. At n = 2,000 nothing can be saved for all thetas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from aces.grid import BINS
from aces.rule import confident, paper
from aces.rule.counts import Looks
from aces.rule.events import at_most, bins_of
from aces.rule.outcomes import ABSTAIN, Route
from aces.rule.sequential import Evidence
from aces.rule.smoothing import guessed
from aces.rule.statistics import lower_bound, max_radius, radius, upper_bound

_OPTIMISM = 0.35  # how likely more draws may turn out better than what is held possible
# PREDICT may be open at so many times the tolerance of all thetas: where the majority changes hands
# it can never be sure, and an open theta costs an abstention there, no radius.
_OPEN_PREDICTIONS = 4
_CELLS = 2**19  # pairs of image and theta judged at once


class Plan(Protocol):
    """When to look, and what is aimed at (`aces.params.Adaptive`)."""

    @property
    def alpha(self) -> float: ...
    @property
    def looks(self) -> Sequence[float]: ...
    @property
    def spend(self) -> Sequence[float]: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def thetas(self) -> Literal["all"] | Sequence[float]: ...


class LookBook:
    """The looks made so far at one round of N images."""

    def __init__(self, plan: Plan, *, n: int, chunk: int, images: int, num_classes: int):
        draws, spend = schedule(plan, n=n, chunk=chunk)
        histograms = (len(draws), images, BINS + 1)
        self.looks = Looks(
            draws=draws,
            spend=spend,
            made=np.zeros(images, dtype=np.int64),
            classes=np.zeros((len(draws), images, num_classes), dtype=np.int32),
            score=np.zeros(histograms, dtype=np.int32),
            doubt=np.zeros(histograms, dtype=np.int32),
            joint_doubt=np.zeros(histograms, dtype=np.int32),
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
        return self.looks.part(images)


@dataclass(frozen=True)
class _Event:
    """What an event's draws show now, and what n draws could show."""

    now: np.ndarray  # (N, T) lower bound
    later: np.ndarray  # (N, T) the lower bound that is held possible, at least `now`


class Stopping:
    """Whether the looks at some images leave nothing to be gained. At other thetas than those of
    interest answers remain sound, but may have missed some radius.

    guess: (N,) guessed classes; classes, score, doubt: (N, ...) totals of round GUESS, which fix
    the guessed selections.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        sigma: float,
        guess: np.ndarray,
        classes: np.ndarray,
        score: np.ndarray,
        doubt: np.ndarray,
    ):
        self.sigma, self.tolerance, self.guess = sigma, plan.tolerance, guess
        self.alpha = plan.alpha / 2  # the strictest level a rule uses
        # Along all thetas the majority changes hands somewhere, and near that theta nothing is ever
        # settled: the same tolerance says at which share of the thetas an answer may stay open.
        self.open = plan.tolerance if plan.thetas == "all" else 0.0
        self.bins = np.arange(BINS + 1) if plan.thetas == "all" else bins_of(plan.thetas)
        self.classes, self.score, self.doubt = classes, score, doubt

    def certified(self, looks: Looks, images: np.ndarray) -> np.ndarray:
        """(N,) whether, at every theta of interest and by either rule, what is possible brings no
        other route and no radius that is much larger. Of all thetas, some may stay open.
        """
        settled = np.zeros(len(images), dtype=bool)
        for part in self._parts(len(images)):
            evidence = Evidence(looks.part(part))
            settled[part] = self._settled(evidence, images[part])
        return settled

    def predicted(self, looks: Looks, images: np.ndarray) -> np.ndarray:
        """(N,) whether PREDICT answers at every theta by either rule, whatever the core says. Of
        all thetas, some may stay open.
        """
        answered = np.zeros(len(images), dtype=bool)
        for part in self._parts(len(images)):
            evidence, guess = Evidence(looks.part(part)), self.guess[images[part]]
            nobody = np.full(len(guess), looks.classes.shape[2])  # a core that agrees with no class
            alpha = 2 * self.alpha
            by_paper = paper.predict_from(
                evidence, nobody, alpha=alpha, bins=self.bins, multiplicity="bonferroni"
            )
            by_confident = confident.predict_from(
                evidence, guess, nobody, alpha=alpha, bins=self.bins
            )
            sure = (by_paper != ABSTAIN) & (by_confident != ABSTAIN)
            answered[part] = sure.mean(axis=1) >= 1 - _OPEN_PREDICTIONS * self.open
        return answered

    def settled(self, looks: Looks, images: np.ndarray) -> np.ndarray:
        """(N,) whether CERTIFY and PREDICT, from the same draws, leave nothing to be gained."""
        return self.certified(looks, images) & self.predicted(looks, images)

    def _settled(self, evidence: Evidence, images: np.ndarray) -> np.ndarray:
        looks, guess = evidence.looks, self.guess[images]
        margin = self.tolerance * max_radius(
            looks.draws[-1], sigma=self.sigma, alpha=self.alpha * looks.spend[-1]
        )
        settled = np.ones(len(images), dtype=bool)
        for agree in (True, False):  # the core network may agree with the guess or not
            core = np.where(agree, guess, guess + 1)
            for now, later in (
                self._by_paper(evidence, images, guess, core),
                self._by_confident(evidence, images, agree),
            ):
                same = (now[0] == later[0]) & (later[1] - now[1] <= margin)
                settled &= same.mean(axis=1) >= 1 - self.open
        return settled

    def _by_paper(self, evidence: Evidence, images: np.ndarray, guess, core):
        """(route, radius) now, and what is possible."""
        looks = evidence.looks
        certifies = paper.guess_certifies(self.score[images], self.bins)
        select = self._event(paper.agreeing(evidence, self.bins, certifies), evidence)
        label = self._event(guessed(looks.classes, guess)[:, :, None], evidence)
        found = []
        for p_select, p_class in ((select.now, label.now), (select.later, label.later)):
            outcomes = paper.compose(
                selected=paper.selected_of(certifies, p_select),
                selection_radius=radius(p_select, sigma=self.sigma),
                class_radius=radius(p_class, sigma=self.sigma),
                guess=guess,
                core=core,
            )
            found.append((outcomes.route, outcomes.radius))
        return found

    def _by_confident(self, evidence: Evidence, images: np.ndarray, agree: bool):
        """(route, radius) now, and what is possible."""
        mine, others = confident.events(evidence, self.guess[images], self.bins)
        draws = evidence.looks.draws[:, None, None]
        majority = self._event(mine, evidence)
        no_guess = self._event(np.maximum(draws - mine, 0), evidence)
        no_other = self._event(np.maximum(draws - others, 0), evidence)
        of_guess = guessed(self.classes[images], self.guess[images])[:, None]
        certifies = confident.guess_majority(
            at_most(self.doubt[images], self.bins),
            of_guess,
            self.classes[images].sum(axis=1)[:, None],
        )
        found = []
        for p, q, r in (
            (majority.now, no_guess.now, no_other.now),
            (majority.later, no_guess.later, no_other.later),
        ):
            cases = [
                certifies & (p > 0.5),
                ~certifies & (q > 0.5) & (r > 0.5),
                agree & (r > 0.5),
            ]
            route = np.select(cases, [Route.CERTIFY, Route.CORE, Route.AGREE], Route.ABSTAIN)
            found.append((route, np.where(cases[0], radius(p, sigma=self.sigma), 0.0)))
        return found

    def _event(self, k: np.ndarray, evidence: Evidence) -> _Event:
        """k: (J, N, T) draws in the event at each look."""
        looks, now = evidence.looks, evidence.lower_bound(k, alpha=self.alpha)
        j, n = looks.made[0] - 1, looks.draws[-1]
        p = upper_bound(k[j], looks.draws[j], alpha=_OPTIMISM)
        later = lower_bound(np.floor(p * n).astype(np.int64), n, alpha=self.alpha * looks.spend[-1])
        return _Event(now=now, later=np.maximum(now, later))

    def _parts(self, images: int) -> list[slice]:
        step = max(1, _CELLS // len(self.bins))
        return [slice(start, start + step) for start in range(0, images, step)]


def schedule(plan: Plan, *, n: int, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """(J,) draws and (J,) spend of the looks, moved to the ends of chunks; looks that coincide pool
    what they spend.
    """
    ends = [min(n, chunk * int(np.ceil(round(share * n / chunk, 9)))) for share in plan.looks]
    draws = np.unique(ends)
    spend = [
        sum(spend for end, spend in zip(ends, plan.spend, strict=True) if end == stop)
        for stop in draws
    ]
    return draws.astype(np.int64), np.array(spend)
