"""Noisy copies of images in batches of one fixed size, which is all that a network ever sees.

With one size, no kernel of the forward pass is chosen by the number of draws that happen to be
left: a draw's logits depend on the draw alone. Rows of the last batch that no draw needs are 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aces.rule.counts import Settings
from aces.sampling.images import as_floats
from aces.sampling.lattice import lattice
from aces.sampling.noise import (
    AliasNoise,
    cipher_key,
    exact_noise,
    generator,
    lattice_points,
    stream_of,
)
from aces.sampling.units import Piece, Unit


@dataclass(frozen=True)
class Job:
    """A unit with the images it is about."""

    unit: Unit
    images: Tensor  # (G, C, H, W) uint8, or floats in [0, 1]
    index: np.ndarray  # (G,) their positions in the test set, which key the noise
    guess: np.ndarray  # (G,) their guessed classes, -1 in round GUESS


class Batch(NamedTuple):
    """Noisy copies in a buffer that the next batch overwrites."""

    draws: Tensor  # (size, C, H, W) float32
    used: int  # how many of them are draws; the others fill the batch up

    def kept(self, logits: list[Tensor]) -> list[Tensor]:
        """What networks answered to the draws, without what they answered to the other rows."""
        return logits if self.used == len(self.draws) else [each[: self.used] for each in logits]


class _Part(NamedTuple):
    """The draws of one piece."""

    row: int  # of its image in the unit
    draws: int
    stream: bytes


def batches(job: Job, settings: Settings, *, size: int, device: torch.device) -> Iterator[Batch]:
    """The noisy copies of a unit, piece after piece; a batch may hold several pieces."""
    if settings.noise == "exact" and device.type == "cpu":
        return _in_place(job, settings, size=size)
    return _assembled(job, settings, size=size, device=device)


def rows_of(unit: Unit) -> np.ndarray:
    """(D,) the row, among the unit's images, of each of its draws."""
    parts = _rows(unit)
    return np.repeat([row for row, _ in parts], [draws for _, draws in parts])


def _rows(unit: Unit) -> list[tuple[int, int]]:
    """(row of its image, draws) of each piece."""
    rows = {image: row for row, image in enumerate(unit.images)}
    return [(rows[piece.image], piece.draws) for piece in unit.pieces]


def _parts(job: Job, settings: Settings) -> Iterator[_Part]:
    for piece, (row, draws) in zip(job.unit.pieces, _rows(job.unit), strict=True):
        yield _Part(row, draws, _stream(job, settings, row, piece))


def _stream(job: Job, settings: Settings, row: int, piece: Piece) -> bytes:
    return stream_of(
        seed=settings.seed,
        model=settings.model,
        index=int(job.index[row]),
        round=job.unit.round,
        chunk=piece.chunk,
    )


def _in_place(job: Job, settings: Settings, *, size: int) -> Iterator[Batch]:
    """Exact noise on a CPU, written where the network reads it: a draw depends on its stream and
    its number in it, so a batch may begin anywhere.
    """
    steps = lattice(settings.sigma)
    points, add = lattice_points(job.images, steps), exact_noise(steps)
    base, batch = points.flatten(1).numpy(), torch.zeros((size, *points.shape[1:]))
    flat = batch.view(size, -1).numpy()  # the batch's own memory
    full, filled = Batch(batch, size), 0
    for part in _parts(job, settings):
        key, made = cipher_key(part.stream), 0
        while made < part.draws:
            step = min(part.draws - made, size - filled)
            add(flat[filled : filled + step], base[part.row], key, made)
            made, filled = made + step, filled + step
            if filled == size:
                yield full
                filled = 0
    if filled:
        batch[filled:] = 0
        yield Batch(batch, filled)


def _assembled(job: Job, settings: Settings, *, size: int, device: torch.device) -> Iterator[Batch]:
    """Noise of a torch generator, in blocks that are put together to batches."""
    batch = torch.zeros((size, *job.images.shape[1:]), device=device)
    filled = 0
    for draws in _blocks(job, settings, size=size, device=device):
        if filled == 0 and len(draws) == size:
            yield Batch(draws, size)
            continue
        while len(draws):
            step = min(len(draws), size - filled)
            batch[filled : filled + step] = draws[:step]
            filled, draws = filled + step, draws[step:]
            if filled == size:
                yield Batch(batch, size)
                filled = 0
    if filled:
        batch[filled:] = 0
        yield Batch(batch, filled)


def _blocks(job: Job, settings: Settings, *, size: int, device: torch.device) -> Iterator[Tensor]:
    """The noisy copies in blocks of at most `size`, in a buffer that is used again.

    A piece's noise comes from its own generator, in blocks counted from its own start: how a
    request is cut can change what torch draws, and a piece's draws must not depend on its
    neighbours.
    """
    add = _adder(job, settings, device)
    block = torch.empty((min(size, job.unit.draws), *job.images.shape[1:]), device=device)
    for part in _parts(job, settings):
        source = generator(part.stream, device)
        for start in range(0, part.draws, size):
            yield add(block[: min(size, part.draws - start)], part.row, source)


def _adder(
    job: Job, settings: Settings, device: torch.device
) -> Callable[[Tensor, int, torch.Generator], Tensor]:
    """A function that fills a block with noisy copies of the image in a row."""
    if settings.noise == "exact":
        steps = lattice(settings.sigma)
        base, noise = lattice_points(job.images, steps).to(device), AliasNoise(steps, device)
        return lambda block, row, source: noise.add(block, base[row], source)
    pixels = as_floats(job.images.to(device))
    return lambda block, row, source: block.normal_(0.0, settings.sigma, generator=source).add_(
        pixels[row]
    )
