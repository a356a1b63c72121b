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

_BLOCK = 2048  # draws whose logits are counted together


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
        tally = (CompiledTally if compiled else TorchTally)(
            torch.from_numpy(job.guess).to(device), num_classes=self.num_classes, score=self.score
        )
        rows = torch.from_numpy(rows_of(job.unit)).to(device)
        made = counted = 0
        logits = []
        for batch in batches(job, self.settings, size=self.network.batch, device=device):
            if stop.is_set():
                raise Stopped
            # Counted later, many at once: a tally's call costs more than its few additions.
            logits.append(batch.kept(forward(batch.draws)))
            made += batch.used
            if made - counted >= _BLOCK or made == job.unit.draws:
                tally.add(rows[counted:made], *map(torch.cat, zip(*logits, strict=True)))
                counted, logits = made, []
        return tally.counts()
