"""The forward pass: the exported network is the given one, and torch takes over where export
fails."""

import numpy as np
import pytest
import torch
from torch import nn

import odd_networks
from aces import networks
from aces.rule.counts import Round
from aces.sampling import forward
from sampled import sample

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SETTINGS = dict(
    sigma=0.25,
    num_classes=odd_networks.CLASSES,
    n0=20,
    n=300,
    n_predict=0,
    seed=1,
    chunk=150,
    device="cpu",
)


def prepared(
    network,
    select=None,
    *,
    shape=odd_networks.SHAPE,
    num_classes=odd_networks.CLASSES,
    precision="float32",
):
    return forward.prepare(
        network, select, shape=shape, num_classes=num_classes, precision=precision, device=CPU
    )


class Unexportable(nn.Module):
    """Branches on the values of its input, which no graph can express."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return torch.cat(
            [
                self.network(image[None]) if image.mean() > 0.3 else self.network(image[None]) * 2
                for image in x
            ]
        )


@pytest.mark.parametrize("arch, classes", [("cifar_resnet20", 10), ("small", 10)])
@torch.inference_mode()
def test_onnx_runtime_gives_the_network_s_logits_for_any_batch(arch, classes):
    torch.manual_seed(0)
    network = networks.build(
        arch, num_classes=classes, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.3)
    ).train()
    network(torch.rand(16, 3, 32, 32))  # batch norm whose statistics are not trivial
    found = prepared(network, shape=(3, 32, 32), num_classes=classes)
    assert found.backend.startswith("onnxruntime ")
    run, x = found.open(CPU), torch.rand(7, 3, 32, 32)
    (logits,) = run(x)
    torch.testing.assert_close(logits, network.eval()(x), rtol=1e-3, atol=1e-4)
    for size in (1, 3):
        assert torch.equal(run(x[:size])[0], logits[:size]), "a draw's logits depend on its batch"


def test_a_network_is_prepared_once_until_it_changes():
    network = odd_networks.convolutional()
    first = prepared(network)
    assert prepared(network) is first
    with torch.no_grad():
        network[-1].bias += 1
    assert prepared(network).graphs != first.graphs
    assert prepared(network, odd_networks.convolutional(outputs=2)) is not first


def test_a_change_outside_the_state_dict_is_noticed():
    """A certificate must be of the network as it is now."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.network, self.temperature = odd_networks.convolutional(), 1.0

        def forward(self, x):
            return self.network(x) / self.temperature

    network = Scaled().eval()
    first = prepared(network)
    assert prepared(network) is first
    network.temperature = 1.0001
    assert prepared(network) is not first


class Clipped(nn.Module):
    """Only images that leave [0, 1] tell whether it clips."""

    def __init__(self, clip: bool):
        super().__init__()
        self.network, self.clip = odd_networks.convolutional(), clip

    def forward(self, x):
        return self.network(x.clamp(0, 1) if self.clip else x)


@pytest.mark.parametrize("identity", ["real", "blind"])
def test_a_network_that_stops_clipping_is_another_one(identity, monkeypatch):
    """By its identity, and, were that blind to it, by its logits beyond [0, 1]."""
    if identity == "blind":
        monkeypatch.setattr(networks, "identity", networks.fingerprint)
    network = Clipped(True)
    before = sample(network, odd_networks.images(2), **SETTINGS)
    network.clip = False
    after = sample(network, odd_networks.images(2), **SETTINGS)
    fresh = sample(Clipped(False), odd_networks.images(2), **SETTINGS)
    assert (after.score != before.score).any()
    np.testing.assert_array_equal(after.score, fresh.score)


def test_the_probe_is_of_both_networks():
    network, select = odd_networks.convolutional(), odd_networks.convolutional(outputs=2)
    assert len(prepared(network, select).probe) == 4 * (odd_networks.CLASSES + 2)


def test_the_hash_covers_both_networks():
    one, other, select = (
        odd_networks.convolutional(seed=0),
        odd_networks.convolutional(seed=1),
        odd_networks.convolutional(outputs=2),
    )
    hashes = [
        forward.hash_of(*pair)
        for pair in ((one, None), (other, None), (one, select), (other, select))
    ]
    assert len(set(hashes)) == 4 and hashes[0] == networks.fingerprint(one)


def test_torch_runs_what_cannot_be_exported_and_says_so(capsys):
    network = odd_networks.convolutional()
    counts = sample(Unexportable(network), odd_networks.images(2) // 2 + 127, **SETTINGS)
    said = " ".join(capsys.readouterr().err.split())
    assert "torch runs the network, more slowly" in said
    assert counts.settings.backend == f"torch {torch.__version__.partition('+')[0]} cpu"
    # The same network, whose mean is always above 0.3 here, by ONNX Runtime: other noise (it is
    # keyed by the hash), same law.
    exported = sample(network, odd_networks.images(2) // 2 + 127, **SETTINGS)
    assert exported.settings.backend.startswith("onnxruntime")
    np.testing.assert_allclose(
        counts.classes[Round.BOUND] / 300, exported.classes[Round.BOUND] / 300, atol=0.15
    )


def test_torch_backend_does_not_depend_on_workers():
    network = Unexportable(odd_networks.convolutional())
    one, two = (
        sample(network, odd_networks.images(2), **SETTINGS, workers=workers) for workers in (1, 2)
    )
    np.testing.assert_array_equal(one.score, two.score)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_on_a_cpu_is_torch_autocast(precision):
    network, images = odd_networks.convolutional(), odd_networks.images(2)
    full, half = (
        sample(network, images, **SETTINGS),
        sample(network, images, **SETTINGS, precision=precision),
    )
    assert half.settings.backend.startswith("torch") and half.settings.precision == precision
    np.testing.assert_allclose(half.classes[Round.BOUND], full.classes[Round.BOUND], atol=15)
    (logits,) = prepared(network, precision=precision).open(CPU)(images.float() / 255)
    assert logits.dtype == getattr(torch, precision)


@torch.inference_mode()
def test_batch_norm_is_folded_where_torch_runs_the_network():
    network, x = odd_networks.convolutional(), torch.rand(5, *odd_networks.SHAPE)
    found = prepared(network, precision="bfloat16")
    assert not [layer for layer in found.module.modules() if isinstance(layer, nn.BatchNorm2d)]
    torch.testing.assert_close(found.module(x)[0], network(x), rtol=1e-3, atol=1e-4)


def test_a_wrong_export_is_not_used(monkeypatch, capsys):
    """Were the exporter to give another network, its logits would tell."""
    given, other = odd_networks.convolutional(seed=0), odd_networks.convolutional(seed=1)
    real = forward._export
    monkeypatch.setattr(
        forward, "_export", lambda module, example: real(forward._frozen(other, None), example)
    )
    assert prepared(given).backend.startswith("torch")
    assert "logits differ after export" in " ".join(capsys.readouterr().err.split())
