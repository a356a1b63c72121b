"""One unit of work: noise, forward pass, counts."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aces.counts import Settings
from aces.sampling.forward import Forward, Network
from aces.sampling.noise import generator
from aces.sampling.tally import Tally
from aces.sampling.units import Unit


class Stopped(Exception):
    """Nobody waits for the unit any more."""


@dataclass(frozen=True)
class Job:
    """A unit with the images it is about."""

    unit: Unit
    images: Tensor     # (G, C, H, W) uint8, or float in [0, 1]
    index: np.ndarray  # (G,) their places in the test set, which key the noise
    guess: np.ndarray  # (G,) their guessed classes, -1 in round GUESS


@dataclass(frozen=True)
class Counter:
    """What turns jobs into counts; can be sent to another process and opened there."""

    network: Network
    settings: Settings
    num_classes: int

    def open(self, device: torch.device) -> Callable[[Job, threading.Event], np.ndarray]:
        forward = self.network.open(device)
        return lambda job, stop: self._count(job, forward, device, stop)

    @torch.inference_mode()
    def _count(self, job: Job, forward: Forward, device: torch.device, stop: threading.Event) -> np.ndarray:
        """(G, width) counts of a unit, a row for each image; see `aces.sampling.tally`. Raises Stopped once `stop` is set."""
        pixels, guess = as_pixels(job.images.to(device)), torch.from_numpy(job.guess).to(device)
        tally = Tally(images=len(pixels), num_classes=self.num_classes, device=device)
        draws = torch.empty((min(self.network.batch, job.unit.draws), *pixels.shape[1:]), device=device)
        row = torch.empty(len(draws), dtype=torch.int64, device=device)
        for size in _fills(job, pixels, draws, row, self.settings):
            if stop.is_set():
                raise Stopped
            tally.add(row[:size], guess[row[:size]], *forward(draws[:size]))
        return tally.counts()


def as_pixels(images: Tensor) -> Tensor:
    """Pixels in [0, 1], float32."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _fills(job: Job, pixels: Tensor, draws: Tensor, row: Tensor, settings: Settings) -> Iterator[int]:
    """Fill `draws` with noisy copies and `row` with their images, batch after batch; yields how many there are.

    A piece's noise comes from its own generator; a batch may end within a piece, and may hold several.
    """
    rows = {image: place for place, image in enumerate(job.unit.images)}
    filled = 0
    for piece in job.unit.pieces:
        place, left = rows[piece.image], piece.draws
        noise = generator(seed=settings.seed, model=settings.model, index=int(job.index[place]), round=job.unit.round,
                          chunk=piece.chunk, device=draws.device)
        while left:
            size = min(left, len(draws) - filled)
            draws[filled:filled + size].normal_(0.0, settings.sigma, generator=noise).add_(pixels[place])
            row[filled:filled + size] = place
            filled, left = filled + size, left - size
            if filled == len(draws):
                yield filled
                filled = 0
    if filled:
        yield filled
