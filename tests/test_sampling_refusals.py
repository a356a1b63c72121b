"""What the sampler refuses, in one line each: bad input, networks that are no functions of the image."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import odd_networks
from aces import sampling
from aces.errors import InputError
from aces.networks.quantized import QuantizedNetwork
from aces.rule.counts import Round, Settings
from aces.runtime import Stopped
from aces.sampling.batches import Job
from aces.sampling.checks import check_precision
from aces.sampling.count import Counter
from aces.sampling.forward import prepare
from aces.sampling.units import Piece, Unit
from sampled import SMALL, sample

CPU = torch.device("cpu")
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
        (dict(num_classes=1), "num_classes=1: expected a whole number of at least 2"),
        (dict(num_classes=2.5), "num_classes=2.5: expected a whole number of at least 2"),
        (
            dict(
                select=odd_networks.convolutional(outputs=2),
                score=lambda logits: logits.softmax(dim=1)[:, 0],
            ),
            "select and score are both given",
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


def test_a_core_network_that_returns_no_tensor_is_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InputError, match="the core network gives a tuple: expected logits"):
        sampling.classes_of(Pair(), odd_networks.images(2), num_classes=odd_networks.CLASSES)


def test_int8_runs_on_a_cpu_only():
    with pytest.raises(InputError, match="runs on a CPU: set device='cpu'"):
        check_precision(QuantizedNetwork(b""), "int8", torch.device("cuda"))


def counter() -> Counter:
    """What counts draws of `NETWORK`, as `sample` makes it."""
    network = prepare(
        NETWORK,
        None,
        shape=(3, 8, 8),
        num_classes=odd_networks.CLASSES,
        precision="float32",
        device=CPU,
    )
    settings = Settings(sigma=0.25, n0=9, n=99, n_predict=0, seed=0, chunk=99, model="none")
    return Counter(network, settings, odd_networks.CLASSES)


def test_a_worker_of_another_kind_is_refused():
    """Its logits would have other last digits."""
    one = counter()
    other = replace(one, network=replace(one.network, backend="onnxruntime of old"))
    with pytest.raises(InputError, match="would run the network by .*, the others by onnxruntime"):
        other.open(CPU)


@pytest.mark.parametrize("noise", ["exact", "float"])
def test_a_unit_that_nobody_waits_for_is_not_drawn(noise):
    one = counter()
    one = replace(one, settings=replace(one.settings, noise=noise))
    unit = Unit(Round.BOUND, (Piece(0, 0, 99),))
    job = Job(unit, odd_networks.images(1), np.zeros(1, np.int64), np.zeros(1, np.int64))
    count, stop = one.open(CPU), threading.Event()
    assert count(job, stop)[:, : odd_networks.CLASSES].sum() == 99
    stop.set()
    with pytest.raises(Stopped):
        count(job, stop)
