"""What early stopping saves and costs for the networks of a finished run.

The draws are simulated: each image of the run has a distribution of classes, scores and doubts,
estimated by its counts, and as many draws as one likes are made from it. Everything after the draws
is real: the looks, the decision to stop, the rule.
"""

from dataclasses import replace

import numpy as np

from aces import rule
from aces.errors import InputError
from aces.params import Adaptive
from aces.rule import ABSTAIN
from aces.rule.counts import Counts, Looks, Round
from aces.rule.stopping import LookBook, Stopping

DRAWS = (20_000, 100_000)
PLANS = {
    "five looks": Adaptive(enabled=True),
    "three looks": Adaptive(  # those of version 0.1
        enabled=True, looks=[0.05, 0.25, 1.0], spend=[0.05, 0.1, 0.85], tolerance=0.01
    ),
}
CHUNK, ALPHA = 500, 0.001
IMAGES = 500  # of the run, evenly spread, at most
THETAS = np.arange(101) / 100
SMALL = 0.01  # a theta with a smaller average radius says nothing about the share that is kept

Draws = dict[str, np.ndarray]  # classes (N, K); score, doubt, joint_doubt (N, BINS + 1)


def measure_stopping(counts: Counts) -> dict:
    """For each number of draws and each plan, against all draws and one look, by both rules:

    draws: the share of the draws that is made; kept: the share of the average certified radius, as
    a mean over all thetas and at the worst theta; abstentions: the further share of CERTIFY's
    answers that are abstentions.
    """
    if not counts.classes[Round.BOUND].sum(axis=1).all():
        raise InputError(
            "samples/counts.npz has images all of whose draws are invalid, so that none can be "
            "drawn from: expected a network without NaN or infinite logits; mend it and run "
            "`dvc repro`"
        )
    chosen = np.unique(
        np.linspace(0, len(counts.label) - 1, min(IMAGES, len(counts.label))).astype(int)
    )
    found: dict[str, dict] = {}
    for n in DRAWS:
        for name, plan in PLANS.items():
            world = _World(counts, chosen, np.random.default_rng(0))
            found[f"n = {n:,}, {name}"] = _compare(world, plan, n)
    return {"images": len(chosen), "plans": found}


class _World:
    """Images whose draws can be made in any number."""

    def __init__(self, counts: Counts, images: np.ndarray, random: np.random.Generator):
        self.random, self.guess, self.label = random, counts.guess[images], counts.label[images]
        self.settings, self.index = counts.settings, counts.index[images]
        self.first = {
            name: getattr(counts, name)[Round.GUESS, images]
            for name in ("classes", "score", "doubt", "joint_score", "joint_doubt")
        }
        bound = {
            name: getattr(counts, name)[Round.BOUND, images].astype(float) for name in self.first
        }
        self.classes = _shares(bound["classes"])
        # Scores and doubts of the draws of the guessed class, and of all others.
        self.score = [_shares(bound["joint_score"]), _shares(bound["score"] - bound["joint_score"])]
        self.doubt = [_shares(bound["joint_doubt"]), _shares(bound["doubt"] - bound["joint_doubt"])]

    def draw(self, draws: int | np.ndarray, images: np.ndarray) -> Draws:
        """So many draws of each of these images; draws: a number, or one for each image."""
        classes = self.random.multinomial(draws, self.classes[images])
        mine = classes[np.arange(len(images)), self.guess[images]]

        def histogram(shares: list[np.ndarray]) -> list[np.ndarray]:
            times = (mine, draws - mine)
            return [
                self.random.multinomial(n, share[images])
                for n, share in zip(times, shares, strict=True)
            ]

        score, doubt = histogram(self.score), histogram(self.doubt)
        return {
            "classes": classes,
            "score": score[0] + score[1],
            "doubt": doubt[0] + doubt[1],
            "joint_score": score[0],
            "joint_doubt": doubt[0],
        }

    def run(self, n: int, plan: Adaptive) -> tuple[Counts, Counts]:
        """The counts of n draws of each image, and those of the first of these draws alone, up to
        where the plan stops.
        """
        everyone = np.arange(len(self.guess))
        totals = {
            name: np.stack([first, np.zeros_like(first), np.zeros_like(first)])
            for name, first in self.first.items()
        }
        looks = {Round.BOUND: self._look(n, plan, totals)}
        stopped = self._counts(n, totals, looks)
        rest = self.draw(n - totals["classes"][Round.BOUND].sum(axis=1), everyone)
        for name, more in rest.items():
            totals[name] = totals[name].copy()
            totals[name][Round.BOUND] += more
        return self._counts(n, totals, {}), stopped

    def _counts(self, n: int, totals: Draws, looks: dict[Round, Looks]) -> Counts:
        return Counts(
            **totals,
            invalid=np.zeros((len(Round), len(self.guess)), dtype=np.int64),
            index=self.index,
            label=self.label,
            guess=self.guess,
            settings=replace(self.settings, n=n, n_predict=0, chunk=CHUNK),
            looks=looks,
        )

    def _look(self, n: int, plan: Adaptive, totals: Draws) -> Looks:
        """Draw look by look, as `aces.sampling.sample` does."""
        first = {name: self.first[name] for name in ("classes", "score", "doubt")}
        stopping = Stopping(plan, sigma=self.settings.sigma, guess=self.guess, **first)
        left, start = np.arange(len(self.guess)), 0
        book = LookBook(plan, n=n, chunk=CHUNK, images=len(left), num_classes=self.classes.shape[1])
        for stop in book.looks.draws:
            for name, more in self.draw(int(stop - start), left).items():
                totals[name][Round.BOUND, left] += more
            names = ("classes", "score", "doubt", "joint_doubt")
            book.add(left, **{name: totals[name][Round.BOUND] for name in names})
            left, start = left[~stopping.settled(book.of(left), left)], stop
            if not len(left):
                break
        return book.looks


def _compare(world: _World, plan: Adaptive, n: int) -> dict:
    every, stopped = world.run(n, plan)
    found: dict = {"draws": float(stopped.classes[Round.BOUND].sum(axis=1).mean() / n)}
    for name in ("confident", "paper"):
        outcomes = [
            rule.certify(counts, world.label, alpha=ALPHA, thetas=THETAS, rule=name)
            for counts in (every, stopped)
        ]
        right = [(each.prediction == world.label[:, None]) * each.radius for each in outcomes]
        all_draws, fewer = (each.mean(axis=0) for each in right)
        told = all_draws > SMALL
        missing = [(each.prediction == ABSTAIN).mean() for each in outcomes]
        found[name] = {
            "kept": float(fewer[told].sum() / all_draws[told].sum()) if told.any() else 1.0,
            "kept_at_worst": float((fewer[told] / all_draws[told]).min(initial=1.0)),
            "abstentions": float(missing[1] - missing[0]),
        }
    return found


def _shares(histogram: np.ndarray) -> np.ndarray:
    """(N, B) counts as shares of their row; a row without counts is never drawn from."""
    total = histogram.sum(axis=1, keepdims=True)
    filled = np.where(total > 0, histogram, np.eye(1, histogram.shape[1]))
    return filled / filled.sum(axis=1, keepdims=True)
