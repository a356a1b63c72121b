"""Network and images -> counts: the costly step, limited by the forward pass and safe to interrupt.

The draws of all images are cut into units (`units`), which an engine spreads over workers; each
unit becomes counts on the device (`count`), is kept in scratch (`shards`), and is added up (`run`).
Sums do not depend on the order, and noise only on (seed, model hash, image index, round, chunk):
one worker or many, interrupted or not, give the same bytes.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from aces.params import Adaptive
from aces.rule.counts import Counts, Looks, Round
from aces.sampling.adaptive import LookBook, Stopping
from aces.sampling.inputs import as_numbers
from aces.sampling.run import Run, open_run

CHUNK = 1000

Settled = Callable[
    [Looks, np.ndarray], np.ndarray
]  # looks at some images, their places -> (N,) whether each may stop


def sample(
    model: nn.Module,
    images: np.ndarray | Tensor,
    *,
    sigma: float,
    num_classes: int,
    n0: int,
    n: int,
    n_predict: int,
    seed: int,
    chunk: int = CHUNK,
    index=None,
    label=None,
    select: nn.Module | None = None,
    precision: str = "float32",
    adaptive: Adaptive | None = None,
    device: str = "auto",
    workers: int | None = None,
    engine: str = "local",
    scratch: Path | None = None,
    progress: bool = True,
) -> Counts:
    """Draw noisy copies of each image, run the network on them, and count classes and scores.

    The draws are independent: across images, rounds and chunks, and across networks and seeds. With
    `scratch`, finished work survives there under the fingerprint of what it depends on, and a later
    call goes on with it.

    model: images (D, C, H, W) in [0, 1] -> logits (D, K), used in eval mode; select: the same with
    two logits, for the score `network`. images: (N, H, W, C) or (N, C, H, W) uint8, or (N, C,
    H, W) floats in [0, 1]. index: (N,) places in the test set, which key the noise; label: (N,)
    kept beside the counts (default -1). adaptive: stop an image once more draws would change no
    answer at its thetas; the counts then hold the looks. device, workers, engine, progress: change
    only the speed and what is shown.
    """
    label = np.full(len(images), -1) if label is None else as_numbers("label", label, len(images))
    with open_run(
        model,
        images,
        sigma=sigma,
        num_classes=num_classes,
        n0=n0,
        n=n,
        n_predict=n_predict,
        seed=seed,
        chunk=chunk,
        index=index,
        select=select,
        precision=precision,
        device=device,
        workers=workers,
        engine=engine,
        scratch=scratch,
        progress=progress,
    ) as run:
        everyone, looks = np.arange(len(run.images)), {}
        run.draw(Round.GUESS, everyone, stop=n0)
        if adaptive is None:
            run.draw(Round.BOUND, everyone, stop=n)
            run.draw(Round.PREDICT, everyone, stop=n_predict)
        else:
            stopping = Stopping(
                adaptive, sigma=sigma, guess=run.guess, guess_score=run.score[Round.GUESS]
            )
            for round_, draws, settled in (
                (Round.BOUND, n, stopping.certified),
                (Round.PREDICT, n_predict, stopping.predicted),
            ):
                if draws:
                    looks[round_] = _draw_in_looks(run, round_, adaptive, n=draws, settled=settled)
    return Counts(
        classes=run.classes,
        score=run.score,
        doubt=run.doubt,
        joint_score=run.joint_score,
        joint_doubt=run.joint_doubt,
        invalid=run.invalid,
        index=run.index,
        label=label,
        guess=run.guess,
        settings=run.settings,
        looks=looks,
    )


def _draw_in_looks(
    run: Run, round_: Round, adaptive: Adaptive, *, n: int, settled: Settled
) -> Looks:
    """A round, look by look, each for the images that are worth more draws."""
    book = LookBook(
        adaptive, n=n, chunk=run.settings.chunk, images=len(run.images), num_classes=run.num_classes
    )
    left, start = np.arange(len(run.images)), 0
    for stop in book.looks.draws:
        run.draw(round_, left, start=start, stop=stop)
        book.add(
            left,
            classes=run.classes[round_],
            score=run.score[round_],
            doubt=run.doubt[round_],
            joint_doubt=run.joint_doubt[round_],
        )
        stays = ~settled(book.of(left), left)
        run.skip(int((~stays).sum()) * int(n - stop))
        left, start = left[stays], stop
        if not len(left):
            break
    return book.looks
