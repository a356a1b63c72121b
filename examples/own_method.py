"""A training method of one's own, used without changing a file of the project.

In params.yaml:

    certify:
      method: examples.own_method:loss
      code: examples/own_method.py    # DVC trains again when this file changes
      settings:
        draws: 2
        weight: 0.5
"""

import torch
import torch.nn.functional as F
from torch import nn

from aces.training import Batch, Loss
from aces.training.batches import cross_entropy, draw_noise, noisy_copies


def loss(
    network: nn.Module, batch: Batch, *, sigma: float, generator: torch.Generator, settings: dict
) -> Loss:
    """Stability training: cross-entropy of noisy copies, and a penalty where they disagree.

    The penalty is the variance of the predicted probabilities over the copies of an image, summed
    over the classes; `weight` is its weight.
    """
    draws, weight = settings.get("draws", 2), settings.get("weight", 0.5)
    noise = draw_noise(batch.image, sigma=sigma, draws=draws, generator=generator)
    logits = network(noisy_copies(batch.image, noise)).float()
    p = F.softmax(logits, dim=1).unflatten(0, (draws, -1))  # (draws, B, K)
    penalty = p.var(dim=0).sum(dim=1).mean()
    return Loss(cross_entropy(logits, batch) + weight * penalty, p.mean(0))
