"""SmoothAdv (Salman et al., 2019): adversarial training of the smoothed classifier.

The attack looks for a perturbation of the image, of norm at most epsilon, that raises the loss of
the mean prediction over m noisy copies; the network then trains on the same m copies of the
perturbed image. It attacks in evaluation mode, from a perturbation of 0, and epsilon grows over the
first epochs.

DDN (Rony et al., 2019) decouples the direction and the norm of the perturbation: the norm shrinks
where the copies are misclassified and grows elsewhere. The published code rounds its images to 256
levels; we do not.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces import params
from aces.training.batches import Batch, Loss, cross_entropy, draw_noise, noisy_copies
from aces.training.distributed import bare

# Part of the definition of DDN, as published: nobody tunes them, so they are not in params.yaml.
DDN_GAMMA = 0.05  # the relative change of the norm per step
DDN_FLOOR = 0.01  # the length of the last step; with many steps the first one is nearly 1


def loss(
    network: nn.Module,
    batch: Batch,
    *,
    sigma: float,
    generator: torch.Generator,
    settings: params.SmoothAdv,
) -> Loss:
    noise = draw_noise(batch.image, sigma=sigma, draws=settings.draws, generator=generator)
    epsilon = warmed_up(settings, epoch=batch.epoch)
    network.eval()
    attack = {"pgd": pgd, "ddn": ddn}[settings.attack]
    delta = attack(bare(network), batch, noise, epsilon=epsilon, steps=settings.steps)
    network.train()
    logits = network(noisy_copies(batch.image + delta, noise)).float()
    value = cross_entropy(logits, batch)
    return Loss(value, F.softmax(logits, dim=1).unflatten(0, (settings.draws, -1)).mean(0))


def warmed_up(settings: params.SmoothAdv, *, epoch: int) -> float:
    """The radius of the attack in this epoch: linear in the warm-up, then epsilon."""
    return settings.epsilon * min(1.0, (epoch + 1) / max(settings.warmup, 1))


def pgd(network: nn.Module, batch: Batch, noise: Tensor, *, epsilon: float, steps: int) -> Tensor:
    """Projected gradient ascent in steps of 2 epsilon / steps: a perturbation (B, C, H, W) of norm
    at most epsilon.
    """
    delta = torch.zeros_like(batch.image)
    for _ in range(steps):
        _, direction = _ascend(network, batch, noise, delta)
        delta = _in_range(batch.image, delta + 2 * epsilon / steps * direction)
        delta = delta * (epsilon / _norm(delta)).clamp(max=1)
    return delta


def ddn(network: nn.Module, batch: Batch, noise: Tensor, *, epsilon: float, steps: int) -> Tensor:
    """The smallest perturbation tried that fools the mean prediction, of norm at most epsilon; 0
    where none did.
    """
    delta, best = torch.zeros_like(batch.image), torch.zeros_like(batch.image)
    worst = _norm(
        torch.maximum(batch.image, 1 - batch.image)
    )  # no perturbation within [0, 1] is longer
    norm, best_norm = torch.full_like(worst, epsilon), worst
    for step in range(steps):
        p, direction = _ascend(network, batch, noise, delta)
        fooled = _columns(p.argmax(1) != batch.label)
        better = fooled & (_norm(delta) < best_norm)
        best, best_norm = (
            torch.where(better, delta, best),
            torch.where(better, _norm(delta), best_norm),
        )
        length = DDN_FLOOR + (1 - DDN_FLOOR) * (1 + math.cos(math.pi * (step + 1) / steps)) / 2
        delta = delta + length * direction
        norm = torch.minimum(
            torch.where(fooled, norm * (1 - DDN_GAMMA), norm * (1 + DDN_GAMMA)), worst
        )
        delta = _in_range(batch.image, delta * norm / _norm(delta))
    return best * (epsilon / _norm(best)).clamp(max=1)


def smoothed_loss(logits: Tensor, label: Tensor, *, draws: int) -> tuple[Tensor, Tensor]:
    """-log of the mean softmax over the draws at the label, (B,), and that mean, (B, K); logits:
    (draws B, K).
    """
    log_p = F.log_softmax(logits.float(), dim=1).unflatten(0, (draws, -1))
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(draws)
    return F.nll_loss(log_mean, label, reduction="none"), log_mean.exp().detach()


def _ascend(
    network: nn.Module, batch: Batch, noise: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean prediction at `delta`, (B, K), and the direction of steepest ascent, of norm 1 for
    each image.
    """
    delta = delta.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(noisy_copies(batch.image + delta, noise))
        losses, p = smoothed_loss(logits, batch.label, draws=len(noise))
        (gradient,) = torch.autograd.grad(losses.sum(), delta)
    return p, gradient / _norm(gradient)


def _in_range(image: Tensor, delta: Tensor) -> Tensor:
    """The perturbation, cut so that the perturbed image stays in [0, 1]."""
    return (image + delta).clamp(0, 1) - image


def _norm(x: Tensor) -> Tensor:
    """The l2 norm of each image, (B, 1, 1, 1); never 0, so that a zero gradient gives no step
    instead of NaN.
    """
    return _columns(x.flatten(1).norm(dim=1).clamp_min(1e-12))


def _columns(x: Tensor) -> Tensor:
    return x.view(-1, 1, 1, 1)
