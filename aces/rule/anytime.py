"""Questions about N images that are answered after as few draws as they need.

Round GUESS fixes the guesses; then fresh draws feed anytime-valid tests (`aces.rule.sequential`),
which may be read after every batch. What is undecided after n draws is an abstention. Here is the
decision alone; `aces.sampling` makes the draws.

A question is asked with the draws of round GUESS, and then reads the totals of the fresh ones:

    question = ConfidentPredict(guessed, core, Terms(theta=0.4, alpha=0.001, n=10_000))
    while not all(question.read(drawn)): ...
    question.routes

The noise is within total variation `tv` of the exact law, per draw. The probability of an event
differs by at most tv, so events are tested against p0 + tv; tests that compare two classes spend
n * tv of alpha (`aces.rule.sequential.Evidence`).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from aces.errors import InputError
from aces.grid import BINS
from aces.rule.confident import guess_majority, most_of_another
from aces.rule.events import at_most, bins_of
from aces.rule.outcomes import Route
from aces.rule.sequential import AnytimeTest, log_evidence
from aces.rule.smoothing import guessed as draws_of_guess
from aces.rule.statistics import check_alpha, minus


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


@dataclass(frozen=True)
class Terms:
    """Under which a question is asked: at theta, with the total failure probability alpha, and with
    at most n draws of noise that is within total variation `tv` of the exact law, per draw.
    """

    theta: float
    alpha: float
    n: int
    tv: float = 0.0

    def __post_init__(self):
        check_alpha(self.alpha)
        if not minus(self.alpha / 2, self.n * self.tv) > 0:  # some comparisons have half of alpha
            raise InputError(
                f"alpha={self.alpha:g} is not above 2 * n * tv = {2 * self.n * self.tv:g}, twice "
                "the distance of the noise from the exact law: take a larger alpha or fewer draws"
            )

    @property
    def level(self) -> float:
        """What is left of alpha for comparisons of two classes."""
        return float(minus(self.alpha, self.n * self.tv))


class _Question:
    """What all questions have in common: the terms, the guesses, and the routes found so far."""

    def __init__(self, first: Drawn, terms: Terms):
        self.terms, self.theta = terms, terms.theta
        self.guess = first.classes.argmax(axis=1)  # (N,) c_hat
        self.routes = np.full(len(self.guess), Route.ABSTAIN)

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

    def __init__(self, first: Drawn, core: np.ndarray, terms: Terms):
        super().__init__(first, terms)
        self.certifies = _selects(first, terms.theta)
        self.agree = self.guess == core
        # Where CORE and AGREE can both answer there are two ways to fail: half of alpha each.
        share = np.where(~self.certifies & self.agree, 0.5, 1.0)
        alpha = share * terms.alpha
        self._selection = AnytimeTest(p0=_plus(0.5, terms.tv), alpha=alpha)
        self._duels = _Duels(minus(alpha, terms.n * terms.tv))

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

    Three tests, each at the full alpha: P_c_hat > 1/2, P_c_hat < 1/2, and that no other class has a
    majority, which reads the number m (notation, table and proof: `aces.rule.confident`). Where
    another class c' has the majority, consider the test of P_c' < 1/2 that reads the draws in E_c'.
    Evidence grows with the number of successes. At any time at most m draws are in E_c', so the
    third test rejects only if that one does; and at least as many draws are outside E_c' as are in
    E_c_hat, so the first test rejects only if that one does. It does with probability <= alpha. At
    theta = 1 the question is whether c_hat beats every other class.
    """

    def __init__(self, first: Drawn, core: np.ndarray, terms: Terms):
        super().__init__(first, terms)
        self.agree = self.guess == core
        self._smoothing = bool(bins_of(terms.theta)[0] == BINS)
        self._majority, self._minority, self._no_other = (
            AnytimeTest(p0=_plus(0.5, terms.tv), alpha=terms.alpha) for _ in range(3)
        )
        self._duels = _Duels(np.full(len(self.guess), terms.level))

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        if self._smoothing:
            self._duels.update(self.of_guess(drawn), self.rivals(drawn))
            self.routes = np.where(self._duels.won, Route.CERTIFY, Route.ABSTAIN)
            return self._duels.won | self._duels.lost
        draws, mine = drawn.draws, drawn.at_most("joint_doubt", self.theta)
        sure = drawn.at_most("doubt", self.theta)
        others = most_of_another((sure - mine)[:, None], drawn.classes, self.guess)[:, 0]
        self._majority.update(mine, draws)
        self._minority.update(draws - mine, draws)
        self._no_other.update(draws - others, draws)
        no_other = self._no_other.certified
        self.routes = np.select(
            [self._majority.certified, self._minority.certified & no_other, self.agree & no_other],
            [Route.CERTIFY, Route.CORE, Route.AGREE],
            Route.ABSTAIN,
        )
        # Another class has most draws, so far as can be told: neither c_hat nor the core can be
        # shown.
        return (self.routes != Route.ABSTAIN) | self._no_other.futile


class _CertifyAt(_Question, ABC):
    """Is ACES' answer certified within `radius`? With probability >= 1 - alpha a route CERTIFY is
    true.

    A radius r > 0 needs that `certify` answers, and that each of the rule's events is likelier than
    Phi(r / sigma). Every test uses all of alpha: where the claim is false, one certain of the
    probabilities is too small, and that test must fail (intersection-union). An image that the core
    answers has no radius: it needs no draws.
    """

    def __init__(self, first: Drawn, terms: Terms, *, radius: float, sigma: float):
        super().__init__(first, terms)
        self.certifies = self.guessed_route(first)
        p0 = threshold(radius, sigma=sigma, alpha=terms.alpha, n=terms.n, tv=terms.tv)
        self._tests = AnytimeTest(p0=p0, alpha=terms.alpha)

    @abstractmethod
    def guessed_route(self, first: Drawn) -> np.ndarray:
        """(N,) whether `certify` answers, as far as round GUESS shows."""

    @abstractmethod
    def events(self, drawn: Drawn) -> list[np.ndarray]:
        """For each event of the rule: (N,) the draws in which it happened."""

    @property
    def worthwhile(self) -> np.ndarray:
        """(N,) images whose question further draws can answer."""
        return self.certifies

    def read(self, drawn: Drawn) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws."""
        self._tests.update(np.stack(self.events(drawn)), drawn.draws)
        sure = self.certifies & self._tests.certified.all(axis=0)
        self.routes = np.where(sure, Route.CERTIFY, Route.ABSTAIN)
        return sure | self._tests.futile.any(axis=0) | ~self.certifies


class PaperCertify(_CertifyAt):
    """CERTIFY at one radius by the paper's rule: s_hat = 1, and p_S, p_A > Phi(r / sigma)."""

    def guessed_route(self, first: Drawn) -> np.ndarray:
        return _selects(first, self.theta)

    def events(self, drawn: Drawn) -> list[np.ndarray]:
        return [_selecting(drawn, self.theta, self.certifies), self.of_guess(drawn)]


class ConfidentCertify(_CertifyAt):
    """CERTIFY at one radius by the confident rule: P_c_hat > Phi(r / sigma)
    (`aces.rule.confident`). At theta = 1 this is p_A, and the test is that of plain smoothing.
    """

    def guessed_route(self, first: Drawn) -> np.ndarray:
        return guess_majority(first.at_most("doubt", self.theta), self.of_guess(first), first.draws)

    def events(self, drawn: Drawn) -> list[np.ndarray]:
        return [drawn.at_most("joint_doubt", self.theta)]


def threshold(radius: float, *, sigma: float, alpha: float, n: int, tv: float = 0.0) -> float:
    """The probability that an event must exceed for this radius; refused where n draws cannot show
    it.
    """
    # Rounded up, so that p > p0 implies the radius: the quotient and the distribution function err
    # by less than 2^-50 together, relative (measured: 1.5 units of 2^-53, and the quotient moves the
    # result by half a unit).
    p0 = _plus(float(ndtr(radius / sigma)) * (1 + 2.0**-50), tv)
    if not (radius > 0 and p0 < 1 and log_evidence(n, n, p0=p0) >= -np.log(alpha)):
        raise InputError(
            f"radius={radius} at sigma={sigma} cannot be certified by n={n} draws at "
            f"alpha={alpha}: expected a radius above 0, and either a smaller radius or more draws"
        )
    return p0


def _plus(p: float, distance: float) -> float:
    """p + distance, rounded up."""
    return math.nextafter(p + distance, math.inf) if distance > 0 else p


def _selects(first: Drawn, theta: float) -> np.ndarray:
    """(N,) s_hat = 1 of the paper's rule, also in a tie (Algorithm 1)."""
    ones = first.at_most("score", theta)
    return ones >= first.score.sum(axis=1) - ones


def _selecting(drawn: Drawn, theta: float, certifies: np.ndarray) -> np.ndarray:
    """(N,) draws that select s_hat."""
    ones = drawn.at_most("score", theta)
    return np.where(certifies, ones, drawn.score.sum(axis=1) - ones)
