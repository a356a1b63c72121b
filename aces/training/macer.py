"""MACER (Zhai et al., 2020): attack-free training for a large certified radius.

Over k noisy copies of an image, with p the mean softmax and q the mean softmax of beta times the
logits:

    -log p[label]  +  lambda * sigma / 2 * max(0, gamma - (ppf(q[top 1]) - ppf(q[top 2])))

the second term only where the top class is the label. The soft radius is sigma / 2 * (ppf(q1) -
ppf(q2)), and gamma is in units of the difference, as in the published code.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces import params
from aces.training.batches import Batch, Loss, draw_noise, noisy_copies


def loss(
    network: nn.Module,
    batch: Batch,
    *,
    sigma: float,
    generator: torch.Generator,
    settings: params.Macer,
) -> Loss:
    noise = draw_noise(batch.image, sigma=sigma, draws=settings.draws, generator=generator)
    logits = network(noisy_copies(batch.image, noise)).float().unflatten(0, (settings.draws, -1))
    p = F.softmax(logits, dim=2).mean(0)
    log_p, smoothing = p.clamp_min(1e-10).log(), batch.label_smoothing
    value = (1 - smoothing) * F.nll_loss(log_p, batch.label) - smoothing * log_p.mean()
    if batch.decays >= settings.after_milestone:
        q = F.softmax(settings.beta * logits, dim=2).mean(0)
        hinge = radius_hinge(q, batch.label, sigma=sigma, gamma=settings.gamma)
        value = value + settings.weight * hinge.sum() / len(batch.label)
    return Loss(value, p)


def radius_hinge(q: Tensor, label: Tensor, *, sigma: float, gamma: float) -> Tensor:
    """sigma / 2 * (gamma - gap) for the images that are classified correctly with a gap below
    gamma: (at most B,).

    The others contribute nothing, so they are left out: a ppf of 0 or 1 is infinite and would spoil
    the gradient.
    """
    with torch.no_grad():
        kept = (q.argmax(1) == label) & (_gap(q) < gamma)
    return sigma / 2 * (gamma - _gap(q[kept]))


def _gap(q: Tensor) -> Tensor:
    """ppf(q1) - ppf(q2) of the two largest of each row; q: (B, K) -> (B,)."""
    first, second = q.topk(2, dim=1).values.unbind(1)
    return torch.special.ndtri(first) - torch.special.ndtri(second)
