"""The optimiser that the training settings name, and the precision of the forward pass."""

import platform

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


def precision_on(device: torch.device, settings: Train) -> str:
    """The precision of the forward and backward pass on this device.

    A GPU always computes in bfloat16. A CPU does so where the settings say it and the CPU has
    instructions for it; without them bfloat16 would be several times slower than float32.
    """
    if device.type == "cuda":
        return "bfloat16"
    return settings.precision if device.type == "cpu" and has_bfloat16() else "float32"


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 numbers by instructions of its own."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        # torch has no public name for these two questions.
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of the forward pass. The weights, their gradients and the loss stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
