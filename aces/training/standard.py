"""Standard training: cross-entropy on clean images (the core network)."""

import torch
import torch.nn.functional as F
from torch import nn

from aces.training.batches import Batch, Loss


def loss(
    network: nn.Module, batch: Batch, *, sigma: float, generator: torch.Generator, settings: None
) -> Loss:
    logits = network(batch.image).float()
    return Loss(F.cross_entropy(logits, batch.label), logits)
