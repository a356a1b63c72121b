"""Each loss against a slow version written straight from its formula, with its gradient."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from aces import params
from aces.training import consistency, gaussian, macer, methods, smoothadv, standard
from aces.training.batches import Batch, draw_noise, noisy_copies

pytestmark = pytest.mark.slow

SIGMA, CLASSES = 0.25, 4
MACER = params.Macer(sigma=SIGMA, draws=3, beta=2.0, gamma=8.0, weight=4.0, after_milestone=0)
CONSISTENCY = params.Consistency(sigma=SIGMA, draws=3, weight=5.0, eta=0.5)


def smooth_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(54, CLASSES)
    )


def a_batch(size: int = 6, **progress) -> Batch:
    generator = torch.Generator().manual_seed(5)
    image = torch.rand(size, 8, 8, 3, generator=generator).permute(0, 3, 1, 2)
    return Batch(image, torch.randint(CLASSES, (size,), generator=generator), **progress)


def key() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def draws_of(batch: Batch, count: int) -> torch.Tensor:
    """The noise a method draws from `key()`."""
    return draw_noise(batch.image, sigma=SIGMA, draws=count, generator=key())


def probabilities(
    network: nn.Module, image: torch.Tensor, noise: torch.Tensor, beta: float = 1.0
) -> list[torch.Tensor]:
    return [torch.softmax(beta * network((image + one)[None])[0], dim=0) for one in noise]


def assert_same(network: nn.Module, fast: torch.Tensor, slow: torch.Tensor) -> None:
    """Values and gradients by every weight agree."""
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    weights = list(network.parameters())
    for a, b in zip(
        torch.autograd.grad(fast, weights), torch.autograd.grad(slow, weights), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_standard_is_the_cross_entropy_of_clean_images():
    network, batch = smooth_network(), a_batch()
    fast = standard.loss(network, batch, sigma=SIGMA, generator=key(), settings=None)
    slow = (
        sum(
            -torch.log_softmax(network(x[None])[0], 0)[y]
            for x, y in zip(batch.image, batch.label, strict=True)
        )
        / 6
    )
    assert_same(network, fast.value, slow)
    assert torch.equal(fast.scores, network(batch.image))


def test_gaussian_is_the_cross_entropy_of_noisy_images():
    network, batch = smooth_network(), a_batch()
    fast = gaussian.loss(network, batch, sigma=SIGMA, generator=key(), settings=None)
    noise = draws_of(batch, 1)[0]
    slow = (
        sum(
            -torch.log_softmax(network((x + e)[None])[0], 0)[y]
            for x, e, y in zip(batch.image, noise, batch.label, strict=True)
        )
        / 6
    )
    assert_same(network, fast.value, slow)


def test_noise_has_the_given_deviation_and_is_not_clipped():
    image = torch.zeros(4, 3, 32, 32).to(memory_format=torch.channels_last)
    noise = draw_noise(image, sigma=0.5, draws=8, generator=key())
    assert noise.shape == (8, 4, 3, 32, 32)
    assert noise.mean().item() == pytest.approx(0, abs=0.5 * 5 / math.sqrt(noise.numel()))
    assert noise.std().item() == pytest.approx(0.5, rel=5 / math.sqrt(2 * noise.numel()))
    copies = noisy_copies(image, noise)
    assert copies.min() < -1 and torch.equal(copies[4 * 5 + 2], noise[5, 2])
    assert copies.is_contiguous(memory_format=torch.channels_last)


def test_consistency_follows_its_formula():
    network, batch = smooth_network(), a_batch()
    fast = consistency.loss(network, batch, sigma=SIGMA, generator=key(), settings=CONSISTENCY)
    noise = draws_of(batch, 3)
    slow = torch.zeros(())
    for row, (image, label) in enumerate(zip(batch.image, batch.label, strict=True)):
        p = probabilities(network, image, noise[:, row])
        mean = sum(p) / 3
        slow = slow + sum(-torch.log(one[label]) for one in p) / 3
        slow = (
            slow
            + 5.0
            * sum(
                sum(mean[c] * (torch.log(mean[c]) - torch.log(one[c])) for c in range(CLASSES))
                for one in p
            )
            / 3
        )
        slow = slow + 0.5 * -sum(mean[c] * torch.log(mean[c]) for c in range(CLASSES))
    assert_same(network, fast.value, slow / 6)


def test_consistency_is_zero_for_identical_draws_and_positive_otherwise():
    logits = torch.randn(4, 5, CLASSES, generator=key(), dtype=torch.float64)
    same = logits[:1].repeat(4, 1, 1).requires_grad_()
    value = consistency.divergence(torch.log_softmax(same, dim=2))
    (gradient,) = torch.autograd.grad(value.sum(), same)
    torch.testing.assert_close(value, torch.zeros_like(value), atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    assert consistency.divergence(torch.log_softmax(logits, dim=2)).min() > 0.01


def test_macer_follows_its_formula():
    network, batch = smooth_network(), a_batch(40)
    fast = macer.loss(network, batch, sigma=SIGMA, generator=key(), settings=MACER)
    noise = draws_of(batch, 3)
    slow, hinges = torch.zeros(()), 0
    for row, (image, label) in enumerate(zip(batch.image, batch.label, strict=True)):
        p = sum(probabilities(network, image, noise[:, row])) / 3
        slow = slow - torch.log(p[label])
        q = sum(probabilities(network, image, noise[:, row], beta=2.0)) / 3
        order = torch.argsort(q, descending=True)
        soft_radius = (
            SIGMA / 2 * (torch.special.ndtri(q[order[0]]) - torch.special.ndtri(q[order[1]]))
        )
        if order[0] == label and soft_radius < SIGMA / 2 * 8.0:
            slow, hinges = slow + 4.0 * (SIGMA / 2 * 8.0 - soft_radius), hinges + 1
    assert 0 < hinges < 40, "the batch must hold images of both kinds"
    assert_same(network, fast.value, slow / 40)


def test_the_soft_radius_has_its_numerical_derivative():
    q = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.75, 0.05]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0, 1])
    (gradient,) = torch.autograd.grad(macer.radius_hinge(q, label, sigma=0.5, gamma=8.0).sum(), q)

    def hinge(values: np.ndarray) -> float:
        top = np.sort(values, axis=1)[:, ::-1]
        return float((0.5 / 2 * (8.0 - (norm.ppf(top[:, 0]) - norm.ppf(top[:, 1])))).sum())

    for place in np.ndindex(2, 3):
        step = np.zeros((2, 3))
        step[place] = 1e-6
        numerical = (hinge(q.detach().numpy() + step) - hinge(q.detach().numpy() - step)) / 2e-6
        assert gradient[place].item() == pytest.approx(numerical, rel=1e-5, abs=1e-8)


def test_macer_leaves_out_wrong_and_certain_images():
    q = torch.tensor([[0.6, 0.4], [1.0, 0.0], [0.3, 0.7]], requires_grad=True)
    hinge = macer.radius_hinge(q, torch.tensor([1, 0, 1]), sigma=0.5, gamma=8.0)
    assert hinge.tolist() == pytest.approx(
        [0.25 * (8.0 - (norm.ppf(0.7) - norm.ppf(0.3)))], rel=1e-5
    )
    (gradient,) = torch.autograd.grad(hinge.sum(), q)
    assert torch.isfinite(gradient).all() and torch.equal(gradient[:2], torch.zeros(2, 2))


def test_macer_can_wait_for_a_milestone():
    network = smooth_network()
    late = params.Macer(sigma=SIGMA, draws=3, beta=2.0, gamma=8.0, weight=4.0, after_milestone=1)
    before = macer.loss(
        network, a_batch(40, decays=0), sigma=SIGMA, generator=key(), settings=late
    ).value
    after = macer.loss(
        network, a_batch(40, decays=1), sigma=SIGMA, generator=key(), settings=late
    ).value
    always = macer.loss(
        network, a_batch(40, decays=0), sigma=SIGMA, generator=key(), settings=MACER
    ).value
    assert before < after and torch.equal(after, always)


def attack_settings(attack: str, **changes) -> params.SmoothAdv:
    return params.SmoothAdv(
        **{"sigma": SIGMA, "attack": attack, "steps": 4, "draws": 3, "epsilon": 0.5, "warmup": 0}
        | changes
    )


def smoothed_losses(
    network: nn.Module, batch: Batch, delta: torch.Tensor, noise: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(
            [
                -torch.log(sum(probabilities(network, x + d, noise[:, row]))[y] / len(noise))
                for row, (x, d, y) in enumerate(zip(batch.image, delta, batch.label, strict=True))
            ]
        )


def test_pgd_stays_within_epsilon_and_raises_the_loss_of_every_image():
    network, batch = smooth_network(), a_batch(20)
    noise = draws_of(batch, 3)
    delta = smoothadv.pgd(network, batch, noise, epsilon=0.5, steps=4)
    norms = delta.flatten(1).norm(dim=1)
    assert norms.max() <= 0.5 * (1 + 1e-5) and norms.min() > 0.4
    assert (batch.image + delta).min() >= -1e-6 and (batch.image + delta).max() <= 1 + 1e-6
    clean = smoothed_losses(network, batch, torch.zeros_like(delta), noise)
    assert (smoothed_losses(network, batch, delta, noise) > clean).all()


def test_pgd_takes_the_steps_of_its_definition():
    network, batch = smooth_network(), a_batch(3)
    noise = draws_of(batch, 2)
    delta = smoothadv.pgd(network, batch, noise, epsilon=0.5, steps=3)
    for row, (image, label) in enumerate(zip(batch.image, batch.label, strict=True)):
        slow = torch.zeros_like(image)
        for _ in range(3):
            slow.requires_grad_()
            mean = sum(probabilities(network, image + slow, noise[:, row])) / 2
            (gradient,) = torch.autograd.grad(-torch.log(mean[label]), slow)
            slow = slow.detach() + 2 * 0.5 / 3 * gradient / gradient.norm()
            slow = (image + slow).clamp(0, 1) - image
            if slow.norm() > 0.5:
                slow = slow * 0.5 / slow.norm()
        torch.testing.assert_close(delta[row], slow, rtol=1e-3, atol=1e-5)


def test_ddn_stays_within_epsilon_and_perturbs_only_to_fool():
    network = smooth_network()
    batch = a_batch(60)
    with torch.no_grad():
        batch = batch._replace(label=network(batch.image).argmax(1))
    noise = draws_of(batch, 3)
    delta = smoothadv.ddn(network, batch, noise, epsilon=1.0, steps=8)
    norms = delta.flatten(1).norm(dim=1)
    moved = norms > 0
    assert norms.max() <= 1.0 * (1 + 1e-5) and 5 < moved.sum() < 60
    # Each copy that fools is kept as the smallest one tried: below epsilon, none was shortened
    # afterwards.
    small = moved & (norms < 0.999)
    assert small.any()
    with torch.no_grad():
        mean = (
            torch.softmax(network(noisy_copies(batch.image + delta, noise)), 1)
            .unflatten(0, (3, -1))
            .mean(0)
        )
    assert (mean.argmax(1) != batch.label)[small].all()
    clean = smoothed_losses(network, batch, torch.zeros_like(delta), noise)
    assert (smoothed_losses(network, batch, delta, noise) > clean)[moved].all()


def test_an_attack_without_a_gradient_takes_no_step():
    batch = a_batch()
    constant = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    nn.init.zeros_(constant[1].weight)
    for attack in (smoothadv.pgd, smoothadv.ddn):
        delta = attack(constant, batch, draws_of(batch, 2), epsilon=0.5, steps=2)
        assert torch.equal(delta, torch.zeros_like(delta))


class Recorder(nn.Module):
    """A network with batch norm that keeps what it was given, and in which mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.calls = nn.BatchNorm2d(3), smooth_network(), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append((self.training, x.detach().clone()))
        return self.inner(self.norm(x))


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_smoothadv_attacks_in_evaluation_mode_and_trains_on_the_same_noise(attack):
    network, batch = Recorder().train(), a_batch(16)
    fast = smoothadv.loss(
        network, batch, sigma=SIGMA, generator=key(), settings=attack_settings(attack)
    )
    assert [training for training, _ in network.calls] == [False] * 4 + [True]
    assert network.training and network.norm.num_batches_tracked == 1
    noise = draws_of(batch, 3)
    first, last = (
        network.calls[0][1].unflatten(0, (3, -1)),
        network.calls[-1][1].unflatten(0, (3, -1)),
    )
    torch.testing.assert_close(first, batch.image + noise)
    delta = last - noise - batch.image
    torch.testing.assert_close(delta[0].expand_as(delta), delta, atol=1e-6, rtol=0)
    # The step is the cross-entropy of all copies.
    network.norm.momentum = 0.0
    slow = nn.functional.cross_entropy(network(last.flatten(0, 1)), batch.label.repeat(3))
    assert_same(network, fast.value, slow)


def test_the_radius_of_the_attack_warms_up():
    settings = attack_settings("pgd", warmup=4)
    assert [smoothadv.warmed_up(settings, epoch=epoch) for epoch in (0, 1, 3, 4, 9)] == [
        0.125,
        0.25,
        0.5,
        0.5,
        0.5,
    ]
    assert smoothadv.warmed_up(attack_settings("pgd", warmup=0), epoch=0) == 0.5


def test_params_resolve_to_methods_with_the_settings_of_the_nearest_sigma():
    train = params.Train(
        epochs=1,
        batch=4,
        lr=0.1,
        momentum=0.9,
        weight_decay=0.0,
        schedule="one-cycle",
        milestones=[],
    )
    far = params.Macer(sigma=1.0, draws=2, beta=1.0, gamma=1.0, weight=1.0, after_milestone=0)
    blocks = {
        "smoothadv": [attack_settings("ddn", draws=8)],
        "macer": [far, MACER],
        "consistency": [CONSISTENCY],
    }
    resolved = {
        name: methods.resolve(
            params.Certify(arch="tiny", checkpoint="", method=name, train=train, **blocks), 0.3
        )
        for name in params.METHODS
    }
    assert [method.loss for method in resolved.values()] == [
        methods.LOSSES[name] for name in params.METHODS
    ]
    assert resolved["macer"].settings == MACER and resolved["gaussian"].settings is None
    # SmoothAdv's published batches count noisy copies.
    assert [method.split for method in resolved.values()] == [1, 8, 1, 1]
