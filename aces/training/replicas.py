"""One step on several cores: each trains a copy of the network on its share of the batch.

The threads of OpenMP meet after every operation of a network, hundreds of times in a step. Where
the operations are short they spend as long waiting for each other as working. The threads here meet
once in a step: each runs the whole forward and backward pass on its share, with one copy of the
network, and then the gradients are added, always in the same order.

The copies share their weights. Batch norm sees one share at a time, as it does when several
processes train (`aces.training.distributed`), and its running statistics are averaged after every
epoch. How a batch is shared is a setting (`train.shards`), so the trained network does not depend
on the number of cores, as long as there are no more cores than shares.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from aces import runtime
from aces.errors import InputError

Found = TypeVar("Found")


class Replicas:
    """`count` copies of a network, the first of which is the network itself. As a context, it ends
    its threads.
    """

    def __init__(self, network: nn.Module, count: int):
        if count > 1 and any(isinstance(layer, _DropoutNd) for layer in network.modules()):
            raise InputError(
                f"train.shards={count}: expected 1 for a network with dropout, whose random "
                "numbers threads would take in an order that changes from run to run"
            )
        self.networks = [network, *(copy.deepcopy(network) for _ in range(count - 1))]
        for other in self.networks[1:]:
            for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
                theirs.data = mine.data  # the same memory: the optimiser changes all of them
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self.networks)

    def __enter__(self) -> "Replicas":
        if len(self) > 1:
            cores = runtime.cores()
            threads = max(1, cores // len(self))
            self._pool = ThreadPoolExecutor(
                min(len(self), cores), "training", torch.set_num_threads, (threads,)
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def run(self, work: Callable[..., Found], *shares: Sequence[object]) -> list[Found]:
        """work(network, *share) for each share, side by side; work ends with a backward pass.

        Afterwards the gradients of the first network are the sums over all networks.
        """
        if self._pool is None:
            return list(map(work, self.networks, *shares))
        found = list(self._pool.map(work, self.networks, *shares))
        for first, *others in zip(*(each.parameters() for each in self.networks), strict=True):
            for other in others:
                if other.grad is not None:
                    first.grad = other.grad if first.grad is None else first.grad.add_(other.grad)
                other.grad = None
        return found

    def average_buffers(self) -> None:
        """Give every network the mean of their running statistics, which change by linear steps."""
        for buffers in zip(*(each.buffers() for each in self.networks), strict=True):
            if buffers[0].is_floating_point():
                mean = torch.stack(buffers).mean(dim=0)
                for buffer in buffers:
                    buffer.copy_(mean)

    def take_buffers(self) -> None:
        """Give every network the running statistics of the first."""
        for first, *others in zip(*(each.buffers() for each in self.networks), strict=True):
            for other in others:
                other.copy_(first)
