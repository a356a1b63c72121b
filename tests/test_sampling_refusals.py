"""What the sampler refuses, in one line each: bad input, networks that are no functions of the image."""

import pytest
import torch
from torch import nn

import odd_networks
from aces.errors import InputError
from sampled import SMALL, sample

NETWORK = odd_networks.convolutional()  # one for all tests: a network is exported once


def draw(network=NETWORK, images=None, **changes):
    return sample(network, odd_networks.images(3) if images is None else images, **SMALL | changes)


@pytest.mark.parametrize(
    "score, message",
    [
        (lambda logits: logits.max(dim=1).values + 5, r"gives .*: expected values in \[0, 1\]"),
        (lambda logits: logits, r"gives \(64, 4\) for logits of shape \(64, 4\)"),
        (lambda logits: None, "gives NoneType"),
    ],
)
def test_a_score_that_is_none_is_refused(score, message):
    with pytest.raises(InputError, match=message):
        draw(score=score, n0=50)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(images=torch.rand(3, 8, 8)), r"shape \(3, 8, 8\): expected \(N, C, H, W\)"),
        (dict(images=torch.zeros(0, 3, 8, 8)), "expected"),
        (
            dict(images=torch.zeros(2, 3, 8, 8, dtype=torch.int32)),
            "int32: expected uint8, or floats",
        ),
        (dict(images=2 * torch.rand(2, 3, 8, 8)), r"expected floats in \[0, 1\]; divide by 255"),
        (dict(images=torch.full((2, 3, 8, 8), torch.nan)), "nan.*expected floats"),
        (dict(images=torch.zeros(2, 1, 8, 8)), r"cannot run images of shape \(1, 8, 8\)"),
        (dict(num_classes=5), r"gives shape \(4, 4\).*expected logits of shape \(4, 5\)"),
        (
            dict(select=odd_networks.convolutional(outputs=3)),
            r"selection network gives shape \(4, 3\)",
        ),
        (dict(index=[1, 1, 2]), "index names an image twice"),
        (dict(index=[1, 2]), "index of shape"),
        (dict(label=[0.5, 1.0, 2.0]), "label of shape.*float64"),
        (dict(sigma=0.0), "sigma=0.0: expected a number above 0"),
        (dict(sigma=float("nan")), "sigma=nan"),
        (dict(n0=0), "n0=0: expected at least 1"),
        (dict(n=-1), "n=-1"),
        (dict(chunk=0), "chunk=0"),
        (dict(seed=-1), "seed=-1"),
        (dict(noise="pink"), "noise='pink': expected one of exact, float"),
        (dict(sigma=64.0), "sigma=64.0: exact noise needs a sigma from"),
        (dict(precision="float8"), "precision='float8': expected one of float32"),
        (dict(engine="spark"), "engine='spark': expected one of local, ray"),
        (dict(workers=0), "workers=0"),
        (dict(device="cuda:99"), "device='cuda:99' is not on this machine"),
        (dict(device="tpu"), "device='tpu'"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, message):
    with pytest.raises(InputError, match=message) as caught:
        draw(**change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(3, track_running_stats=False),
        type(
            "Dropout",
            (nn.Module,),
            {"forward": lambda self, x: nn.functional.dropout(x, training=True)},
        )(),
    ],
)
def test_a_network_that_is_no_function_of_the_image_is_refused(layer):
    with pytest.raises(InputError, match="depends on the other images of its batch, or on chance"):
        draw(nn.Sequential(layer, odd_networks.convolutional()))


def test_a_network_that_returns_no_tensor_is_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InputError, match="gives tuple"):
        draw(Pair())
