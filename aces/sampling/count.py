"""One unit of work: noise, forward pass, counts."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from aces.errors import InputError
from aces.rule.counts import Settings
from aces.runtime import Stopped
from aces.sampling.batches import Job, batches, rows_of
from aces.sampling.checks import Forward
from aces.sampling.forward import Network, opened
from aces.sampling.tally import CompiledTally, Score, TorchTally

_BLOCK = 2048  # draws whose logits torch counts together


@dataclass(frozen=True)
class Counter:
    """What turns jobs into counts; can be sent to another process and opened there."""

    network: Network
    settings: Settings
    num_classes: int
    score: Score | None = None  # of the user's own

    def open(self, device: torch.device) -> Callable[[Job, threading.Event], np.ndarray]:
        here = self.network.backend_on(device)
        if here != self.network.backend:
            raise InputError(
                f"{os.uname().nodename} would run the network by {here}, the others by "
                f"{self.network.backend}: give every node the same environment and the same kind "
                "of device"
            )
        forward = opened(self.network, device)
        return lambda job, stop: self._count(job, forward, device, stop)

    @torch.inference_mode()
    def _count(
        self, job: Job, forward: Forward, device: torch.device, stop: threading.Event
    ) -> np.ndarray:
        """(G, width) counts of a unit, one row for each image; see `aces.sampling.tally`. Raises
        Stopped once `stop` is set: nobody waits for the unit any more.
        """
        # Float noise is for comparison with earlier versions, so it is counted as they did.
        compiled = device.type == "cpu" and self.settings.noise == "exact"
        return (self._count_compiled if compiled else self._count_by_torch)(
            job, forward, device, stop
        )

    def _count_compiled(
        self, job: Job, forward: Forward, device: torch.device, stop: threading.Event
    ) -> np.ndarray:
        tally = CompiledTally(job.guess, num_classes=self.num_classes, score=self.score)
        rows, made = rows_of(job.unit), 0
        for batch in batches(job, self.settings, size=self.network.batch, device=device):
            if stop.is_set():
                raise Stopped
            logits = [each[: batch.used] for each in forward(batch.draws)]
            tally.add(rows[made : made + batch.used], *logits)
            made += batch.used
        return tally.counts()

    def _count_by_torch(
        self, job: Job, forward: Forward, device: torch.device, stop: threading.Event
    ) -> np.ndarray:
        guess = torch.from_numpy(job.guess).to(device)
        tally = TorchTally(guess, num_classes=self.num_classes, score=self.score)
        rows = torch.from_numpy(rows_of(job.unit)).to(device)
        made = counted = 0
        logits = []
        for batch in batches(job, self.settings, size=self.network.batch, device=device):
            if stop.is_set():
                raise Stopped
            # They are counted later, when the next batch is in this one's place: some networks
            # return a part of their input.
            logits.append([each[: batch.used].clone() for each in forward(batch.draws)])
            made += batch.used
            if made - counted >= _BLOCK or made == job.unit.draws:
                tally.add(rows[counted:made], *map(torch.cat, zip(*logits, strict=True)))
                counted, logits = made, []
        return tally.counts()
