"""Network and images -> counts: the costly step, limited by the forward pass and safe to interrupt.

The draws of all images are cut into units (`units`), which an engine spreads over workers; each
unit becomes counts on the device (`count`), is kept in scratch (`shards`), and is added up
(`drawing`). Sums do not depend on the order, and noise only on (seed, model hash, image index,
round, chunk): one worker or many, interrupted or not, give the same bytes.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from aces.params import Adaptive
from aces.rule.counts import Counts, Looks, Round
from aces.rule.sequential import Evidence
from aces.rule.stopping import LookBook, Stopping
from aces.runtime import Runtime
from aces.sampling import noise
from aces.sampling.drawing import Drawing, open_drawing
from aces.sampling.images import Images, as_numbers
from aces.sampling.lattice import lattice
from aces.sampling.plan import DrawPlan
from aces.sampling.tally import Score

# The looks at some images and the positions of these images -> (N,) whether each may stop.
Settled = Callable[[Looks, np.ndarray], np.ndarray]
# What the looks at some images show, their guessed classes and positions -> the same.
Enough = Callable[[Evidence, np.ndarray, np.ndarray], np.ndarray]


def sample(
    network: nn.Module,
    images: np.ndarray | Tensor | Images,
    plan: DrawPlan,
    *,
    num_classes: int,
    runtime: Runtime = Runtime(),
    index=None,
    label=None,
    select: nn.Module | None = None,
    score: Score | None = None,
    enough: Enough | None = None,
) -> Counts:
    """Draw noisy copies of each image, run the network on them, and count classes and scores.

    The draws are independent: across images, rounds and chunks, and across networks and seeds. With
    `runtime.scratch`, finished work survives there under the fingerprint of what it depends on, and
    a later call goes on with it. With `plan.adaptive`, an image stops once more draws would change
    no answer at its thetas, or, where `enough` is given, once that says so (`aces.rule.choice`); the
    counts then hold the looks.

    network: images (D, C, H, W) in [0, 1] -> logits (D, K), used in eval mode; select: the same
    with two logits, whose softmax is the score instead of the entropy; score: a function from
    logits (D, K) to scores (D,) in [0, 1], which is the score instead. images: (N, H, W, C) or
    (N, C, H, W) uint8, or (N, C, H, W) floats in [0, 1]. index: (N,) positions in the test set,
    which key the noise; label: (N,) kept beside the counts (default -1).
    """
    images = Images.of(images)
    label = np.full(len(images), -1) if label is None else as_numbers("label", label, len(images))
    with open_drawing(
        network,
        images,
        plan,
        num_classes=num_classes,
        runtime=runtime,
        index=index,
        select=select,
        score=score,
    ) as drawing:
        everyone = np.arange(len(images))
        drawing.draw(Round.GUESS, everyone, stop=plan.n0)
        if plan.adaptive is None:
            drawing.draw(Round.BOUND, everyone, stop=plan.n)
            drawing.draw(Round.PREDICT, everyone, stop=plan.n_predict)
            looks = None
        else:
            looks = _draw_adaptively(drawing, plan, plan.adaptive, enough)
    return drawing.counts(label, looks)


def _draw_adaptively(
    drawing: Drawing, plan: DrawPlan, adaptive: Adaptive, enough: Enough | None
) -> dict[Round, Looks]:
    """Rounds BOUND and PREDICT with early stops, after round GUESS."""
    if enough is not None:
        return {Round.BOUND: _draw_until(drawing, plan, adaptive, enough)}
    stopping = Stopping(
        adaptive,
        sigma=plan.sigma,
        guess=drawing.guess,
        classes=drawing.classes[Round.GUESS],
        score=drawing.score[Round.GUESS],
        doubt=drawing.doubt[Round.GUESS],
    )
    rounds = (
        (Round.BOUND, plan.n, stopping.certified if plan.n_predict else stopping.settled),
        (Round.PREDICT, plan.n_predict, stopping.predicted),
    )
    return {
        round_: _draw_in_looks(drawing, round_, adaptive, n=draws, settled=settled)
        for round_, draws, settled in rounds
        if draws
    }


def _draw_until(drawing: Drawing, plan: DrawPlan, adaptive: Adaptive, enough: Enough) -> Looks:
    """Round BOUND, until the draws of an image are enough."""

    def settled(looks: Looks, images: np.ndarray) -> np.ndarray:
        return enough(Evidence(looks, drawing.settings.tv), drawing.guess[images], images)

    return _draw_in_looks(drawing, Round.BOUND, adaptive, n=plan.n, settled=settled)


def _draw_in_looks(
    drawing: Drawing, round_: Round, adaptive: Adaptive, *, n: int, settled: Settled
) -> Looks:
    """A round, look by look, each for the images that are worth more draws."""
    book = LookBook(
        adaptive,
        n=n,
        chunk=drawing.settings.chunk,
        images=len(drawing.images),
        num_classes=drawing.num_classes,
    )
    left, start = np.arange(len(drawing.images)), 0
    for stop in book.looks.draws:
        drawing.draw(round_, left, start=start, stop=stop)
        book.add(
            left,
            classes=drawing.classes[round_],
            score=drawing.score[round_],
            doubt=drawing.doubt[round_],
            joint_doubt=drawing.joint_doubt[round_],
        )
        stays = ~settled(book.of(left), left)
        drawing.skip(int((~stays).sum()) * int(n - stop))
        left, start = left[stays], stop
        if not len(left):
            break
    return book.looks


def rounding_distance(images: np.ndarray | Tensor | Images, plan: DrawPlan) -> np.ndarray:
    """(N,) how far, in the l2 norm, each image is from the lattice point that is sampled for it.

    0 for uint8 images and for float noise. With exact noise a certificate speaks of the lattice
    point: around the image itself its radius is smaller by this distance.
    """
    checked = Images.of(images)
    if plan.noise == "float":
        return np.zeros(len(checked))
    return noise.rounding_distance(checked.pixels, lattice(plan.sigma))
