"""Shares of a batch, trained side by side: the right gradients, and the same bytes on any core."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aces import runtime
from aces.data import TrainSet
from aces.errors import InputError
from aces.networks import build, fingerprint
from aces.params import Train
from aces.runtime import Runtime
from aces.training import Method, methods, train_network
from aces.training.batches import Batch
from aces.training.replicas import Replicas

IMAGES, CLASSES = 90, 3


def images() -> TrainSet:
    random = np.random.default_rng(0)
    return TrainSet(
        image=random.integers(0, 256, (IMAGES, 8, 8, 3), dtype=np.uint8),
        label=random.integers(0, CLASSES, IMAGES),
        classes=["a", "b", "c"],
    )


def fresh() -> nn.Module:
    torch.manual_seed(0)
    return build("tiny", num_classes=CLASSES, mean=(0.5,) * 3, std=(0.5,) * 3)


def train(network: nn.Module, *, scratch=None, on_epoch=None, **changes) -> nn.Module:
    settings = Train(
        **{"epochs": 3, "batch": 32, "lr": 0.05, "shards": 2, "optimizer": "muon"} | changes
    )
    return train_network(
        network,
        images(),
        settings=settings,
        method=Method("gaussian", methods.LOSSES["gaussian"]),
        sigma=0.25,
        seed=0,
        title="shares",
        runtime=Runtime(device="cpu", progress=False, scratch=scratch),
        on_epoch=on_epoch,
    )


def backward(network: nn.Module, share: Batch, weight: float) -> int:
    (F.cross_entropy(network(share.image), share.label) * weight).backward()
    return len(share.label)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_gradients_are_those_of_the_whole_batch(count):
    """Without batch norm, which is the one thing that sees a share instead of the batch."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES))
    batch = Batch(torch.rand(7, 3, 8, 8), torch.arange(7) % CLASSES)
    backward(network, batch, 1.0)
    expected = [weight.grad.clone() for weight in network.parameters()]
    network.zero_grad()
    shares = batch.shares(count)
    with Replicas(network, count) as replicas:
        assert sum(replicas.run(backward, shares, [len(s.label) / 7 for s in shares])) == 7
    for weight, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient)


def test_the_number_of_cores_changes_no_byte(monkeypatch):
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(runtime, "cores", lambda cores=cores: cores)
        found.append(fingerprint(train(fresh())))
    assert found[0] == found[1]


def test_the_number_of_shares_is_part_of_the_recipe():
    assert fingerprint(train(fresh())) != fingerprint(train(fresh(), shards=1))


def test_running_statistics_are_the_mean_over_the_shares():
    """As if one network had seen the mean of the statistics of the shares, step after step."""
    norm = nn.BatchNorm2d(3)
    shares = [[torch.rand(4, 3, 5, 5) * scale for scale in (1, 2)] for _ in range(2)]
    mean, variance = torch.zeros(3), torch.ones(3)
    with Replicas(norm, 2) as replicas:
        for parts in shares:
            replicas.run(lambda network, x: network(x).sum().backward(), parts)
            mean = 0.9 * mean + 0.1 * torch.stack([x.mean((0, 2, 3)) for x in parts]).mean(0)
            spread = [x.transpose(0, 1).flatten(1).var(dim=1) for x in parts]
            variance = 0.9 * variance + 0.1 * torch.stack(spread).mean(0)
        replicas.average_buffers()
    for network in replicas.networks:
        torch.testing.assert_close(network.running_mean, mean)
        torch.testing.assert_close(network.running_var, variance)


class Killed(Exception):
    pass


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(tmp_path):
    def kill(epoch, metrics):
        if epoch == 1:
            raise Killed

    with pytest.raises(Killed):
        train(fresh(), scratch=tmp_path, on_epoch=kill)
    epochs = []
    resumed = train(fresh(), scratch=tmp_path, on_epoch=lambda epoch, _: epochs.append(epoch))
    assert epochs == [0, 1, 2]
    assert fingerprint(resumed) == fingerprint(train(fresh()))


def test_a_batch_smaller_than_the_shares_is_trained_on():
    assert train(fresh(), batch=1, shards=4, epochs=1) is not None


def test_dropout_is_refused():
    """Threads would take its random numbers in another order in every run."""
    network = nn.Sequential(fresh(), nn.Dropout())
    with pytest.raises(InputError, match="train.shards=2: expected 1 for a network with dropout"):
        train(network)
