"""Consistency regularisation (Jeong and Shin, 2020).

Over m noisy copies of an image with predictions p_i and their mean p:

    cross-entropy + lambda * mean_i KL(p || p_i) + eta * H(p)
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces import params
from aces.training.batches import Batch, Loss, cross_entropy, draw_noise, noisy_copies


def loss(
    network: nn.Module,
    batch: Batch,
    *,
    sigma: float,
    generator: torch.Generator,
    settings: params.Consistency,
) -> Loss:
    noise = draw_noise(batch.image, sigma=sigma, draws=settings.draws, generator=generator)
    logits = network(noisy_copies(batch.image, noise)).float()
    value = cross_entropy(logits, batch)
    log_p = F.log_softmax(logits, dim=1).unflatten(0, (settings.draws, -1))
    value = (
        value + settings.weight * divergence(log_p).mean() + settings.eta * entropy(log_p).mean()
    )
    return Loss(value, log_p.exp().mean(0))


def divergence(log_p: Tensor) -> Tensor:
    """mean_i KL(p || p_i) for log-probabilities (m, B, K): (B,), 0 if the draws agree."""
    log_mean = _log_mean(log_p)
    return (log_mean.exp() * (log_mean - log_p)).sum(2).mean(0)


def entropy(log_p: Tensor) -> Tensor:
    """H(p) of the mean prediction, for log-probabilities (m, B, K): (B,), in nats."""
    log_mean = _log_mean(log_p)
    return -(log_mean.exp() * log_mean).sum(1)


def _log_mean(log_p: Tensor) -> Tensor:
    return torch.logsumexp(log_p, dim=0) - math.log(len(log_p))
