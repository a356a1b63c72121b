"""One answer with few draws: sample an image until its question is decided, soundly.

Round GUESS fixes s_hat and c_hat as in Algorithm 1; then fresh draws feed anytime-valid tests
(`aces.rule.sequential`), which may be read after every batch. What is left undecided after n draws
is an abstention.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from aces.errors import InputError
from aces.rule import ABSTAIN, Route, rule_of
from aces.rule.anytime import (
    ConfidentCertify,
    ConfidentPredict,
    Drawn,
    PaperCertify,
    PaperPredict,
    Terms,
)
from aces.rule.counts import Round, Settings
from aces.runtime import Runtime
from aces.sampling.drawing import Drawing, open_drawing
from aces.sampling.images import Images, as_numbers
from aces.sampling.lattice import lattice
from aces.sampling.noise import rounding_distance
from aces.sampling.plan import DrawPlan

CERTIFY: dict[str, type[PaperCertify] | type[ConfidentCertify]] = {
    "paper": PaperCertify,
    "confident": ConfidentCertify,
}
PREDICT: dict[str, type[PaperPredict] | type[ConfidentPredict]] = {
    "paper": PaperPredict,
    "confident": ConfidentPredict,
}
Question = PaperCertify | PaperPredict | ConfidentCertify | ConfidentPredict
CHUNK = 32  # draws between two readings at first
GROWTH = 1.25  # each reading has so many times the draws of the last: at most 25 % are wasted


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
    rule: str | None = None,
    runtime: Runtime = Runtime(),
    index=None,
    select: nn.Module | None = None,
) -> list[Answer]:
    """With probability >= 1 - alpha, for each image: unless it is ABSTAIN, ACES answers
    `prediction` everywhere within `radius`.

    The tests are those of `aces.rule.anytime`. An image that is answered by the core has no radius:
    it is left after round GUESS. Float images are rounded to the lattice of the noise; the distance
    is added to the radius that is tested, so that the answer speaks of the images as they are.

    Of the plan, at most n draws are made for an image. Its `chunk`, `n_predict` and `adaptive` are
    not used: the tests are read after few draws at first and then ever more rarely. The rule is
    `confident` by default, and `paper` where there is a `select`, as in `aces.ACES`. The other
    arguments are those of `aces.sampling.sample`.
    """
    if not radius > 0:
        raise InputError(f"radius={radius}: expected a number above 0, in [0, 1] pixel units")
    rule = rule_of(rule, selects=select is not None)
    with _guessed(
        network, images, plan, num_classes=num_classes, runtime=runtime, index=index, select=select
    ) as drawing:
        question = CERTIFY[rule](
            _drawn(drawing, Round.GUESS),
            Terms(theta=theta, alpha=alpha, n=plan.n, tv=drawing.settings.tv),
            radius=math.nextafter(radius + _farthest(drawing, plan), math.inf),
            sigma=plan.sigma,
        )
        _draw_until(question, drawing, np.flatnonzero(question.worthwhile), n=plan.n)
        sure = question.routes == Route.CERTIFY
        return _answers(
            drawing,
            prediction=np.where(sure, drawing.guess, ABSTAIN),
            radius=np.where(sure, radius, 0.0),
            route=question.routes,
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
    rule: str | None = None,
    runtime: Runtime = Runtime(),
    index=None,
    select: nn.Module | None = None,
) -> list[Answer]:
    """With probability >= 1 - alpha, for each image: unless it is ABSTAIN, ACES answers
    `prediction`.

    core: (N,) classes of the core network. The plan and the other arguments are those of
    `certify_at`; the tests are those of `aces.rule.anytime`.
    """
    core = as_numbers("core", core, len(images))
    rule = rule_of(rule, selects=select is not None)
    with _guessed(
        network, images, plan, num_classes=num_classes, runtime=runtime, index=index, select=select
    ) as drawing:
        question = PREDICT[rule](
            _drawn(drawing, Round.GUESS),
            core,
            Terms(theta=theta, alpha=alpha, n=plan.n, tv=drawing.settings.tv),
        )
        _draw_until(question, drawing, np.arange(len(core)), n=plan.n)
        routes = question.routes
        prediction = np.select(
            [routes == Route.ABSTAIN, routes == Route.CORE],
            [ABSTAIN, core],
            drawing.guess,
        )
        return _answers(drawing, prediction=prediction, radius=np.zeros(len(core)), route=routes)


def _farthest(drawing: Drawing, plan: DrawPlan) -> float:
    """The largest distance of an image from the lattice point that is sampled for it."""
    if plan.noise == "float":
        return 0.0
    return float(rounding_distance(drawing.images, lattice(plan.sigma)).max())


def _drawn(drawing: Drawing, round_: Round) -> Drawn:
    """The totals of a round so far."""
    return Drawn(
        classes=drawing.classes[round_],
        score=drawing.score[round_],
        doubt=drawing.doubt[round_],
        joint_doubt=drawing.joint_doubt[round_],
        invalid=drawing.invalid[round_],
    )


@contextmanager
def _guessed(network: nn.Module, images, plan: DrawPlan, **options) -> Iterator[Drawing]:
    """The drawing of a plan after round GUESS."""
    plan = replace(plan, n_predict=0, chunk=CHUNK, adaptive=None)
    with open_drawing(network, images, plan, **options) as drawing:
        drawing.draw(Round.GUESS, range(len(drawing.images)), stop=plan.n0)
        yield drawing


def _draw_until(question: Question, drawing: Drawing, left: np.ndarray, *, n: int) -> None:
    """Draw for the images `left` until the question calls each decided, or n draws are made."""
    start = 0
    while len(left) and start < n:
        stop = min(n, CHUNK * int(np.ceil(max(start + CHUNK, start * GROWTH) / CHUNK)))
        drawing.draw(Round.BOUND, left, start=start, stop=stop)
        left, start = left[~question.read(_drawn(drawing, Round.BOUND))[left]], stop


def _answers(
    drawing: Drawing, *, prediction: np.ndarray, radius: np.ndarray, route: np.ndarray
) -> list[Answer]:
    invalid = drawing.invalid.sum(axis=0)
    draws = drawing.classes.sum(axis=(0, 2)) + invalid
    return [
        Answer(int(p), float(r), Route(w), int(d), int(i), drawing.settings)
        for p, r, w, d, i in zip(prediction, radius, route, draws, invalid, strict=True)
    ]
