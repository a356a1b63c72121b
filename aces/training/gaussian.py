"""Gaussian augmentation (Cohen et al., 2019): cross-entropy on one noisy copy of each image."""

import torch
from torch import nn

from aces.training.batches import Batch, Loss, cross_entropy, draw_noise, noisy_copies


def loss(
    network: nn.Module, batch: Batch, *, sigma: float, generator: torch.Generator, settings: None
) -> Loss:
    noise = draw_noise(batch.image, sigma=sigma, draws=1, generator=generator)
    logits = network(noisy_copies(batch.image, noise)).float()
    return Loss(cross_entropy(logits, batch), logits)
