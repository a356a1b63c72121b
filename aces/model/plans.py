"""How many draws the answers of a model take, and how these are spent: on guesses, bounds and looks."""

import itertools
import secrets
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from aces import params
from aces.errors import InputError
from aces.model.checks import check_draws
from aces.rule.sequential import log_evidence
from aces.sampling import DrawPlan

N0_CALIBRATE = 100  # draws that fix the guesses when theta is chosen
N0_PREDICT = 50  # at most so many of the draws of PREDICT fix the guesses
# Adaptive certificates: looks after 1 %, 10 % and all of n draws, and what they spend of alpha. An
# image stops when its radius can grow by no more than 1 % of the largest possible.
LOOKS, SPEND, TOLERANCE = [0.01, 0.1, 1.0], [0.05, 0.10, 0.85], 0.01


@dataclass(frozen=True)
class Planner:
    """Plans of draws for the questions of one model, all with its noise and precision.

    A seed of None is a fresh one: the answers of two calls are then independent.
    """

    sigma: float
    noise: str
    precision: str

    def __post_init__(self):
        self._plan(n0=1, n=1, seed=0)  # refuses what is unknown

    def certify(self, *, n0: int, n: int, alpha: float, seed: int | None) -> DrawPlan:
        """n draws for each image, or fewer if the question is about one radius."""
        plan = self._plan(n0=n0, n=n, seed=seed)
        check_draws(n, alpha=alpha)
        return plan

    def certify_in_looks(
        self, *, n0: int, n: int, alpha: float, theta: float, seed: int | None
    ) -> DrawPlan:
        """The same with early stopping."""
        return self._in_looks(n0=n0, n=n, alpha=alpha, seed=seed, thetas=[theta])

    def predict(self, *, n: int, alpha: float, seed: int | None) -> DrawPlan:
        """n draws, of which some fix the guesses."""
        check_draws(n, alpha=alpha)
        n0 = int(np.clip(n // 10, 1, N0_PREDICT))
        return self._plan(n0=n0, n=n - n0, seed=seed)

    def predict_early(self, *, n: int, alpha: float, seed: int | None) -> DrawPlan:
        """At most n draws: some fix the guesses, the others test them until the class is sure."""
        check_draws(n, alpha=alpha)
        n0 = min(N0_PREDICT, n // 2)
        if not _can_be_sure(n, alpha=alpha):
            least = next(more for more in itertools.count(n) if _can_be_sure(more, alpha=alpha))
            raise InputError(
                f"n={n} is too small for alpha={alpha:g}: {n0} draws fix the guesses, and the "
                f"rest cannot make an answer sure; take at least {least}"
            )
        return self._plan(n0=n0, n=n - n0, seed=seed)

    def calibrate(self, *, n: int, alpha: float, seed: int | None) -> DrawPlan:
        """At most n draws for PREDICT at every theta, after those that fix the guesses."""
        return self._in_looks(n0=N0_CALIBRATE, n=n, alpha=alpha, seed=seed, thetas="all")

    def _in_looks(
        self,
        *,
        n0: int,
        n: int,
        alpha: float,
        seed: int | None,
        thetas: Literal["all"] | list[float],
    ) -> DrawPlan:
        """A plan with early stopping. Looks are at the ends of chunks: small ones for a small n, but
        not so small that they cost time.
        """
        plan = self._plan(n0=n0, n=n, seed=seed)
        check_draws(n, alpha=alpha, spend=SPEND[-1])
        adaptive = params.Adaptive(
            enabled=True, alpha=alpha, looks=LOOKS, spend=SPEND, tolerance=TOLERANCE, thetas=thetas
        )
        return replace(plan, adaptive=adaptive, chunk=int(np.clip(n // 10, 50, 1000)))

    def _plan(self, *, n0: int, n: int, seed: int | None) -> DrawPlan:
        return DrawPlan(
            sigma=self.sigma,
            n0=n0,
            n=n,
            seed=secrets.randbits(53) if seed is None else seed,
            noise=self.noise,
            precision=self.precision,
        )


def _can_be_sure(n: int, *, alpha: float) -> bool:
    """Whether `predict_early` can answer at all, if all of its n draws agree."""
    left = n - min(N0_PREDICT, n // 2)
    return log_evidence(left, left, p0=0.5) >= np.log(2) - np.log(alpha)
