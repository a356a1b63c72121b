"""The sums over the draws of some images, and the means to add draws to them."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aces import console
from aces.errors import InputError
from aces.rule.counts import Counts, Looks, Round, Settings
from aces.runtime import Runtime, Stopped
from aces.runtime import devices as devices_of
from aces.sampling.batches import Job
from aces.sampling.code import code_digest
from aces.sampling.count import Counter
from aces.sampling.forward import hash_of, identity_of, prepare
from aces.sampling.images import Images, as_numbers, check_index
from aces.sampling.lattice import lattice
from aces.sampling.local import LocalEngine
from aces.sampling.plan import DrawPlan
from aces.sampling.ray_engine import RayEngine
from aces.sampling.shards import Shards, open_shards
from aces.sampling.tally import Score, check_score, split, width
from aces.sampling.units import Sizes, Unit, cut

ENGINES: dict[str, type[LocalEngine] | type[RayEngine]] = {"local": LocalEngine, "ray": RayEngine}
# Each unit costs time of its own, so it has many draws: on a GPU as many batches, whose counts are
# fetched once, and on a CPU as many values of noise (2,000 draws of 32x32 images). Both are at most
# seconds of work, which a kill may lose.
UNIT_BATCHES = 128
UNIT_VALUES = 2000 * 3 * 32 * 32


@contextmanager
def open_drawing(
    network: nn.Module,
    images: np.ndarray | Tensor | Images,
    plan: DrawPlan,
    *,
    num_classes: int,
    runtime: Runtime,
    index=None,
    select: nn.Module | None = None,
    score: Score | None = None,
) -> Iterator["Drawing"]:
    """Check everything, prepare the network, start the workers; see `aces.sampling.sample`."""
    images = Images.of(images)
    index = as_numbers("index", index, len(images))
    check_index(index)
    if not (isinstance(num_classes, (int, np.integer)) and num_classes >= 2):
        raise InputError(f"num_classes={num_classes!r}: expected a whole number of at least 2")
    if score is not None:
        check_score(score, num_classes=int(num_classes))
    on_cpu = plan.precision == "int8" and runtime.device == "auto"  # where int8 networks run
    devices = devices_of("cpu" if on_cpu else runtime.device)
    prepared = prepare(
        network,
        select,
        shape=images.shape,
        num_classes=num_classes,
        precision=plan.precision,
        device=devices[0],
    )
    settings = _settings(
        plan,
        model=hash_of(network, select),
        backend=prepared.backend,
        score=_score_name(select, score),
        tv=_distance(plan, math.prod(images.shape), devices[0]),
    )
    counter = Counter(prepared, settings, int(num_classes), score)
    total = len(images) * plan.draws
    sizes = unit_sizes(prepared.batch, devices[0], values=math.prod(images.shape))
    start = ENGINES[runtime.engine]
    kept: AbstractContextManager[Shards | None] = nullcontext()
    if runtime.scratch:
        identity = identity_of(network, select)
        about = _about(counter, images.pixels, index, identity=identity)
        folder = Path(runtime.scratch) / scratch_key(about)
        kept = open_shards(folder, about=about, probe=prepared.probe)
    with (
        kept as shards,
        start(counter, devices, workers=runtime.workers) as engine,
        console.progress("sampling", total, "draws") if runtime.progress else nullcontext() as bar,
    ):
        yield Drawing(
            counter, images.pixels, index, engine, shards, bar, sizes=sizes, stop=runtime.stop
        )


class Drawing:
    """The sums over the draws made so far. `classes`, `score`, `doubt`, `joint_score`,
    `joint_doubt`, `invalid` and `guess` are those of `Counts`.
    """

    def __init__(
        self,
        counter: Counter,
        images: Tensor,
        index: np.ndarray,
        engine: LocalEngine | RayEngine,
        shards: Shards | None,
        bar,
        *,
        sizes: Sizes,
        stop: Callable[[], bool] | None = None,
    ):
        self.settings, self.images, self.index = counter.settings, images, index
        self.num_classes, self.sizes = counter.num_classes, sizes
        self.engine, self.shards, self.bar, self.stop = engine, shards, bar, stop
        count = len(images)
        self._table = np.zeros((len(Round), count, width(self.num_classes)), dtype=np.int64)
        columns = split(self._table, num_classes=self.num_classes)  # views of the table
        self.classes, self.score, self.doubt = columns.classes, columns.score, columns.doubt
        self.joint_score, self.joint_doubt = columns.joint_score, columns.joint_doubt
        self.invalid = columns.invalid
        self.guess = np.full(count, -1, dtype=np.int64)

    def draw(self, round: Round, images: Collection[int], *, start: int = 0, stop: int) -> None:
        """Make the draws `start .. stop` of the images, or take them from the shards.

        Round GUESS comes first and fixes the guesses, on which the joint counts depend.
        """
        units = cut(
            round, images, start=start, stop=stop, chunk=self.settings.chunk, sizes=self.sizes
        )
        for job, table in self.engine.run(self._job(unit) for unit in self._unfinished(units)):
            if self.shards is not None:
                self.shards.add(job.unit.key, table)
            self._add(job.unit, table)
            if self.bar is not None:
                self.bar.advance(job.unit.draws)
            if self.stop is not None and self.stop():
                raise Stopped
        if round == Round.GUESS:
            self.guess = self.classes[Round.GUESS].argmax(axis=1)

    @property
    def guessed(self) -> np.ndarray:
        """(N,) draws of round BOUND whose class is the guessed one."""
        return self.classes[Round.BOUND, np.arange(len(self.guess)), self.guess]

    @property
    def draws(self) -> np.ndarray:
        """(N,) draws of round BOUND, invalid ones included."""
        return self.classes[Round.BOUND].sum(axis=1) + self.invalid[Round.BOUND]

    def counts(self, label: np.ndarray, looks: dict[Round, Looks] | None = None) -> Counts:
        """The sums, with the label of each image and the looks, if there were any."""
        return Counts(
            classes=self.classes,
            score=self.score,
            doubt=self.doubt,
            joint_score=self.joint_score,
            joint_doubt=self.joint_doubt,
            invalid=self.invalid,
            index=self.index,
            label=label,
            guess=self.guess,
            settings=self.settings,
            looks=looks or {},
        )

    def skip(self, draws: int) -> None:
        """These draws need not be made: the progress bar does without them."""
        if self.bar is not None:
            self.bar.skip(draws)

    def _unfinished(self, units: Iterator[Unit]) -> Iterator[Unit]:
        for unit in units:
            table = self._kept(unit)
            if table is None:
                yield unit
            else:
                self._add(unit, table)
                self.skip(unit.draws)

    def _kept(self, unit: Unit) -> np.ndarray | None:
        """The counts of a unit that scratch has, if they can be those of its draws."""
        if self.shards is None:
            return None
        table = self.shards.get(unit.key, shape=(len(unit.images), width(self.num_classes)))
        guess = self.guess[unit.images]
        return None if table is None or not _is_sound(table, unit, guess) else table

    def _job(self, unit: Unit) -> Job:
        rows = unit.images
        images = torch.from_numpy(self.images.numpy()[rows])  # numpy looks up faster than torch
        return Job(unit, images, self.index[rows], self.guess[rows])

    def _add(self, unit: Unit, table: np.ndarray) -> None:
        classes, invalid = table[:, : self.num_classes], table[:, -1]
        assert classes.sum() + invalid.sum() == unit.draws, "a draw was lost"
        self._table[unit.round, unit.images] += table


def _is_sound(table: np.ndarray, unit: Unit, guess: np.ndarray) -> bool:
    """Whether counts can be those of a unit: nothing negative, every draw in one class and one bin,
    joint counts of the guessed class.
    """
    counts = split(table, num_classes=table.shape[1] - width(0))
    draws = dict.fromkeys(unit.images, 0)
    for piece in unit.pieces:
        draws[piece.image] += piece.draws
    valid = np.array(list(draws.values())) - counts.invalid
    guessed = np.take_along_axis(counts.classes, np.maximum(guess, 0)[:, None], axis=1)[:, 0]
    return bool(
        (table >= 0).all()
        and all((each.sum(axis=1) == valid).all() for each in counts[:3])
        and all((each.sum(axis=1) == guessed * (guess >= 0)).all() for each in counts[3:5])
        and (counts.joint_score <= counts.score).all()
        and (counts.joint_doubt <= counts.doubt).all()
    )


def unit_sizes(batch: int, device: torch.device, *, values: int) -> Sizes:
    """The draws of a unit. They do not depend on the number of workers.

    values: of one image.
    """
    if device.type == "cuda":
        return Sizes(batch * UNIT_BATCHES, batch * UNIT_BATCHES)
    return Sizes(max(batch, UNIT_VALUES // values), batch)


def scratch_key(about: dict) -> str:
    """The name of the folder in scratch: sha256 of what the draws depend on."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _about(counter: Counter, images: Tensor, index: np.ndarray, *, identity: str) -> dict:
    """What the counts depend on: the settings, the images, the network with its code, and the code
    between the noise and the counts.
    """
    pixels = hashlib.sha256(f"{images.dtype}{tuple(images.shape)}".encode())
    pixels.update(images.contiguous().numpy().tobytes())
    pixels.update(index.tobytes())
    return asdict(counter.settings) | {
        "images": len(images),
        "pixels": pixels.hexdigest(),
        "num_classes": counter.num_classes,
        "batch": counter.network.batch,
        "network": identity,
        "code": code_digest(counter.score),
    }


def _settings(plan: DrawPlan, *, model: str, backend: str, score: str, tv: float) -> Settings:
    """What the counts say of their draws: the plan, and what it was carried out with."""
    return Settings(
        sigma=plan.sigma,
        n0=plan.n0,
        n=plan.n,
        n_predict=plan.n_predict,
        seed=plan.seed,
        chunk=plan.chunk,
        model=model,
        precision=plan.precision,
        backend=backend,
        score=score,
        noise=plan.noise,
        tv=tv,
    )


def _score_name(select: nn.Module | None, score: Score | None) -> str:
    """The score as the counts name it: entropy, network, or package.module:function."""
    if score is not None:
        if select is not None:
            raise InputError("select and score are both given: expected one of them")
        return f"{score.__module__}:{getattr(score, '__qualname__', type(score).__qualname__)}"
    return "entropy" if select is None else "network"


def _distance(plan: DrawPlan, pixels: int, device: torch.device) -> float:
    """The total-variation distance of one noisy image's law from the exact one, rounded up."""
    if plan.noise == "float":
        return 0.0
    steps = lattice(plan.sigma)
    tables = steps.direct if device.type == "cpu" else steps.alias
    return math.nextafter(pixels * tables.tv, 1.0)
