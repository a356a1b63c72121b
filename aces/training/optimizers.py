"""The optimiser that the training settings name, and the precision of the forward pass."""

import torch
from torch import nn
from torch.optim import Optimizer

from aces.params import Train
from aces.training.muon import Muon


def make_optimizer(network: nn.Module, settings: Train) -> Optimizer:
    """`sgd` or `muon`, for the parameters of `network`. The loop sets the learning rate at each
    step.
    """
    if settings.optimizer == "muon":
        return Muon(
            network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
    # Nesterov belongs to the one-cycle recipe; the published recipes are the schedule `step` with
    # plain momentum.
    nesterov = settings.schedule == "one-cycle" and settings.momentum > 0
    return torch.optim.SGD(
        network.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=nesterov,
    )


def autocast(device: torch.device, settings: Train) -> torch.autocast:
    """The context of the forward pass. The weights, their gradients and the loss stay float32.

    A GPU always computes in bfloat16. A CPU does so where the settings say it; on a CPU without
    bfloat16 instructions this is correct but slow.
    """
    reduced = device.type == "cuda" or settings.precision == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=reduced)
