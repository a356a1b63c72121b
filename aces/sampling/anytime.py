"""One answer with few draws: sample an image until its question is decided, soundly.

Round GUESS fixes s_hat and c_hat as in Algorithm 1; then fresh draws feed anytime-valid tests
(`aces.rule.sequential`), which may be read after every batch. What is left undecided after n draws
is an abstention.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr
from torch import Tensor, nn

from aces.errors import InputError
from aces.rule.composition import Route, places_of
from aces.rule.counts import Round, Settings
from aces.rule.sequential import AnytimeTest, log_evidence
from aces.rule.smoothing import ABSTAIN
from aces.rule.statistics import check_alpha
from aces.runtime import Runtime
from aces.sampling.drawing import Drawing, open_drawing
from aces.sampling.images import Images, as_numbers
from aces.sampling.plan import DrawPlan

CHUNK = 32  # draws between two readings at first
GROWTH = 1.25  # of the draws from one reading to the next: at most this many more than were needed


@dataclass(frozen=True)
class Answer:
    """What the draws of one image say, with probability >= 1 - alpha."""

    prediction: int  # class, or ABSTAIN
    radius: float  # the radius asked for, 0 where it is not certified
    route: Route
    draws: int  # made in all
    invalid: int  # of these, with NaN or infinite logits
    settings: Settings  # of the draws


def certify_at(
    network: nn.Module,
    images: np.ndarray | Tensor | Images,
    plan: DrawPlan,
    *,
    radius: float,
    theta: float,
    alpha: float,
    num_classes: int,
    runtime: Runtime = Runtime(),
    index=None,
    select: nn.Module | None = None,
) -> list[Answer]:
    """With probability >= 1 - alpha, for each image: unless it is ABSTAIN, ACES answers
    `prediction` everywhere within `radius`.

    ACES with radius r > 0 needs s_hat = 1 and p_S, p_A > Phi(r / sigma). The two tests use all of
    alpha each: where the claim is false, one certain of the two probabilities is too small, and
    that test must fail (intersection-union). An image with s_hat = 0 is answered by the core, which
    has no radius: it is left after round GUESS.

    Of the plan, at most n draws are made for an image. Its `chunk`, `n_predict` and `adaptive` are
    not used: the tests are read after few draws at first and then ever more rarely. The other
    arguments are those of `aces.sampling.sample`.
    """
    check_alpha(alpha)
    sigma, n = plan.sigma, plan.n
    # Rounded up, so that p > p0 implies the radius.
    p0 = np.nextafter(ndtr(radius / sigma), 1.0)
    if not (radius > 0 and p0 < 1 and log_evidence(n, n, p0=p0) >= -np.log(alpha)):
        raise InputError(
            f"radius={radius} at sigma={sigma} cannot be certified by n={n} draws at alpha={alpha}: expected a "
            "radius above 0, and either a smaller radius or more draws"
        )
    with _guessed(
        network,
        images,
        plan,
        num_classes=num_classes,
        runtime=runtime,
        index=index,
        select=select,
    ) as drawing:
        selects = _Selection(drawing, theta)
        selection, label = AnytimeTest(p0=p0, alpha=alpha), AnytimeTest(p0=p0, alpha=alpha)

        def read() -> np.ndarray:
            selection.update(selects.agreeing(drawing), drawing.draws)
            label.update(drawing.guessed, drawing.draws)
            return (selection.certified & label.certified) | selection.futile | label.futile

        _draw_until(read, drawing, np.flatnonzero(selects.certifies), n=n)
        sure = selects.certifies & selection.certified & label.certified
        return _answers(
            drawing,
            prediction=np.where(sure, drawing.guess, ABSTAIN),
            radius=np.where(sure, radius, 0.0),
            route=np.where(sure, Route.CERTIFY, Route.ABSTAIN),
        )


def predict(
    network: nn.Module,
    images: np.ndarray | Tensor | Images,
    plan: DrawPlan,
    *,
    core: np.ndarray,
    theta: float,
    alpha: float,
    num_classes: int,
    runtime: Runtime = Runtime(),
    index=None,
    select: nn.Module | None = None,
) -> list[Answer]:
    """With probability >= 1 - alpha, for each image: unless it is ABSTAIN, ACES answers
    `prediction`.

    core: (N,) classes of the core network. The plan and the other arguments are those of
    `certify_at`; the rule is `PredictRule`.
    """
    check_alpha(alpha)
    core = as_numbers("core", core, len(images))
    with _guessed(
        network,
        images,
        plan,
        num_classes=num_classes,
        runtime=runtime,
        index=index,
        select=select,
    ) as drawing:
        selects = _Selection(drawing, theta)
        rule = PredictRule(certifies=selects.certifies, agree=drawing.guess == core, alpha=alpha)
        _draw_until(
            lambda: rule.read(
                selects.agreeing(drawing), drawing.draws, drawing.guessed, _rivals(drawing)
            ),
            drawing,
            np.arange(len(core)),
            n=plan.n,
        )
        prediction = np.select(
            [rule.routes == Route.ABSTAIN, rule.routes == Route.CORE],
            [ABSTAIN, core],
            drawing.guess,
        )
        return _answers(
            drawing, prediction=prediction, radius=np.zeros(len(core)), route=rule.routes
        )


class PredictRule:
    """PREDICT of N images with tests that may be read at any time: with probability >= 1 - alpha, a
    route that is not ABSTAIN leads to ACES' class.

    Routes and levels are those of CERTIFY (`aces.rule.composition.certify`), with two tests: that
    s_hat has the majority, and that c_hat beats every other class. The latter is one test for each
    rival, on the draws of either class, each at the full level: if c_hat is not the winner, the
    winner's test must fail. An invalid draw counts against every test.

    certifies: (N,) whether s_hat = 1; agree: (N,) whether c_hat is the core network's class.
    """

    def __init__(self, *, certifies: np.ndarray, agree: np.ndarray, alpha: float):
        level = np.where(~certifies & agree, alpha / 2, alpha)
        self._certifies, self._agree = certifies, agree
        self._selection, self._duels = (
            AnytimeTest(p0=0.5, alpha=level),
            AnytimeTest(p0=0.5, alpha=level[:, None]),
        )
        self.routes = np.full(len(agree), Route.ABSTAIN)

    def read(
        self, agreeing: np.ndarray, draws: np.ndarray, guessed: np.ndarray, rivals: np.ndarray
    ) -> np.ndarray:
        """Take in the totals so far; (N,) whether an image needs no more draws.

        agreeing, guessed: (N,) draws that select s_hat, and those of class c_hat; rivals: (N, K -
        1) draws of each other class, the invalid ones included in each.
        """
        certifies, agree = self._certifies, self._agree
        self._selection.update(agreeing, draws)
        self._duels.update(guessed[:, None], guessed[:, None] + rivals)
        sure, wins, loses = (
            self._selection.certified,
            self._duels.certified.all(axis=1),
            self._duels.futile.any(axis=1),
        )
        self.routes = np.select(
            [certifies & sure & wins, ~certifies & sure, agree & wins],
            [Route.CERTIFY, Route.CORE, Route.AGREE],
            Route.ABSTAIN,
        )
        unsure = self._selection.futile
        hopeless = np.where(certifies, loses | (unsure & ~agree), unsure & (loses | ~agree))
        return (self.routes != Route.ABSTAIN) | hopeless


class _Selection:
    """The guessed selections at one theta, and the draws that agree with them."""

    def __init__(self, drawing: Drawing, theta: float):
        (self.place,) = places_of(theta)
        ones, zeros = self._votes(drawing.score[Round.GUESS])
        self.certifies = ones >= zeros  # (N,) s_hat = 1, also in a tie (Algorithm 1)

    def agreeing(self, drawing: Drawing) -> np.ndarray:
        """(N,) draws of round BOUND that select s_hat."""
        return np.where(self.certifies, *self._votes(drawing.score[Round.BOUND]))

    def _votes(self, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return score[:, : self.place + 1].sum(axis=1), score[:, self.place + 1 :].sum(axis=1)


@contextmanager
def _guessed(network: nn.Module, images, plan: DrawPlan, **options) -> Iterator[Drawing]:
    """The drawing of a plan after round GUESS."""
    plan = replace(plan, n_predict=0, chunk=CHUNK, adaptive=None)
    with open_drawing(network, images, plan, **options) as drawing:
        drawing.draw(Round.GUESS, range(len(drawing.images)), stop=plan.n0)
        yield drawing


def _draw_until(
    read: Callable[[], np.ndarray], drawing: Drawing, left: np.ndarray, *, n: int
) -> None:
    """Draw for the images `left` until `read` calls each decided, or n draws are made."""
    start = 0
    while len(left) and start < n:
        stop = min(n, CHUNK * int(np.ceil(max(start + CHUNK, start * GROWTH) / CHUNK)))
        drawing.draw(Round.BOUND, left, start=start, stop=stop)
        left, start = left[~read()[left]], stop


def _rivals(drawing: Drawing) -> np.ndarray:
    """(N, K - 1) draws of each class but the guessed one; invalid draws go to every rival."""
    others = np.arange(drawing.num_classes) != drawing.guess[:, None]
    return (
        drawing.classes[Round.BOUND][others].reshape(len(others), -1)
        + drawing.invalid[Round.BOUND][:, None]
    )


def _answers(
    drawing: Drawing, *, prediction: np.ndarray, radius: np.ndarray, route: np.ndarray
) -> list[Answer]:
    invalid = drawing.invalid.sum(axis=0)
    draws = drawing.classes.sum(axis=(0, 2)) + invalid
    return [
        Answer(int(p), float(r), Route(w), int(d), int(i), drawing.settings)
        for p, r, w, d, i in zip(prediction, radius, route, draws, invalid)
    ]
