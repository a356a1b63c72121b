"""How fast the sampler is on this machine: against the reference way, against the forward pass
alone, and against itself with more draws and more images.

Everything is timed in one run on one network, in turns, and the medians compared: ratios hold where
speeds drift.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.stats
import torch
from torch import Tensor, nn

from aces import networks, runtime
from aces.console import progress
from aces.data import info
from aces.runtime import Runtime
from aces.sampling.forward import Network, prepare
from aces.sampling.plan import DrawPlan
from aces.sampling.sampler import sample

SIGMA, IMAGES, N0, CHUNK = 0.25, 4, 64, 512
REFERENCE_BATCH = 1000
BATCHES = (32, 64, 128)  # of the bare forward pass, the best of which counts
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
    """Draws a second (medians) of this sampler, of the reference way and of the bare forward pass,
    and their ratios.

    seconds: about how long each way runs in each repeat, in whole batches.
    """
    model, images = _network(network), _images(IMAGES)
    place = runtime.devices(device)[0]
    prepared = prepare(
        model, None, shape=(3, 32, 32), num_classes=10, precision="float32", device=place
    )
    workers = workers or (runtime.cores() if place.type == "cpu" else 1)
    ways = {
        "sampler": (
            lambda draws: _sample(model, images, draws // IMAGES, device=device, workers=workers),
            IMAGES * CHUNK * workers,
        ),
        "reference": (
            lambda draws: _reference(model, images[0].float() / 255, draws, device=place),
            REFERENCE_BATCH,
        ),
    }
    for batch in _batches(prepared, place):
        ways[f"forward, batch {batch}"] = (
            _forward(prepared, batch=batch, device=place, workers=workers),
            batch * workers,
        )
    speeds = _in_turns(ways, seconds=seconds, repeats=repeats)
    forward = max(speed for name, speed in speeds.items() if name.startswith("forward"))
    return {
        "network": network,
        "backend": prepared.backend,
        "workers": workers,
        "repeats": repeats,
        "draws_per_second": speeds,
        "sampler_over_reference": speeds["sampler"] / speeds["reference"],
        "sampler_over_forward": speeds["sampler"] / forward,
    }


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


def _images(count: int) -> Tensor:
    return torch.randint(
        0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def _in_turns(
    ways: dict[str, tuple[Way, int]], *, seconds: float, repeats: int
) -> dict[str, float]:
    """Median draws a second of each way, which makes its draws in multiples of a batch; the first
    turn sets how many.
    """
    draws = {name: batch for name, (_, batch) in ways.items()}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    with progress("bench", (repeats + 1) * len(ways), "runs") as bar:
        for turn in range(repeats + 1):
            for name, (way, batch) in ways.items():
                start = time.perf_counter()
                way(draws[name])
                speed = draws[name] / (time.perf_counter() - start)
                if turn:
                    speeds[name].append(speed)
                else:
                    draws[name] = batch * max(1, round(seconds * speed / batch))
                bar.advance(note=name)
    return {name: statistics.median(found) for name, found in speeds.items()}


def _sample(
    model: nn.Module, images: Tensor, draws: int, *, device: str, workers: int | None
) -> None:
    """So many draws of each image."""
    sample(
        model,
        images,
        DrawPlan(sigma=SIGMA, n0=N0, n=draws - N0, chunk=CHUNK),
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
