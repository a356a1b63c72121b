"""Standard training: cross-entropy on clean images (the core network)."""

import torch
from torch import nn

from aces.training.batches import Batch, Loss, cross_entropy
from aces.training.method import Method


def loss(
    network: nn.Module, batch: Batch, *, sigma: float, generator: torch.Generator, settings: None
) -> Loss:
    logits = network(batch.image).float()
    return Loss(cross_entropy(logits, batch), logits)


def method() -> Method:
    return Method("standard", loss)
