"""Questions about N images that are answered after as few draws as they need.

Round GUESS fixes the guesses; then fresh draws feed anytime-valid tests (`aces.rule.sequential`),
which may be read after every batch. What is undecided after n draws is an abstention. Here is the
decision alone; `aces.sampling` makes the draws.

A question is asked with the draws of round GUESS, and then reads the totals of the fresh ones:

    question = ConfidentPredict(guessed, core, theta=0.4, alpha=0.001, n=10_000)
    while not all(question.read(drawn)): ...
    question.routes

The noise is within total variation `tv` of the exact law, per draw. The probability of an event
differs by at most tv, so events are tested against p0 + tv; tests that compare two classes spend
n * tv of alpha (`aces.rule.sequential.Evidence`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from aces.errors import InputError
from aces.grid import BINS
from aces.rule.confident import guess_majority
from aces.rule.events import at_most, bins_of
from aces.rule.outcomes import Route
from aces.rule.sequential import AnytimeTest, log_evidence
from aces.rule.smoothing import guessed as draws_of_guess
from aces.rule.statistics import check_alpha


@dataclass(frozen=True)
class Drawn:
    """The totals of one round so far, for N images and K classes; fields as those of `Counts`."""

    classes: np.ndarray  # (N, K)
    score: np.ndarray  # (N, BINS + 1)
    doubt: np.ndarray  # (N, BINS + 1)
    joint_doubt: np.ndarray  # (N, BINS + 1) of the class guessed by round GUESS
    invalid: np.ndarray  # (N,)

    @property
    def draws(self) -> np.ndarray:
        """(N,) invalid ones included."""
        return self.classes.sum(axis=1) + self.invalid

    def at_most(self, name: str, theta: float) -> np.ndarray:
        """(N,) draws whose `name` (score, doubt, joint_doubt) is at most theta."""
        return at_most(getattr(self, name), bins_of(theta))[:, 0]


class _Question:
    """What all questions have in common: the guesses, and the routes found so far."""

    def __init__(self, first: Drawn, *, theta: float, alpha: float, n: int, tv: float):
        check_alpha(alpha)
        self.theta, self.tv = theta, tv
        self.guess = first.classes.argmax(axis=1)  # (N,) c_hat
        self.routes = np.full(len(self.guess), Route.ABSTAIN)
        self.level = alpha - n * tv  # for comparisons of two classes
        if not self.level > 0:
            raise InputError(
                f"alpha={alpha:g} is not above n * tv = {n * tv:g}, the distance of the noise from "
                "the exact law: take a larger alpha or fewer draws"
            )

    def of_guess(self, drawn: Drawn) -> np.ndarray:
        """(N,) draws of the guessed class."""
        return draws_of_guess(drawn.classes, self.guess)

    def rivals(self, drawn: Drawn) -> np.ndarray:
        """(N, K - 1) draws of each other class, the invalid ones included in each."""
        others = np.arange(drawn.classes.shape[1]) != self.guess[:, None]
        return drawn.classes[others].reshape(len(others), -1) + drawn.invalid[:, None]


class _Duels:
    """Whether c_hat beats every other class: one test for each rival, on the draws of either class.

    Each test has the full level: if c_hat is not the winner, the test against the winner must fail.
    An invalid draw counts against every test.
    """

    def __init__(self, level: np.ndarray):
        self._tests = AnytimeTest(p0=0.5, alpha=level[:, None])

    def update(self, mine: np.ndarray, rivals: np.ndarray) -> None:
        self._tests.update(mine[:, None], mine[:, None] + rivals)

    @property
    def won(self) -> np.ndarray:
        return np.asarray(self._tests.certified.all(axis=-1))

    @property
    def lost(self) -> np.ndarray:
        return np.asarray(self._tests.futile.any(axis=-1))


class PaperPredict(_Question):
    """PREDICT by the paper's rule: with probability >= 1 - alpha, a route that is not ABSTAIN leads
    to ACES' class.

    Routes and levels are those of CERTIFY (`aces.rule.paper.certify`), with two tests: that s_hat
    has the majority, and that c_hat beats every other class.
    """

    def __init__(
        self,
        first: Drawn,
        core: np.ndarray,
        *,
        theta: float,
        alpha: float,
        n: int,
        tv: float = 0.0,
    ):
        super().__init__(first, theta=theta, alpha=alpha, n=n, tv=tv)
        self.certifies = _selects(first, theta)
        self.agree = self.guess == core
        # Where CORE and AGREE can both answer there are two ways to fail: half of alpha each.
        share = np.where(~self.certifies & self.agree, 0.5, 1.0)
        self._selection = AnytimeTest(p0=0.5 + tv, alpha=share * alpha)
        self._duels = _Duels(np.maximum(share * alpha - n * tv, np.finfo(float).tiny))

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        certifies, agree = self.certifies, self.agree
        self._selection.update(_selecting(drawn, self.theta, certifies), drawn.draws)
        self._duels.update(self.of_guess(drawn), self.rivals(drawn))
        sure, wins, loses = self._selection.certified, self._duels.won, self._duels.lost
        self.routes = np.select(
            [certifies & sure & wins, ~certifies & sure, agree & wins],
            [Route.CERTIFY, Route.CORE, Route.AGREE],
            Route.ABSTAIN,
        )
        unsure = self._selection.futile
        hopeless = np.where(certifies, loses | (unsure & ~agree), unsure & (loses | ~agree))
        return (self.routes != Route.ABSTAIN) | hopeless


class ConfidentPredict(_Question):
    """PREDICT by the confident rule: with probability >= 1 - alpha, a route that is not ABSTAIN
    leads to the class of confident ACES.

    Three tests, each at the full alpha: P_c_hat > 1/2, P_c_hat < 1/2 and Q < 1/2 (notation and
    table: `aces.rule.confident`). The proof is the one given there for PREDICT: the evidence grows
    with the number of successes, and at any time the draws outside Q's event are at least as many
    as those in E_c_hat; so whenever the first test rejects, the third one's evidence suffices too.
    At theta = 1 the question is whether c_hat beats every other class.
    """

    def __init__(
        self,
        first: Drawn,
        core: np.ndarray,
        *,
        theta: float,
        alpha: float,
        n: int,
        tv: float = 0.0,
    ):
        super().__init__(first, theta=theta, alpha=alpha, n=n, tv=tv)
        self.agree = self.guess == core
        self._smoothing = bool(bins_of(theta)[0] == BINS)
        self._majority, self._minority, self._no_other = (
            AnytimeTest(p0=0.5 + tv, alpha=alpha) for _ in range(3)
        )
        self._duels = _Duels(np.full(len(self.guess), self.level))

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        if self._smoothing:
            self._duels.update(self.of_guess(drawn), self.rivals(drawn))
            self.routes = np.where(self._duels.won, Route.CERTIFY, Route.ABSTAIN)
            return self._duels.won | self._duels.lost
        draws, mine = drawn.draws, drawn.at_most("joint_doubt", self.theta)
        others = drawn.at_most("doubt", self.theta) - mine
        self._majority.update(mine, draws)
        self._minority.update(draws - mine, draws)
        self._no_other.update(draws - others, draws)
        no_other = self._no_other.certified
        self.routes = np.select(
            [self._majority.certified, self._minority.certified & no_other, self.agree & no_other],
            [Route.CERTIFY, Route.CORE, Route.AGREE],
            Route.ABSTAIN,
        )
        # Another class has the majority: neither c_hat nor the core can be shown.
        return (self.routes != Route.ABSTAIN) | self._no_other.futile


class PaperCertify(_Question):
    """Is ACES' answer certified within `radius`, by the paper's rule? With probability >= 1 - alpha
    a route CERTIFY is true.

    A radius r > 0 needs s_hat = 1 and p_S, p_A > Phi(r / sigma). Both tests use all of alpha: where
    the claim is false, one certain of the two probabilities is too small, and that test must fail
    (intersection-union). An image with s_hat = 0 is answered by the core, which has no radius:
    it needs no draws.
    """

    def __init__(
        self,
        first: Drawn,
        *,
        radius: float,
        sigma: float,
        theta: float,
        alpha: float,
        n: int,
        tv: float = 0.0,
    ):
        super().__init__(first, theta=theta, alpha=alpha, n=n, tv=tv)
        self.certifies = _selects(first, theta)
        p0 = threshold(radius, sigma=sigma, alpha=alpha, n=n, tv=tv)
        self._selection, self._label = (AnytimeTest(p0=p0, alpha=alpha) for _ in range(2))

    @property
    def worthwhile(self) -> np.ndarray:
        """(N,) images whose question further draws can answer."""
        return self.certifies

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        self._selection.update(_selecting(drawn, self.theta, self.certifies), drawn.draws)
        self._label.update(self.of_guess(drawn), drawn.draws)
        sure = self.certifies & self._selection.certified & self._label.certified
        self.routes = np.where(sure, Route.CERTIFY, Route.ABSTAIN)
        return sure | self._selection.futile | self._label.futile | ~self.certifies


class ConfidentCertify(_Question):
    """Is confident ACES' answer certified within `radius`? With probability >= 1 - alpha a route
    CERTIFY is true.

    One test at the full alpha: P_c_hat > Phi(r / sigma) (`aces.rule.confident`); at theta = 1 this
    is p_A, and the test is that of plain smoothing.
    """

    def __init__(
        self,
        first: Drawn,
        *,
        radius: float,
        sigma: float,
        theta: float,
        alpha: float,
        n: int,
        tv: float = 0.0,
    ):
        super().__init__(first, theta=theta, alpha=alpha, n=n, tv=tv)
        doubt, of_guess = first.at_most("doubt", theta), self.of_guess(first)
        self.certifies = guess_majority(doubt, of_guess, first.draws)
        p0 = threshold(radius, sigma=sigma, alpha=alpha, n=n, tv=tv)
        self._test = AnytimeTest(p0=p0, alpha=alpha)

    @property
    def worthwhile(self) -> np.ndarray:
        """(N,) images whose question further draws can answer, as far as round GUESS shows."""
        return self.certifies

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        self._test.update(drawn.at_most("joint_doubt", self.theta), drawn.draws)
        self.routes = np.where(self._test.certified, Route.CERTIFY, Route.ABSTAIN)
        return self._test.decided


def threshold(radius: float, *, sigma: float, alpha: float, n: int, tv: float = 0.0) -> float:
    """The probability that an event must exceed for this radius; refused where n draws cannot show
    it.
    """
    # Rounded up, so that p > p0 implies the radius.
    p0 = float(np.nextafter(ndtr(radius / sigma), 1.0)) + tv
    if not (radius > 0 and p0 < 1 and log_evidence(n, n, p0=p0) >= -np.log(alpha)):
        raise InputError(
            f"radius={radius} at sigma={sigma} cannot be certified by n={n} draws at "
            f"alpha={alpha}: expected a radius above 0, and either a smaller radius or more draws"
        )
    return p0


def _selects(first: Drawn, theta: float) -> np.ndarray:
    """(N,) s_hat = 1 of the paper's rule, also in a tie (Algorithm 1)."""
    ones = first.at_most("score", theta)
    return ones >= first.score.sum(axis=1) - ones


def _selecting(drawn: Drawn, theta: float, certifies: np.ndarray) -> np.ndarray:
    """(N,) draws that select s_hat."""
    ones = drawn.at_most("score", theta)
    return np.where(certifies, ones, drawn.score.sum(axis=1) - ones)
