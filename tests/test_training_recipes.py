"""What makes training fast: Muon, whitening, label smoothing, bfloat16; each as it is defined."""

import numpy as np
import pytest
import torch
from torch import nn

from aces import params
from aces.data import TrainSet
from aces.networks import fingerprint
from aces.runtime import Runtime
from aces.training import Method, methods, train_network
from aces.training.batches import Batch, cross_entropy
from aces.training.macer import loss as macer_loss
from aces.training.muon import QUINTIC, Muon, orthogonalize
from aces.training.optimizers import has_bfloat16
from aces.training.whitening import whiten_first_convolution

pytestmark = pytest.mark.slow

FAST = params.Train(
    epochs=3,
    batch=32,
    lr=0.05,
    optimizer="muon",
    label_smoothing=0.1,
    whitening=True,
    precision="bfloat16",
)


class Kill(BaseException):
    """Stands for a signal: nothing but the test catches it."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 9, 3),
    )


def stripes(count: int = 160) -> TrainSet:
    """Photographs of three kinds: horizontal stripes, vertical stripes, noise."""
    random = np.random.default_rng(0)
    image, label = random.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8), np.arange(count) % 3
    image[label == 0] = image[label == 0][:, :, :1]
    image[label == 1] = image[label == 1][:, :1]
    return TrainSet(image, label)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_orthogonalising_keeps_the_singular_vectors_and_brings_the_values_near_one(shape):
    matrix = torch.randn(shape, generator=seeded(), dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    values = u.T @ orthogonalize(matrix) @ v.T
    diagonal = values.diagonal()
    torch.testing.assert_close(values, torch.diag(diagonal), atol=1e-6, rtol=0)
    # The published quintic does not converge: it stays between 0.68 and 1.14 (Jordan et al., 2024).
    assert 0.6 < diagonal.min() and diagonal.max() < 1.2


def test_orthogonalising_is_the_iteration_on_the_whole_matrix():
    matrix = torch.randn((5, 30), generator=seeded(), dtype=torch.float64)
    a, b, c = QUINTIC
    slow = matrix / matrix.norm()
    for _ in range(5):
        gram = slow @ slow.T
        slow = a * slow + b * gram @ slow + c * gram @ gram @ slow
    torch.testing.assert_close(orthogonalize(matrix), slow, rtol=1e-8, atol=1e-10)


def test_a_gradient_of_zero_moves_nothing():
    network = a_network()
    before = [weight.detach().clone() for weight in network.parameters()]
    optimizer = Muon(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.0)
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for weight, old in zip(network.parameters(), before, strict=True):
        torch.testing.assert_close(weight.detach(), old, rtol=1e-6, atol=0)


def test_muon_moves_filters_by_a_share_of_their_norm_and_everything_else_by_sgd():
    """Two steps, so that the momentum counts. SGD has five times the learning rate."""
    fast, slow = a_network(), a_network()
    muon = Muon(fast.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    sgd = torch.optim.SGD(slow.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01, nesterov=True)
    gradients = [
        [torch.randn(weight.shape, generator=seeded(seed)) for weight in fast.parameters()]
        for seed in (1, 2)
    ]
    start = {name: weight.detach().clone() for name, weight in fast.named_parameters()}
    for step in gradients:
        for network, optimizer in ((fast, muon), (slow, sgd)):
            for weight, gradient in zip(network.parameters(), step, strict=True):
                weight.grad = gradient.clone()
            optimizer.step()
    names = [name for name, _ in fast.named_parameters()]
    for name, ours, theirs in zip(names, fast.parameters(), slow.parameters(), strict=True):
        if ours.ndim != 4:
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
            continue
        first, second = (step[names.index(name)].flatten(1) for step in gradients)
        expected, norm = start[name].flatten(1), start[name].norm()
        momentum = first
        for direction in (first + 0.9 * momentum, second + 0.9 * (0.9 * momentum + second)):
            direction = orthogonalize(direction)
            expected = expected - 0.1 * norm * direction / direction.norm()
            expected = expected * norm / expected.norm()
        torch.testing.assert_close(ours.detach().flatten(1), expected, rtol=1e-4, atol=1e-5)


def test_whitening_filters_give_uncorrelated_outputs():
    network = a_network()
    smooth = torch.rand((64, 3, 4, 4), generator=seeded()).repeat_interleave(3, 2)
    image = smooth.repeat_interleave(3, 3) + 0.05 * torch.rand((64, 3, 12, 12), generator=seeded(1))
    norm = network[0].weight.norm().item()
    whiten_first_convolution(network, image)
    weight = network[0].weight.detach()
    assert weight.norm().item() == pytest.approx(norm, rel=1e-5)
    torch.testing.assert_close(weight[0::2], -weight[1::2])
    patches = torch.nn.functional.unfold(image, 3, stride=3).transpose(1, 2).flatten(0, 1)
    answers = patches @ weight[0::2].flatten(1).T
    correlation = torch.corrcoef(answers.T)
    torch.testing.assert_close(correlation, torch.eye(4), atol=2e-3, rtol=0)
    assert (answers.var(0).diff() < 0).all(), "the largest variance first"


def test_what_cannot_be_whitened_stays_as_it_is():
    image = torch.rand((4, 3, 8, 8), generator=seeded())
    for network in (nn.Linear(3, 2), nn.Sequential(nn.Conv2d(3, 6, 3, groups=3))):
        before = fingerprint(network)
        whiten_first_convolution(network, image)
        assert fingerprint(network) == before


def test_more_filters_than_whitening_ones_keep_the_rest():
    network = nn.Sequential(nn.Conv2d(1, 10, 2))
    rest = network[0].weight.detach()[8:].clone()
    whiten_first_convolution(network, torch.rand((9, 1, 8, 8), generator=seeded()))
    kept = network[0].weight.detach()[8:]
    torch.testing.assert_close(kept / kept.norm(), rest / rest.norm())


def test_smoothed_labels_give_every_class_its_share():
    logits = torch.randn((6, 4), generator=seeded())
    batch = Batch(torch.zeros(3, 1, 2, 2), torch.tensor([0, 3, 1]), label_smoothing=0.2)
    log_p = torch.log_softmax(logits, 1)
    slow = torch.zeros(())
    for row, label in enumerate([0, 3, 1, 0, 3, 1]):
        for k in range(4):
            slow -= (0.2 / 4 + (0.8 if k == label else 0.0)) * log_p[row, k] / 6
    torch.testing.assert_close(cross_entropy(logits, batch), slow)


def test_macer_smooths_the_labels_of_the_mean_prediction():
    settings = params.Macer(sigma=0.25, draws=1, beta=2.0, gamma=8.0, weight=4.0, after_milestone=9)
    network, image = a_network().eval(), torch.rand((5, 3, 8, 8), generator=seeded())
    batch = Batch(image, torch.tensor([0, 1, 2, 0, 1]), label_smoothing=0.3)
    value = macer_loss(network, batch, sigma=0.0, generator=seeded(), settings=settings).value
    torch.testing.assert_close(value, cross_entropy(network(image), batch), rtol=1e-5, atol=1e-6)


def fit(scratch, settings: params.Train = FAST, on_epoch=None) -> nn.Module:
    return train_network(
        a_network(),
        stripes(),
        settings=settings,
        method=Method("gaussian", methods.LOSSES["gaussian"]),
        sigma=0.1,
        seed=0,
        title="test",
        runtime=Runtime(device="cpu", scratch=scratch, progress=False),
        on_epoch=on_epoch,
    )


def test_a_fast_training_goes_on_after_a_kill_with_the_same_weights(tmp_path):
    def stop(epoch: int, _: dict) -> None:
        if epoch == 1:
            raise Kill

    whole: list[dict] = []
    straight = fit(tmp_path / "a", on_epoch=lambda _, metrics: whole.append(metrics))
    assert whole[-1]["accuracy"] > 0.5 > whole[0]["accuracy"], "it learns"
    with pytest.raises(Kill):
        fit(tmp_path / "b", on_epoch=stop)
    assert fingerprint(fit(tmp_path / "b")) == fingerprint(straight)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "sgd"},
        {"label_smoothing": 0.0},
        {"whitening": False},
        pytest.param(
            {"precision": "float32"},
            marks=pytest.mark.skipif(not has_bfloat16(), reason="this processor has no bfloat16"),
            id="precision",
        ),
        {"peak": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_changes_the_network(tmp_path, change):
    short = FAST.replace(epochs=1)
    assert fingerprint(fit(tmp_path, short)) != fingerprint(fit(tmp_path, short.replace(**change)))


def test_the_weights_stay_float32(tmp_path):
    network = fit(tmp_path, FAST.replace(epochs=1))
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}


def test_a_processor_without_bfloat16_trains_in_float32_and_says_so(tmp_path, monkeypatch, capsys):
    short = FAST.replace(epochs=1)
    monkeypatch.setattr("aces.training.optimizers.has_bfloat16", lambda: False)
    fallen_back = fingerprint(fit(tmp_path, short))
    assert "this processor has no bfloat16 arithmetic" in capsys.readouterr().err
    assert fallen_back == fingerprint(fit(tmp_path / "other", short.replace(precision="float32")))
    assert capsys.readouterr().err == ""
