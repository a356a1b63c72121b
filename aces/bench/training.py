"""How fast networks train on this machine, for `aces bench training`.

Throughput is measured on random images of CIFAR-10's size. The time to an accuracy is measured on
request only, because it trains the networks of params.yaml on their real dataset.
"""

import statistics
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.flop_counter import FlopCounterMode

from aces import data, networks
from aces.data import EvalSet, TrainSet, info, to_tensor
from aces.params import Params, Train
from aces.runtime import Runtime
from aces.training import Method, methods, standard, train_network
from aces.training.distributed import choose_device

IMAGES, EPOCHS, SIGMA = 4096, 3, 0.25
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RECIPE = Train(epochs=EPOCHS, batch=256, lr=0.05, optimizer="muon")
MATRIX = 1024  # the side of the matrices whose product gives the peak
TEST_IMAGES = 2000  # test images that are not evaluated, on which the accuracy is measured
DRAWS = 20  # noisy copies of each of them
PEAK_SECONDS = 0.5  # in which the fastest product is looked for


def measure_training(repeats: int = 3, *, network: str = "small", device: str = "auto") -> dict:
    """Train a network on noisy random images, in each precision in turn; medians of the repeats.

    images_per_second: by precision. peak_share: by precision, the arithmetic of the network in
    these images a second, over that of a product of matrices. forward, backward, optimizer: shares
    of the time of whole epochs in the faster precision (the loss counts as backward); work: their
    sum. The rest is shuffling, augmentation, noise, checkpoints and progress.
    """
    runs: dict[str, list[dict[str, float]]] = {precision: [] for precision in PRECISIONS}
    for _ in range(repeats):
        for precision in PRECISIONS:
            runs[precision].append(_train_once(network, precision, device=device))
    speed = {
        precision: statistics.median(run["images_per_second"] for run in found)
        for precision, found in runs.items()
    }
    faster = max(speed, key=lambda precision: speed[precision])
    operations = _operations_per_image(network)
    peak = {precision: _peak(precision, device=device) for precision in PRECISIONS}
    shares = {
        part: statistics.median(run[part] for run in runs[faster])
        for part in ("forward", "backward", "optimizer")
    }
    return {
        "network": network,
        "images_per_second": speed,
        "operations_per_image": operations,
        "peak_operations_per_second": peak,
        "peak_share": {key: operations * speed[key] / peak[key] for key in PRECISIONS},
        "precision": faster,
        **shares,
        "work": sum(shares.values()),
    }


def measure_to_accuracy(params: Params, *, device: str = "auto") -> dict:
    """Train the core and the certification network of params.yaml from nothing.

    seconds: from the first step to the trained network; accuracy: on test images that are not
    evaluated, of the core network on clean images, of the certification network by the mean
    prediction over noisy copies.
    """
    prepared = data.prepare(params.dataset, TEST_IMAGES)
    roles: dict[str, tuple[str, Train, Method, float]] = {
        "core": (params.core.arch, params.core.train, standard.method(), 0.0),
        "certify": (
            params.certify.arch,
            params.certify.train,
            methods.resolve(params.certify, params.sigma),
            params.sigma,
        ),
    }
    found = {}
    for role, (arch, settings, method, sigma) in roles.items():
        training = prepared.training
        torch.manual_seed(params.seed)
        network = networks.build(
            arch, num_classes=training.num_classes, mean=training.mean, std=training.std
        )
        start = _now()
        train_network(
            network,
            training,
            settings=settings,
            method=method,
            sigma=sigma,
            seed=params.seed,
            title=role,
            runtime=Runtime(device=device),
        )
        seconds = _now() - start
        accuracy = _accuracy(network, prepared.calibration, sigma=sigma, device=device)
        found[role] = {"arch": arch, "seconds": seconds, "accuracy": accuracy}
    return found


def _train_once(arch: str, precision: str, *, device: str) -> dict[str, float]:
    cifar10, random = info("cifar10"), np.random.default_rng(0)
    images = TrainSet(
        image=random.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8),
        label=random.integers(0, 10, IMAGES),
    )
    network = networks.build(arch, num_classes=10, mean=cifar10.mean, std=cifar10.std)
    with _Stopwatch(network) as watch:
        train_network(
            network,
            images,
            settings=RECIPE.replace(precision=precision),
            method=Method("gaussian", methods.LOSSES["gaussian"]),
            sigma=SIGMA,
            seed=0,
            title=f"bench {precision}",
            runtime=Runtime(device=device, progress=False),
            on_epoch=watch.on_epoch,
        )
    return watch.shares() | {"images_per_second": IMAGES * (EPOCHS - 1) / watch.total}


def _operations_per_image(arch: str) -> float:
    """Floating-point operations of the forward and the backward pass: a multiplication and an
    addition count as two.
    """
    network, batch = networks.build(arch, num_classes=10, mean=[0.5] * 3, std=[0.2] * 3), 8
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(network(torch.rand(batch, 3, 32, 32)), torch.zeros(batch).long()).backward()
    return counter.get_total_flops() / batch


def _peak(precision: str, *, device: str) -> float:
    """Operations per second of the fastest product of two square matrices."""
    a = torch.rand((MATRIX, MATRIX), device=choose_device(device)).to(PRECISIONS[precision])
    end, best = time.perf_counter() + PEAK_SECONDS, float("inf")
    while time.perf_counter() < end:
        start = _now()
        a @ a
        best = min(best, _now() - start)
    return 2 * MATRIX**3 / best


@torch.inference_mode()
def _accuracy(network: nn.Module, images: EvalSet, *, sigma: float, device: str) -> float:
    place, generator = choose_device(device), torch.Generator().manual_seed(0)
    network.to(place, memory_format=torch.channels_last)  # type: ignore[call-overload]
    correct = 0
    for rows in np.array_split(np.arange(len(images.label)), max(1, len(images.label) // 250)):
        image, total = to_tensor(images.image[rows]), torch.zeros(())
        for _ in range(DRAWS if sigma > 0 else 1):
            noisy = image + sigma * torch.randn(image.shape, generator=generator)
            total = total + network(noisy.to(place)).float().softmax(1).cpu()
        correct += int((total.argmax(1).numpy() == images.label[rows]).sum())
    return correct / len(images.label)


class _Stopwatch:
    """Hooks on the network and the optimiser that add up the time between them, from the second
    epoch on.
    """

    def __init__(self, network: nn.Module):
        self.spent = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
        self.total = 0.0
        self._started: float | None = None  # the first epoch warms up
        self._last = 0.0
        self._hooks = [
            network.register_forward_pre_hook(self._marker(None)),
            network.register_forward_hook(self._marker("forward")),
            register_optimizer_step_pre_hook(self._marker("backward")),
            register_optimizer_step_post_hook(self._marker("optimizer")),
        ]

    def __enter__(self) -> "_Stopwatch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def on_epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        if self._started is None:
            self._started = _now()
        self.total = _now() - self._started

    def shares(self) -> dict[str, float]:
        return {name: seconds / self.total for name, seconds in self.spent.items()}

    def _marker(self, finished: str | None) -> Callable[..., None]:
        def mark(*_: object) -> None:
            now = _now()
            if finished is not None and self._started is not None:
                self.spent[finished] += now - self._last
            self._last = now

        return mark


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
