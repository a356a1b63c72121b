"""Several processes, one training: torch's DistributedDataParallel, started by `torchrun`.

Each process takes its share of every batch, so the batch, the order and the augmentation are those
of one process; the noise is drawn by each process for its own images. Batch norm uses each
process's share, as in the published recipes.
"""

import atexit
import datetime
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aces import runtime

# While the main process waits for another experiment that trains the same network, the other
# processes wait for the main one.
PATIENCE = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Group:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        return self.rank == 0


def join(device: torch.device) -> Group:
    """The processes torchrun started, or this one alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Group()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    return Group(dist.get_rank(), dist.get_world_size())


def choose_device(name: str) -> torch.device:
    """`auto` is this process's GPU, else the CPU, and `cuda` its GPU; other names are those of the
    sampler.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return runtime.devices(name)[0]


def parallel(network: nn.Module, group: Group) -> nn.Module:
    """The network whose backward pass averages the gradients of all processes."""
    return network if group.size == 1 else DistributedDataParallel(network)


def bare(network: nn.Module) -> nn.Module:
    """The network itself, for passes that no other process waits for."""
    return network.module if isinstance(network, DistributedDataParallel) else network


def from_main(value, group: Group):
    """The main process's `value`, in every process."""
    if group.size == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def average(values: torch.Tensor, group: Group) -> torch.Tensor:
    """The mean of `values` over the processes."""
    if group.size > 1:
        dist.all_reduce(values)
    return values / group.size
