"""Where training spends its time: the shares of forward pass, backward pass and optimiser, for
`aces bench`.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from aces import networks
from aces.data import TrainSet, info
from aces.params import Train
from aces.runtime import Runtime
from aces.training.loop import train_network
from aces.training.methods import LOSSES, Method

IMAGES, EPOCHS = 4096, 3
SETTINGS = Train(
    epochs=EPOCHS,
    batch=256,
    lr=0.1,
    momentum=0.9,
    weight_decay=0.0005,
    schedule="one-cycle",
    milestones=[],
)


def measure_training(repeats: int = 3) -> dict[str, float]:
    """Train the default certification network on noisy images of CIFAR-10's size, `repeats` times,
    and take the fastest.

    forward, backward, optimizer: shares of the time of whole epochs (the loss counts as backward);
    work: their sum; images_per_second. The rest is shuffling, augmentation, noise, checkpoints and
    progress.
    """
    runs = [_measure() for _ in range(repeats)]
    return max(runs, key=lambda run: run["images_per_second"])


def _measure() -> dict[str, float]:
    cifar10, random = info("cifar10"), np.random.default_rng(0)
    data = TrainSet(
        image=random.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8),
        label=random.integers(0, 10, IMAGES),
    )
    network = networks.build("small", num_classes=10, mean=cifar10.mean, std=cifar10.std)
    with _Stopwatch(network) as watch, tempfile.TemporaryDirectory() as scratch:
        train_network(
            network,
            data,
            settings=SETTINGS,
            method=Method("gaussian", LOSSES["gaussian"]),
            sigma=0.25,
            seed=0,
            runtime=Runtime(scratch=Path(scratch)),
            title="bench",
            on_epoch=watch.on_epoch,
        )
    return watch.shares() | {"images_per_second": IMAGES * (EPOCHS - 1) / watch.total}


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
            network.register_forward_pre_hook(lambda *_: self._mark(None)),
            network.register_forward_hook(lambda *_: self._mark("forward")),
            register_optimizer_step_pre_hook(lambda *_: self._mark("backward")),
            register_optimizer_step_post_hook(lambda *_: self._mark("optimizer")),
        ]

    def __enter__(self) -> "_Stopwatch":
        return self

    def __exit__(self, *_) -> None:
        for hook in self._hooks:
            hook.remove()

    def on_epoch(self, epoch: int, metrics: dict) -> None:
        if self._started is None:
            self._started = _now()
        self.total = _now() - self._started

    def shares(self) -> dict[str, float]:
        parts = {name: seconds / self.total for name, seconds in self.spent.items()}
        return parts | {"work": sum(parts.values())}

    def _mark(self, finished: str | None) -> None:
        now = _now()
        if finished is not None and self._started is not None:
            self.spent[finished] += now - self._last
        self._last = now


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
