"""One unit of work: noise, forward pass, counts."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aces.errors import InputError
from aces.rule.counts import Settings
from aces.sampling.forward import Forward, Network, opened
from aces.sampling.images import as_floats
from aces.sampling.noise import generator
from aces.sampling.tally import Tally
from aces.sampling.units import Unit

_BLOCK = 2048  # draws whose logits are counted together


class Stopped(Exception):
    """Nobody waits for the unit any more."""


@dataclass(frozen=True)
class Job:
    """A unit with the images it is about."""

    unit: Unit
    images: Tensor  # (G, C, H, W) uint8, or float in [0, 1]
    index: np.ndarray  # (G,) their places in the test set, which key the noise
    guess: np.ndarray  # (G,) their guessed classes, -1 in round GUESS


@dataclass(frozen=True)
class Counter:
    """What turns jobs into counts; can be sent to another process and opened there."""

    network: Network
    settings: Settings
    num_classes: int

    def open(self, device: torch.device) -> Callable[[Job, threading.Event], np.ndarray]:
        here = self.network.backend_on(device)
        if here != self.network.backend:
            raise InputError(
                f"{os.uname().nodename} would run the network by {here}, the others by {self.network.backend}: "
                "give every node the same environment and the same kind of device"
            )
        forward = opened(self.network, device)
        return lambda job, stop: self._count(job, forward, device, stop)

    @torch.inference_mode()
    def _count(
        self, job: Job, forward: Forward, device: torch.device, stop: threading.Event
    ) -> np.ndarray:
        """(G, width) counts of a unit, a row for each image; see `aces.sampling.tally`. Raises
        Stopped once `stop` is set.
        """
        pixels, guess = as_floats(job.images.to(device)), torch.from_numpy(job.guess).to(device)
        tally = Tally(guess, num_classes=self.num_classes)
        row = torch.repeat_interleave(
            *(torch.tensor(column, device=device) for column in zip(*_rows(job.unit)))
        )
        made = counted = 0
        logits = []
        for draws in _batches(job, pixels, size=self.network.batch, settings=self.settings):
            if stop.is_set():
                raise Stopped
            logits.append(forward(draws))
            made += len(draws)
            if made - counted >= _BLOCK or made == job.unit.draws:
                tally.add(row[counted:made], *map(torch.cat, zip(*logits)))
                counted, logits = made, []
        return tally.counts()


def _rows(unit: Unit) -> list[tuple[int, int]]:
    """(row of its image in the tally, draws) of each piece."""
    rows = {image: row for row, image in enumerate(unit.images)}
    return [(rows[piece.image], piece.draws) for piece in unit.pieces]


def _batches(job: Job, pixels: Tensor, *, size: int, settings: Settings) -> Iterator[Tensor]:
    """Noisy copies of the images, piece after piece, in batches of `size` that share one buffer;
    one may hold several pieces.
    """
    batch = torch.empty((min(size, job.unit.draws), *pixels.shape[1:]), device=pixels.device)
    filled = 0
    for draws in _blocks(job, pixels, size=size, settings=settings):
        if filled == 0 and len(draws) == len(batch):
            yield draws
            continue
        while len(draws):
            step = min(len(draws), len(batch) - filled)
            batch[filled : filled + step] = draws[:step]
            filled, draws = filled + step, draws[step:]
            if filled == len(batch):
                yield batch
                filled = 0
    if filled:
        yield batch[:filled]


def _blocks(job: Job, pixels: Tensor, *, size: int, settings: Settings) -> Iterator[Tensor]:
    """The noisy copies in blocks of at most `size`, in a buffer that is used again.

    A piece's noise comes from its own generator, in blocks counted from its own start: how a
    request is cut can change what torch draws, and a piece's draws must not depend on its
    neighbours.
    """
    block = torch.empty((min(size, job.unit.draws), *pixels.shape[1:]), device=pixels.device)
    for piece, (row, draws) in zip(job.unit.pieces, _rows(job.unit)):
        noise = generator(
            seed=settings.seed,
            model=settings.model,
            index=int(job.index[row]),
            round=job.unit.round,
            chunk=piece.chunk,
            device=pixels.device,
        )
        for start in range(0, draws, size):
            yield (
                block[: min(size, draws - start)]
                .normal_(0.0, settings.sigma, generator=noise)
                .add_(pixels[row])
            )
