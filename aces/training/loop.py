"""The training loop: one loop for every method, resumable and deterministic."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aces import networks
from aces.console import progress, warn
from aces.data import TrainSet
from aces.errors import InputError
from aces.params import Train
from aces.runtime import Runtime
from aces.training import distributed
from aces.training.batches import Batch, Loss, draw_noise, noisy_copies
from aces.training.checkpoint import Checkpoint, State, code_digest, training_key
from aces.training.distributed import Group
from aces.training.method import Method
from aces.training.optimizers import autocast, make_optimizer, precision_on
from aces.training.replicas import Replicas
from aces.training.schedule import decays, learning_rate
from aces.training.sources import mirrors, open_source
from aces.training.whitening import IMAGES as WHITENING_IMAGES
from aces.training.whitening import whiten_first_convolution

LOOK_EVERY = 10  # steps between two looks at the loss: each look waits for the GPU

Metrics = dict[str, float]
OnEpoch = Callable[[int, Metrics], None]


@dataclass(frozen=True)
class _Task:
    """What the weights depend on, apart from the network, the images and the device."""

    settings: Train
    method: Method
    sigma: float
    seed: int
    title: str

    def derive_seed(self, *parts: object) -> int:
        """63 bits for these parts: different parts give independent streams."""
        text = repr((self.seed, self.title, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def train_network(
    network: nn.Module,
    data: TrainSet,
    *,
    settings: Train,
    method: Method,
    sigma: float,
    seed: int,
    title: str,
    runtime: Runtime = Runtime(),
    on_epoch: OnEpoch | None = None,
) -> nn.Module:
    """Train `network` (pixels in [0, 1] -> logits) in place; it is returned on the CPU, in
    evaluation mode.

    The same arguments give the same weights on one machine, whether the run was interrupted or not:
    after each epoch the state is kept in `runtime.scratch`, and all randomness is keyed by (seed,
    title, epoch). `on_epoch(epoch, metrics)` gets the mean loss and accuracy over the epoch's
    training batches and the last learning rate; a resumed run repeats the calls of the epochs it
    skips. The last state stays, so the same training is not done twice, unless its code changed.

    Started by `torchrun`, the processes share every batch, and only the first calls `on_epoch` and
    writes to the scratch folder.
    """
    device = distributed.choose_device(runtime.device)
    group = distributed.join(device)
    task = _Task(settings, method, sigma, seed, title)
    checkpoint = Checkpoint(runtime.scratch, _key(task, network, data, device, group))
    training = _Training(network, data, task, device, group)
    if settings.precision == "bfloat16" and training.precision == "float32" and group.main:
        warn(
            f"{title}: this processor has no bfloat16 arithmetic: training in float32, more slowly"
        )
    waiting = checkpoint.locked() if group.main else nullcontext()
    with waiting, _reproducible(device), training.replicas:
        state = checkpoint.read() if group.main else None
        history = training.restore(distributed.from_main(state, group))
        images = (settings.epochs - len(history)) * training.images
        shown = group.main and runtime.progress
        with progress(title, images, "images") if shown else nullcontext() as bar:
            for epoch in range(settings.epochs):
                if epoch == len(history):
                    history.append(training.run_epoch(epoch, bar))
                    if group.main:
                        checkpoint.write(training.state(history))
                if group.main and on_epoch is not None:
                    on_epoch(epoch, history[epoch])
    return network.cpu().eval()


def _key(
    task: _Task, network: nn.Module, data: TrainSet, device: torch.device, group: Group
) -> str:
    """The key of this training's state."""
    array = isinstance(data.image, np.ndarray)
    return training_key(
        task.settings,
        task.method.name,
        task.method.settings,
        task.method.split,
        task.method.source,
        task.sigma,
        task.seed,
        task.title,
        device.type,
        precision_on(device, task.settings),
        group.size,
        networks.fingerprint(network),
        data.image if array else [str(path) for path in data.image],
        data.shape,
        mirrors(data),
        data.label,
    )


class _Training:
    """A network, its optimiser and its images, between two epochs."""

    def __init__(
        self,
        network: nn.Module,
        data: TrainSet,
        task: _Task,
        device: torch.device,
        group: Group,
    ):
        self.task, self.settings, self.device, self.group = task, task.settings, device, group
        self.precision = precision_on(device, task.settings)
        self.code = code_digest(task.method.loss, network)
        self.count = len(data.label)
        self.batch = images_per_step(task.settings, task.method, count=self.count, group=group)
        # An epoch has whole batches only; the few images left out are others in every epoch.
        self.steps = self.count // self.batch
        self.images = self.steps * self.batch
        self.source = open_source(data, device)
        network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = network
        if task.settings.whitening:
            self._whiten()
        alone = device.type == "cpu" and group.size == 1
        self.replicas = Replicas(
            distributed.parallel(network, group), task.settings.shards if alone else 1
        )
        self.optimizer = make_optimizer(network, task.settings)

    def _whiten(self) -> None:
        """Start with whitening filters, from the first images as the network will see them."""
        rows = torch.arange(min(self.count, WHITENING_IMAGES))
        seed = self.task.derive_seed("whitening")
        image, _ = next(iter(self.source.batches(rows[None], seed=seed)))
        generator = torch.Generator(self.device).manual_seed(seed)
        noise = draw_noise(image, sigma=self.task.sigma, draws=1, generator=generator)
        whiten_first_convolution(self.network, noisy_copies(image, noise))

    def state(self, history: list[Metrics]) -> State:
        """What it takes to go on or, after the last epoch, the trained network and the code that
        trained it.
        """
        rest = (
            {"code": self.code}
            if len(history) == self.settings.epochs
            else {"optimizer": self.optimizer.state_dict()}
        )
        return {"network": self.network.state_dict(), "history": history, **rest}

    def restore(self, state: State | None) -> list[Metrics]:
        """Go on from `state`; the metrics of the epochs done. A network trained by other code is
        not taken.
        """
        if state is None or (
            "optimizer" not in state and (self.code is None or state["code"] != self.code)
        ):
            return []
        self.network.load_state_dict(state["network"])
        self.replicas.take_buffers()
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        return list(state["history"])

    def run_epoch(self, epoch: int, bar: Any) -> Metrics:
        """One pass over the images: the mean loss, the accuracy, the last learning rate."""
        for network in self.replicas.networks:
            network.train()
        # The global generator serves dropout and the like, the others the noise.
        torch.manual_seed(self.task.derive_seed(epoch, "network", self.group.rank))
        generators = [
            torch.Generator(self.device).manual_seed(
                self.task.derive_seed(epoch, "noise", self.group.rank + share)
            )
            for share in range(len(self.replicas))
        ]
        totals, note = torch.zeros(2, dtype=torch.float64, device=self.device), ""
        passed, rate = decays(self.settings, epoch=epoch), 0.0
        for step, (image, label) in enumerate(self._batches(epoch)):
            rate = learning_rate(self.settings, time=epoch + (step + 0.5) / self.steps)
            batch = Batch(image, label, epoch, passed, self.settings.label_smoothing)
            totals += self._step(batch, rate, generators)
            if step % LOOK_EVERY == 0 or step == self.steps - 1:
                loss = totals[0].item() / (step + 1)
                self._check_loss(loss, epoch)
                note = f"epoch {epoch + 1} of {self.settings.epochs}, loss {loss:.3f}"
            if bar is not None:
                bar.advance(self.batch, note=note)
        self.replicas.average_buffers()
        loss, accuracy = (distributed.average(totals, self.group) / self.steps).tolist()
        return {"loss": loss, "accuracy": accuracy, "lr": rate}

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the epoch's batches, in random order."""
        generator = torch.Generator().manual_seed(self.task.derive_seed(epoch, "order"))
        order = torch.randperm(self.count, generator=generator)[: self.images].view(
            self.steps, self.batch
        )
        share = order[:, self.group.rank :: self.group.size]
        return self.source.batches(share, seed=self.task.derive_seed(epoch, "views"))

    def _step(self, batch: Batch, rate: float, generators: list[torch.Generator]) -> Tensor:
        """One step of the optimiser at learning rate `rate`: the loss and the accuracy, (2,)."""
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad()
        shares = batch.shares(len(self.replicas))
        weights = [len(share.label) / len(batch.label) for share in shares]
        found = self.replicas.run(self._backward, shares, weights, generators)
        self.optimizer.step()
        return torch.stack(found).sum(dim=0)

    def _backward(
        self, network: nn.Module, batch: Batch, weight: float, generator: torch.Generator
    ) -> Tensor:
        """The gradients of a share of a batch, and its part of the loss and the accuracy, (2,)."""
        method = self.task.method
        with autocast(self.device, self.precision):
            loss = method.loss(
                network,
                batch,
                sigma=self.task.sigma,
                generator=generator,
                settings=method.settings,
            )
        _check_form(loss, batch, method)
        (loss.value * weight).backward()
        correct = loss.scores.detach().argmax(1) == batch.label
        return torch.stack((loss.value.detach().double(), correct.double().mean())) * weight

    def _check_loss(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise InputError(
                f"training {self.task.title}: the loss is {loss} in epoch {epoch + 1}: lower "
                f"lr={self.settings.lr:g} of its training settings, or check the images"
            )


def images_per_step(settings: Train, method: Method, *, count: int, group: Group) -> int:
    """How many images a step takes, over all processes; all of a dataset smaller than the batch."""
    batch = min(settings.batch // method.split, count)
    if batch == 0 or batch % group.size != 0:
        raise InputError(
            f"train.batch={settings.batch}: expected a multiple of {method.split * group.size} "
            f"({method.split} steps a batch for {method.name}, {group.size} processes)"
        )
    return batch


def _check_form(loss: Loss, batch: Batch, method: Method) -> None:
    """An own method can return anything; what the loop cannot use is said in one line."""
    usable = (
        isinstance(loss, Loss)
        and loss.value.ndim == 0
        and loss.value.requires_grad
        and loss.scores.ndim == 2
        and len(loss.scores) == len(batch.label)
    )
    if not usable:
        raise InputError(
            f"training method {method.name!r} returned {_form(loss)}: expected "
            "aces.training.Loss(value, scores), where value has shape () and a gradient and scores "
            f"has shape ({len(batch.label)}, classes)"
        )


def _form(loss: object) -> str:
    if not isinstance(loss, Loss):
        return f"a {type(loss).__name__}"
    shapes = (tuple(getattr(part, "shape", ())) for part in loss)
    return "Loss with shapes " + ", ".join(map(str, shapes))


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Deterministic kernels inside; the caller's random state and switches are untouched after."""
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False),
    ):
        yield
