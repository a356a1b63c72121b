"""Certificates hold in practice: no attack within the radius changes PREDICT's class; some attack
within twice the radius does.

The attacks know everything: the networks, sigma, theta. They push the smoothed class away from the
certified one, or the selection over to a core network that answers otherwise, or go in random
directions.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from aces import ACES, data
from aces.rule import Route
from aces.rule.smoothing import ABSTAIN
from aces.sampling.tally import entropy
from default_networks import default_images, default_model
from small_models import digits, digits_model

torch.set_num_threads(1)

STEPS, DRAWS, DIRECTIONS = 20, 32, 16


@dataclass
class Subject:
    """A model, and images that it certifies: x (N, C, H, W), with class (N,) and radius (N,)."""

    model: ACES
    x: Tensor
    label: Tensor
    radius: Tensor


def certified(model: ACES, image: np.ndarray, *, most: int) -> Subject:
    certificates = model.certify(image, n=2000, seed=0)
    chosen = [
        i for i, certificate in enumerate(certificates) if certificate.route == Route.CERTIFY
    ][:most]
    assert len(chosen) >= most // 2
    return Subject(
        model,
        data.to_tensor(image[chosen]),
        torch.tensor([certificates[i].prediction for i in chosen]),
        torch.tensor([certificates[i].radius for i in chosen]),
    )


@pytest.fixture(scope="module", params=["digits, trained here", "the default networks"])
def subject(request) -> Subject:
    if request.param == "digits, trained here":
        return certified(digits_model(), digits().image, most=20)
    return certified(default_model(), default_images().image[:40], most=10)


def push_class(logits: Tensor, label: Tensor) -> Tensor:
    """-log of the smoothed probability of the certified class; logits: (m, N, K)."""
    smoothed = logits.softmax(dim=2).mean(dim=0)
    return -smoothed.gather(1, label[:, None]).log()[:, 0]


def push_selection(logits: Tensor, label: Tensor) -> Tensor:
    """The mean score: above theta, the core network answers."""
    return entropy(logits.flatten(0, 1)).unflatten(0, logits.shape[:2]).mean(dim=0)


def attack(subject: Subject, objective, *, scale: float) -> Tensor:
    """PGD in the l2 ball of `scale` times the radius, on `objective` of the smoothed network; stays
    in [0, 1].
    """
    network, generator = subject.model.networks["certify"].eval(), torch.Generator().manual_seed(0)
    reach = (scale * subject.radius).float()[:, None, None, None]
    moved = torch.zeros_like(subject.x)
    for _ in range(STEPS):
        moved.requires_grad_(True)
        noise = subject.model.sigma * torch.randn((DRAWS, *moved.shape), generator=generator)
        logits = network((subject.x + moved + noise).flatten(0, 1)).unflatten(0, noise.shape[:2])
        (gradient,) = torch.autograd.grad(objective(logits, subject.label).sum(), moved)
        step = gradient / gradient.flatten(1).norm(dim=1)[:, None, None, None].clamp_min(1e-12)
        moved = within(subject.x, moved.detach() + 2.5 * reach / STEPS * step, reach)
    return subject.x + moved


def within(x: Tensor, moved: Tensor, reach: Tensor) -> Tensor:
    """The nearest move that keeps the image in [0, 1], shorter than `reach` by more than rounding.
    Clamping only shortens.
    """
    moved = (x + moved).clamp(0, 1) - x
    norm = moved.flatten(1).norm(dim=1)[:, None, None, None].clamp_min(1e-12)
    return moved * (reach * (1 - 1e-4) / norm).clamp_max(1)


def answers(subject: Subject, attacked: Tensor, *, scale: float) -> Tensor:
    """PREDICT's classes, after making sure that the attack kept to its ball."""
    distance = (attacked - subject.x).flatten(1).double().norm(dim=1)
    assert (distance < scale * subject.radius).all() and distance.min() > 0
    return torch.tensor(subject.model.predict(attacked.clamp(0, 1), n=4000, adaptive=True, seed=1))


def changed(subject: Subject, attacked: Tensor, *, scale: float) -> int:
    given = answers(subject, attacked, scale=scale)
    return int(((given != subject.label) & (given != ABSTAIN)).sum())


@pytest.mark.parametrize("objective", [push_class, push_selection])
def test_pgd_within_the_radius_changes_no_class(subject, objective):
    assert changed(subject, attack(subject, objective, scale=1.0), scale=1.0) == 0


def test_random_directions_within_the_radius_change_no_class(subject):
    generator = torch.Generator().manual_seed(2)
    for _ in range(DIRECTIONS):
        direction = torch.randn(subject.x.shape, generator=generator)
        reach = subject.radius.float()[:, None, None, None]
        moved = within(
            subject.x,
            reach * direction / direction.flatten(1).norm(dim=1)[:, None, None, None],
            reach,
        )
        assert changed(subject, subject.x + moved, scale=1.0) == 0


def test_pgd_within_twice_the_radius_changes_some(subject):
    """So the attack is worth something, and the radii are not needlessly small."""
    found = sum(
        changed(subject, attack(subject, objective, scale=2.0), scale=2.0)
        for objective in (push_class, push_selection)
    )
    assert found >= 1
