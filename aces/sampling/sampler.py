"""Network and images -> counts: the costly step, limited by the forward pass and safe to interrupt.

The draws of all images are cut into units (`units`), which an engine spreads over workers; each unit becomes counts on
the device (`count`), is kept in scratch (`shards`), and is added up here. Sums do not depend on the order, and noise
only on (seed, model hash, image index, round, chunk): one worker or many, interrupted or not, give the same bytes.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aces import console
from aces.counts import BINS, Counts, Round, Settings
from aces.params import Adaptive
from aces.sampling.adaptive import Stopping
from aces.sampling.count import Counter, Job, as_pixels
from aces.sampling.forward import hash_of, prepare
from aces.sampling.inputs import as_images, as_numbers, check_index, check_settings
from aces.sampling.local import LocalEngine, devices
from aces.sampling.ray_engine import RayEngine
from aces.sampling.shards import Shards, open_shards
from aces.sampling.tally import split, width
from aces.sampling.units import Unit, cut

CHUNK = 1000
GRID = [i / 100 for i in range(101)]  # thetas an adaptive run keeps exact, unless told


def sample(model: nn.Module, images: np.ndarray | Tensor, *, sigma: float, num_classes: int, n0: int, n: int, n_predict: int,
           seed: int, chunk: int = CHUNK, index=None, label=None, select: nn.Module | None = None,
           precision: str = "float32", adaptive: Adaptive | None = None, thetas=None, alpha: float | None = None,
           device: str = "auto", workers: int | None = None, engine: str = "local", scratch: Path | None = None,
           progress: bool = True) -> Counts:
    """Draw noisy copies of each image, run the network on them, and count classes and scores.

    The draws are independent: across images, rounds and chunks, and across networks and seeds. With `scratch`, finished
    work survives there under the fingerprint of what it depends on, and a later call goes on with it.

    model: images (D, C, H, W) in [0, 1] -> logits (D, K), used in eval mode; select: the same with two logits, for the
    mechanism `network`. images: (N, H, W, C) or (N, C, H, W) uint8, or (N, C, H, W) floats in [0, 1].
    index: (N,) places in the test set, which key the noise; label: (N,) kept beside the counts (default -1).
    adaptive: stop an image once more draws would change no answer (`aces.sampling.adaptive`).
    device, workers, engine, progress: change only the speed and what is shown.
    """
    check_settings(sigma=sigma, num_classes=num_classes, n0=n0, n=n, n_predict=n_predict, seed=seed, chunk=chunk,
                   precision=precision, engine=engine, workers=workers)
    images = as_images(images)
    index = as_numbers("index", index, len(images))
    label = np.full(len(images), -1) if label is None else as_numbers("label", label, len(images))
    check_index(index)
    places = devices(device)
    network = prepare(model, select, example=_example(images, sigma), num_classes=num_classes, precision=precision,
                      device=places[0])
    settings = Settings(sigma=float(sigma), n0=int(n0), n=int(n), n_predict=int(n_predict), seed=int(seed), chunk=int(chunk),
                        model=hash_of(model, select), precision=precision, backend=network.backend,
                        mechanism="entropy" if select is None else "network")
    kind = LocalEngine if engine == "local" else RayEngine
    about = _about(settings, images, index, num_classes=num_classes, batch=network.batch)
    total = len(images) * (n0 + n + n_predict)
    with (open_shards(Path(scratch) / fingerprint(about), about=about) if scratch else nullcontext() as shards,
          kind(Counter(network, settings, num_classes), places, workers=workers) as engine,
          console.progress("sampling", total, "draws") if progress else nullcontext() as bar):
        run = _Run(images, index, settings, num_classes, network.batch, engine, shards, bar)
        everyone = range(len(images))
        run.draw(Round.GUESS, everyone, stop=n0)
        run.fix_guess()
        if adaptive is None:
            run.draw(Round.BOUND, everyone, stop=n)
        else:
            run.draw_adaptively(adaptive, thetas=thetas, alpha=alpha)
        run.draw(Round.PREDICT, everyone, stop=n_predict)
    return run.counts(label)


class _Run:
    """The sums so far, and the means to add to them."""

    def __init__(self, images, index, settings, num_classes, rows, engine, shards: Shards | None, bar):
        self.images, self.index, self.settings, self.num_classes, self.rows = images, index, settings, num_classes, rows
        self.engine, self.shards, self.bar = engine, shards, bar
        count = len(images)
        self.classes = np.zeros((len(Round), count, num_classes), dtype=np.int64)
        self.entropy = np.zeros((len(Round), count, BINS + 1), dtype=np.int64)
        self.joint = np.zeros((count, BINS + 1), dtype=np.int64)
        self.invalid = np.zeros((len(Round), count), dtype=np.int64)
        self.guess = np.full(count, -1)
        self.looks = None

    def draw(self, round: Round, images, *, start: int = 0, stop: int) -> None:
        """Make the draws `start .. stop` of the images, or take them from the shards."""
        units = cut(round, images, start=start, stop=stop, chunk=self.settings.chunk, rows=self.rows)
        for job, table in self.engine.run(self._job(unit) for unit in self._unfinished(units)):
            if self.shards is not None:
                self.shards.add(job.unit.key, table)
            self._add(job.unit, table)

    def draw_adaptively(self, adaptive: Adaptive, *, thetas, alpha: float | None) -> None:
        """Round BOUND in looks, each for the images that are worth more draws."""
        everyone = np.arange(len(self.images))
        stopping = Stopping(adaptive, n=self.settings.n, chunk=self.settings.chunk, sigma=self.settings.sigma,
                            alpha=adaptive.alpha if alpha is None else alpha, thetas=GRID if thetas is None else thetas,
                            guess=self.guess, guess_entropy=self.entropy[Round.GUESS])
        left, start = everyone, 0
        for stop in map(int, stopping.draws):
            self.draw(Round.BOUND, left.tolist(), start=start, stop=stop)
            classes = self.classes[Round.BOUND]
            going_on = stopping.look(left, guessed=classes[everyone, self.guess], entropy=self.entropy[Round.BOUND])
            self._advance((len(left) - len(going_on)) * (self.settings.n - stop))
            left, start = going_on, stop
            if not len(left):
                break
        self.looks = stopping.looks

    def fix_guess(self) -> None:
        self.guess = self.classes[Round.GUESS].argmax(axis=1)

    def counts(self, label: np.ndarray) -> Counts:
        return Counts(classes=self.classes, entropy=self.entropy, joint=self.joint, invalid=self.invalid, index=self.index,
                      label=label, guess=self.guess, settings=self.settings, looks=self.looks)

    def _unfinished(self, units: Iterator[Unit]) -> Iterator[Unit]:
        for unit in units:
            table = self.shards.get(unit.key, width=width(self.num_classes)) if self.shards is not None else None
            if table is None:
                yield unit
            else:
                self._add(unit, table)

    def _job(self, unit: Unit) -> Job:
        return Job(unit, self.images[unit.images], self.index[unit.images], self.guess[unit.images])

    def _add(self, unit: Unit, table: np.ndarray) -> None:
        classes, entropy, joint, invalid = split(table, num_classes=self.num_classes)
        assert classes.sum() + invalid.sum() == entropy.sum() + invalid.sum() == unit.draws, "a draw was lost"
        self.classes[unit.round, unit.images] += classes
        self.entropy[unit.round, unit.images] += entropy
        self.invalid[unit.round, unit.images] += invalid
        if unit.round == Round.BOUND:
            self.joint[unit.images] += joint
        self._advance(unit.draws)

    def _advance(self, draws: int) -> None:
        if self.bar is not None:
            self.bar.advance(draws)


def fingerprint(about: dict) -> str:
    """sha256 of what the draws depend on."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _about(settings: Settings, images: Tensor, index: np.ndarray, *, num_classes: int, batch: int) -> dict:
    pixels = hashlib.sha256(f"{images.dtype}{tuple(images.shape)}".encode())
    pixels.update(images.contiguous().numpy().tobytes())
    pixels.update(index.tobytes())
    return asdict(settings) | {"images": len(images), "pixels": pixels.hexdigest(), "num_classes": num_classes, "batch": batch}


def _example(images: Tensor, sigma: float) -> Tensor:
    """A few noisy copies of the first image, to try the network on."""
    pixels = as_pixels(images[:1])
    return pixels + sigma * torch.randn((3, *pixels.shape[1:]), generator=torch.Generator().manual_seed(0))
