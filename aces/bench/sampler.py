"""How fast the sampler is on this machine: against the reference way, against the forward pass
alone, and against itself with more draws and more images.

Everything is timed in one run on one network, in turns, and the medians compared: ratios hold where
speeds drift.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import scipy.stats
import torch
from torch import Tensor, nn

from aces import networks, runtime
from aces.console import progress
from aces.data import info
from aces.errors import is_installed
from aces.runtime import Runtime
from aces.sampling.forward import Network, prepare
from aces.sampling.plan import DrawPlan
from aces.sampling.quantise import quantise
from aces.sampling.sampler import sample

SIGMA, IMAGES, N0, CHUNK = 0.25, 4, 100, 500
REFERENCE_BATCH = 1000
CALIBRATION = 32  # random images that calibrate int8: only its speed is of interest here
BATCHES = (32, 50, 64, 128)  # sizes that the bare forward pass is measured with; the best counts
THETAS = np.arange(101) / 100
TIMES = (1, 2, 4, 8)  # as many draws, to see how the time grows

Way = Callable[[int], None]  # makes so many draws


def measure_sampler(
    *,
    network: str = "cifar_resnet20",
    seconds: float = 3.0,
    repeats: int = 5,
    device: str = "auto",
    workers: int | None = None,
) -> dict:
    """Draws a second (medians) of this sampler in float32 and int8, with exact and float noise, of
    the reference way and of the bare forward pass, and their ratios.

    seconds: about how long each way runs in each repeat, in whole batches.
    """
    first = runtime.devices(device)[0]
    machine = _Machine(first, workers or (runtime.cores() if first.type == "cpu" else 1))
    model, images = _network(network), _images(IMAGES)
    prepared = machine.prepared(model, "float32")
    ways = {
        "reference": (
            lambda draws: _reference(model, images[0].float() / 255, draws, device=first),
            REFERENCE_BATCH,
        ),
        "float noise": machine.sampler(model, images, noise="float"),
        **_amid(machine.forward(prepared, "forward"), "sampler", machine.sampler(model, images)),
    }
    if first.type == "cpu" and is_installed("onnx"):  # which int8 networks need
        quantised = quantise(model, _images(CALIBRATION, seed=1), sigma=SIGMA)
        int8 = machine.prepared(quantised, "int8")
        sampler = machine.sampler(quantised, images, precision="int8")
        ways |= _amid(machine.forward(int8, "int8 forward"), "int8 sampler", sampler)
    speeds = _in_turns(ways, seconds=seconds, repeats=repeats)
    found = {
        "network": network,
        "backend": prepared.backend,
        "workers": machine.workers,
        "repeats": repeats,
        "draws_per_second": speeds,
        "sampler_over_reference": speeds["sampler"] / speeds["reference"],
        "sampler_over_forward": speeds["sampler"] / _best(speeds, "forward"),
        "exact_over_float_noise": speeds["sampler"] / speeds["float noise"],
    }
    if "int8 sampler" in speeds:
        speed = speeds["int8 sampler"]
        found["int8_backend"] = int8.backend
        found["int8_over_float32"] = speed / speeds["sampler"]
        found["int8_over_reference"] = speed / speeds["reference"]
        found["int8_over_forward"] = speed / _best(speeds, "int8 forward")
    return found


class _Machine(NamedTuple):
    """What all ways of one measurement run on."""

    device: torch.device
    workers: int

    def prepared(self, model: nn.Module, precision: str) -> Network:
        return prepare(
            model,
            None,
            shape=(3, 32, 32),
            num_classes=10,
            precision=precision,
            device=self.device,
        )

    def sampler(self, model: nn.Module, images: Tensor, **plan: str) -> tuple[Way, int]:
        """The whole sampler."""

        def run(draws: int) -> None:
            _sample(
                model,
                images,
                draws // len(images),
                device=str(self.device),
                workers=self.workers,
                **plan,
            )

        return run, len(images) * CHUNK * self.workers

    def forward(self, prepared: Network, name: str) -> dict[str, tuple[Way, int]]:
        """The bare forward pass, in batches of several sizes."""
        return {
            f"{name}, batch {batch}": (
                _forward(prepared, batch=batch, device=self.device, workers=self.workers),
                batch * self.workers,
            )
            for batch in _batches(prepared, self.device)
        }


def _amid(
    ways: dict[str, tuple[Way, int]], name: str, way: tuple[Way, int]
) -> dict[str, tuple[Way, int]]:
    """These ways with another one in their middle.

    A processor that was idle for a while is faster at first. So a sampler is timed between the
    forward passes that it is compared with, and not after a way that leaves a core idle.
    """
    items = list(ways.items())
    middle = len(items) // 2
    return dict([*items[:middle], (name, way), *items[middle:]])


def _best(speeds: dict[str, float], name: str) -> float:
    return max(speed for way, speed in speeds.items() if way.startswith(f"{name}, batch"))


def measure_scaling(
    *,
    network: str = "small",
    seconds: float = 3.0,
    repeats: int = 5,
    device: str = "auto",
    workers: int | None = None,
) -> dict:
    """Seconds (medians) of whole runs with once to eight times the draws an image, and the images:
    how the time grows.

    draws_ratio, images_ratio: the time of a draw in the largest run over that in the smallest; 1
    where time is linear. seconds: about how long a run of medium size takes.
    """
    model, images = _network(network), _images(IMAGES * TIMES[-1])

    def run(images: Tensor, draws: int) -> float:
        start = time.perf_counter()
        _sample(model, images, draws, device=device, workers=workers)
        return time.perf_counter() - start

    run(images[:IMAGES], CHUNK)  # prepares the network, once for all
    draws = CHUNK * max(
        1, round(seconds / run(images[:IMAGES], 4 * CHUNK))
    )  # a quarter of the seconds
    runs = {
        "draws": {times * draws: (images[:IMAGES], times * draws) for times in TIMES},
        "images": {times * IMAGES: (images[: times * IMAGES], draws) for times in TIMES},
    }
    taken: dict[str, dict[int, list[float]]] = {
        axis: {size: [] for size in sizes} for axis, sizes in runs.items()
    }
    with progress("bench", repeats * 2 * len(TIMES), "runs") as bar:
        for _ in range(repeats):
            for axis, sizes in runs.items():
                for size, arguments in sizes.items():
                    taken[axis][size].append(run(*arguments))
                    bar.advance(note=f"{axis} = {size:,}")
    medians = {
        axis: {size: statistics.median(found) for size, found in sizes.items()}
        for axis, sizes in taken.items()
    }
    return {
        "network": network,
        "repeats": repeats,
        "seconds": medians,
        **{
            f"{axis}_ratio": sizes[max(sizes)] / sizes[min(sizes)] / TIMES[-1]
            for axis, sizes in medians.items()
        },
    }


def _network(name: str) -> nn.Module:
    cifar10 = info("cifar10")
    return networks.build(name, num_classes=10, mean=cifar10.mean, std=cifar10.std).eval()


def _images(count: int, *, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=source)


def _in_turns(
    ways: dict[str, tuple[Way, int]], *, seconds: float, repeats: int
) -> dict[str, float]:
    """Median draws a second of each way, which makes its draws in multiples of a batch.

    The first turn does not count: it exports and compiles, and tells how many draws take so long.
    """
    draws = {name: batch for name, (_, batch) in ways.items()}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    with progress("bench", (repeats + 1) * len(ways), "runs") as bar:
        for turn in range(repeats + 1):
            for name, (way, batch) in ways.items():
                if turn == 0:
                    way(batch)
                start = time.perf_counter()
                way(draws[name])
                speed = draws[name] / (time.perf_counter() - start)
                if turn:
                    speeds[name].append(speed)
                draws[name] = batch * max(1, round(seconds * speed / batch))
                bar.advance(note=name)
    return {name: statistics.median(found) for name, found in speeds.items()}


def _sample(
    model: nn.Module,
    images: Tensor,
    draws: int,
    *,
    device: str,
    workers: int | None,
    noise: str = "exact",
    precision: str = "float32",
) -> None:
    """So many draws of each image."""
    sample(
        model,
        images,
        DrawPlan(sigma=SIGMA, n0=N0, n=draws - N0, chunk=CHUNK, noise=noise, precision=precision),
        num_classes=10,
        runtime=Runtime(device=device, workers=workers, progress=False),
    )


@torch.inference_mode()
def _reference(model: nn.Module, image: Tensor, draws: int, *, device: torch.device) -> None:
    """The way of the published code: the network as it is, entropies row by row, each theta counted
    in Python.
    """
    model, image = model.to(device), image.to(device)
    counts, selected = np.zeros(10, dtype=int), dict.fromkeys(THETAS, 0)
    for start in range(0, draws, REFERENCE_BATCH):
        batch = image.repeat((min(REFERENCE_BATCH, draws - start), 1, 1, 1))
        logits = model(batch + SIGMA * torch.randn_like(batch))
        for label in logits.argmax(dim=1).cpu().numpy():
            counts[label] += 1
        entropies = [
            scipy.stats.entropy(row, base=10) for row in torch.softmax(logits, dim=1).cpu().numpy()
        ]
        for theta in selected:
            selected[theta] += sum(entropy <= theta for entropy in entropies)


def _batches(prepared: Network, device: torch.device) -> tuple[int, ...]:
    """Batches to try; a recorded CUDA graph has one."""
    return BATCHES if device.type == "cpu" else (prepared.batch,)


def _forward(prepared: Network, *, batch: int, device: torch.device, workers: int) -> Way:
    """The network on noise made beforehand, and nothing else."""
    forward = prepared.open(device)
    noise = [torch.randn(batch, 3, 32, 32, device=device) for _ in range(workers)]

    @torch.inference_mode()
    def serve(worker: int, draws: int) -> None:
        torch.set_num_threads(1)
        for _ in range(draws // (batch * workers)):
            forward(noise[worker])

    def run(draws: int) -> None:
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(serve, range(workers), [draws] * workers))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        torch.set_num_threads(threads)

    return run
