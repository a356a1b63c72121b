"""The training loop: one loop for every method, resumable and deterministic."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aces import networks
from aces.console import progress
from aces.data import TrainSet
from aces.errors import InputError
from aces.params import Train
from aces.training import distributed
from aces.training.batches import Batch
from aces.training.checkpoint import Checkpoint, code_digest, fingerprint
from aces.training.distributed import Group
from aces.training.methods import Method
from aces.training.schedule import decays, learning_rate
from aces.training.sources import open_source

LOOK_EVERY = 10  # steps between two looks at the loss: each look waits for the GPU

OnEpoch = Callable[[int, dict[str, float]], None]


def train_network(
    network: nn.Module,
    data: TrainSet,
    *,
    settings: Train,
    method: Method,
    sigma: float,
    seed: int,
    device: str = "auto",
    scratch: Path,
    title: str,
    on_epoch: OnEpoch | None = None,
) -> nn.Module:
    """Train `network` (pixels in [0, 1] -> logits) in place; it is returned on the CPU, in
    evaluation mode.

    The same arguments give the same weights on one machine, whether the run was interrupted or not:
    after each epoch the state is kept in `scratch`, and all randomness is keyed by (seed, title,
    epoch). `on_epoch(epoch, metrics)` gets the mean loss and accuracy over the epoch's training
    batches and the last learning rate; a resumed run repeats the calls of the epochs it skips. The
    last state stays, so the same training is not done twice, unless its code changed.

    Started by `torchrun`, the processes share every batch, and only the first calls `on_epoch` and
    writes to `scratch`.
    """
    device = distributed.choose_device(device)
    group = distributed.join(device)
    images = (
        data.image if isinstance(data.image, np.ndarray) else [str(path) for path in data.image]
    )
    checkpoint = Checkpoint(
        scratch,
        fingerprint(
            settings,
            method.name,
            method.settings,
            method.split,
            sigma,
            seed,
            title,
            device.type,
            group.size,
            networks.fingerprint(network),
            images,
            data.label,
        ),
    )
    training = _Training(
        network,
        data,
        settings=settings,
        method=method,
        sigma=sigma,
        seed=seed,
        title=title,
        device=device,
        group=group,
    )
    with checkpoint.locked() if group.main else nullcontext(), _reproducible(device):
        history = training.restore(
            distributed.from_main(checkpoint.read() if group.main else None, group)
        )
        remaining = settings.epochs - len(history)
        with (
            progress(title, remaining * training.images, "images")
            if group.main
            else nullcontext() as bar
        ):
            for epoch in range(settings.epochs):
                if epoch == len(history):
                    history.append(training.run_epoch(epoch, bar))
                    if group.main:
                        checkpoint.write(training.state(history))
                if group.main and on_epoch is not None:
                    on_epoch(epoch, history[epoch])
    return network.cpu().eval()


class _Training:
    """A network, its optimiser and its images, between two epochs."""

    def __init__(
        self,
        network: nn.Module,
        data: TrainSet,
        *,
        settings: Train,
        method: Method,
        sigma: float,
        seed: int,
        title: str,
        device: torch.device,
        group: Group,
    ):
        self.settings, self.method, self.sigma, self.code = (
            settings,
            method,
            sigma,
            code_digest(method.loss, network),
        )
        self.seed, self.title, self.device, self.group = seed, title, device, group
        self.batch = _images_per_step(settings, method, count=len(data.label), group=group)
        self.steps = (
            len(data.label) // self.batch
        )  # the few images left over are others in every epoch
        self.images = self.steps * self.batch
        self.count = len(data.label)
        self.source = open_source(data, device)
        self.network = network.to(device, memory_format=torch.channels_last)
        self.parallel = distributed.parallel(network, group)
        # Nesterov belongs to the one-cycle recipe; the published recipes are the schedule `step`
        # with plain momentum.
        nesterov = settings.schedule == "one-cycle" and settings.momentum > 0
        self.optimizer = torch.optim.SGD(
            network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=nesterov,
        )

    def state(self, history: list[dict]) -> dict:
        """What it takes to go on or, after the last epoch, the trained network and the code that
        trained it.
        """
        rest = (
            {"code": self.code}
            if len(history) == self.settings.epochs
            else {"optimizer": self.optimizer.state_dict()}
        )
        return {"network": self.network.state_dict(), "history": history, **rest}

    def restore(self, state: dict | None) -> list[dict]:
        """Go on from `state`; the metrics of the epochs done. A network trained by other code is
        not taken.
        """
        if state is None or (
            "optimizer" not in state and (self.code is None or state["code"] != self.code)
        ):
            return []
        self.network.load_state_dict(state["network"])
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        return list(state["history"])

    def run_epoch(self, epoch: int, bar) -> dict[str, float]:
        """One pass over the images: the mean loss, the accuracy, the last learning rate."""
        self.parallel.train()
        torch.manual_seed(
            self._derive_seed(epoch, "network", self.group.rank)
        )  # dropout and the like
        generator = torch.Generator(self.device).manual_seed(
            self._derive_seed(epoch, "noise", self.group.rank)
        )
        totals, note = torch.zeros(2, dtype=torch.float64, device=self.device), ""
        passed = decays(self.settings, epoch=epoch)
        for step, (image, label) in enumerate(self._batches(epoch)):
            rate = learning_rate(self.settings, time=epoch + (step + 0.5) / self.steps)
            totals += self._step(Batch(image, label, epoch, passed), rate, generator)
            if step % LOOK_EVERY == 0 or step == self.steps - 1:
                loss = totals[0].item() / (step + 1)
                self._check(loss, epoch)
                note = f"epoch {epoch + 1} of {self.settings.epochs}, loss {loss:.3f}"
            if bar is not None:
                bar.advance(self.batch, note=note)
        loss, accuracy = (distributed.average(totals, self.group) / self.steps).tolist()
        return {"loss": loss, "accuracy": accuracy, "lr": rate}

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the epoch's batches, in random order."""
        generator = torch.Generator().manual_seed(self._derive_seed(epoch, "order"))
        order = torch.randperm(self.count, generator=generator)[: self.images].view(
            self.steps, self.batch
        )
        share = order[:, self.group.rank :: self.group.size]
        return self.source.batches(share, seed=self._derive_seed(epoch, "views"))

    def _step(self, batch: Batch, rate: float, generator: torch.Generator) -> Tensor:
        """One step of SGD at learning rate `rate`: the loss and the accuracy, (2,)."""
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.method.loss(
                self.parallel,
                batch,
                sigma=self.sigma,
                generator=generator,
                settings=self.method.settings,
            )
        loss.value.backward()
        self.optimizer.step()
        correct = loss.scores.detach().argmax(1) == batch.label
        return torch.stack((loss.value.detach().double(), correct.double().mean()))

    def _check(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise InputError(
                f"training {self.title}: the loss is {loss} in epoch {epoch + 1}: lower lr={self.settings.lr:g} "
                f"of its training settings, or check the images"
            )

    def _derive_seed(self, *parts: object) -> int:
        """63 bits for these parts: different parts give independent streams."""
        text = repr((self.seed, self.title, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _images_per_step(settings: Train, method: Method, *, count: int, group: Group) -> int:
    """How many images a step takes, over all processes; all of a dataset smaller than the batch."""
    batch = min(settings.batch // method.split, count)
    if batch == 0 or batch % group.size != 0:
        raise InputError(
            f"train.batch={settings.batch}: expected a multiple of {method.split * group.size} "
            f"({method.split} steps a batch for {method.name}, {group.size} processes)"
        )
    return batch


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Deterministic kernels inside; the caller's random state and switches are untouched after."""
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False),
    ):
        yield
