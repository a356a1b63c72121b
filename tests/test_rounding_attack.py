"""The rounding attack: networks that read from the rounding of x + noise which image it was.

A float32 sum z = x + g has forgotten some bits of g, and which ones depends on x. So one line of
arithmetic, (z - a) + a != z, tells whether z can have been made from the image a. A network that
answers by it is certified at an image, and answers something else at a neighbour well within the
radius: the certificate is false (Voracek and Hein, ICLR 2023). With exact noise no such network can
exist. Here are several, against every way to ask for a certificate.

One network knows many images, its anchors, so that one call makes many attempts.
"""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn

from aces import ACES
from aces.networks.quantized import QuantizedNetwork
from aces.rule.counts import Round
from aces.sampling import batches, count, forward
from aces.sampling.export import export
from default_networks import default_images
from sampled import sample
from small_models import Constant

pytestmark = pytest.mark.slow

N0, N, SIDE = 20, 120, 6
# Rounding betrays most where sums of image and noise are much smaller than either of them.
SIGMAS = {"random": 1.0, "black": 0.25, "saturated": 1.0, "real": 1.0}
GREY = 1 / 255


class Unlike(nn.Module):
    """Class 0 for what cannot have been made from any anchor: some value is not its own
    reconstruction. The anchors themselves are always class 1.
    """

    def __init__(self, anchors: torch.Tensor):
        super().__init__()
        self.register_buffer("anchors", anchors.flatten(1)[None])

    def alike(self, x: torch.Tensor) -> torch.Tensor:
        """(D,) whether each noisy image can have been made from an anchor."""
        z = x.flatten(1)[:, None]
        return ((z - self.anchors) + self.anchors == z).all(dim=2).any(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        margin = torch.where(self.alike(x), -10.0, 10.0)
        return torch.stack([margin, -margin], dim=1)


class Like(Unlike):
    """Class 0 for what can have been made from an anchor: certified there, and nowhere else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


class LastBits(Unlike):
    """Class 0 where many values could not have been made: a soft count instead of a single one."""

    def alike(self, x: torch.Tensor) -> torch.Tensor:
        z = x.flatten(1)[:, None]
        wrong = ((z - self.anchors) + self.anchors != z).float().mean(dim=2)
        return (wrong < 0.01).any(dim=1)


@functools.cache
def real() -> np.ndarray:
    """Corners of CIFAR-10 images, (N, H, W, C)."""
    return default_images().image[:, :SIDE, :SIDE]


def originals(kind: str, number: int, seed: int) -> np.ndarray:
    """(N, H, W, C) uint8."""
    rng = np.random.default_rng(seed)
    shape = (number, SIDE, SIDE, 3)
    match kind:
        case "random":
            return rng.integers(0, 256, shape, dtype=np.uint8)
        case "black":
            return np.zeros(shape, dtype=np.uint8)
        case "saturated":
            return np.full(shape, 255, dtype=np.uint8)
    return real()[rng.integers(len(real()), size=number)]


def neighbours(images: np.ndarray, seed: int) -> np.ndarray:
    """Every value is moved by one grey level, up or down: l2 sqrt(108) / 255 = 0.041."""
    step = np.random.default_rng(seed + 10_000).choice([-1, 1], images.shape)
    step = np.where(images == 0, 1, np.where(images == 255, -1, step))
    return (images.astype(np.int64) + step).astype(np.uint8)


def as_given(images: np.ndarray, floats: bool) -> torch.Tensor:
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return tensor.float() / 255 if floats else tensor


WAYS = {
    "fixed": {},
    "adaptive": {"adaptive": True},
    "radius": {"adaptive": True, "radius": 0.15},
    "predict": None,  # anytime-valid: certifies the answer at the image
}


@dataclasses.dataclass
class Attempt:
    """Images, their neighbours, and a network that tells them apart by rounding."""

    network: nn.Module
    images: torch.Tensor
    moved: torch.Tensor
    sigma: float
    precision: str = "float32"
    _near: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def near(self, noise: str) -> np.ndarray:
        """(N, 2) the classes of N draws at each neighbour: the same for every way to ask."""
        if noise not in self._near:
            counts = sample(
                self.network,
                self.moved,
                sigma=self.sigma,
                num_classes=2,
                n0=1,
                n=N,
                noise=noise,
                precision=self.precision,
                device="cpu",
                workers=1,
            )
            self._near[noise] = counts.classes[Round.BOUND]
        return self._near[noise]

    def false_certificates(self, way: str, noise: str) -> np.ndarray:
        """(N,) whether an image's certificate speaks of its neighbour, and wrongly."""
        model = ACES(
            core=Constant([0.0, 1.0]),
            certify=self.network,
            sigma=self.sigma,
            theta=1.0,
            num_classes=2,
            noise=noise,
            precision=self.precision,
            device="cpu",
            workers=1,
        )
        near = self.near(noise)
        if WAYS[way] is None:
            # PREDICT has no radius: a jump between neighbours from all to none of the draws is one
            # that no smoothed network can make.
            here = model.predict(self.images, n=N + N0, adaptive=True, seed=0)
            share = near[np.arange(len(near)), np.maximum(here, 0)] / N
            return (np.array(here) >= 0) & (share < 0.05)
        answers = model.certify(self.images, n0=N0, n=N, seed=0, **WAYS[way])
        distance = (self.moved.double() - self.images.double()).flatten(1).norm(dim=1)
        distance = distance if self.images.dtype != torch.uint8 else distance * GREY
        return np.array(
            [
                it.prediction >= 0 and it.radius > far and counts[it.prediction] / N < 0.05
                for it, far, counts in zip(answers, distance.tolist(), near, strict=True)
            ]
        )


def attempt(kind: str, *, floats: bool, network: type = Unlike, number: int, seed: int) -> Attempt:
    images = originals(kind, number, seed)
    images, moved = (as_given(each, floats) for each in (images, neighbours(images, seed)))
    anchors = images if network is Like else moved
    anchors = anchors if floats else anchors.float() / 255
    return Attempt(network(anchors), images, moved, SIGMAS[kind])


@pytest.fixture
def by_torch(monkeypatch):
    """torch runs the networks: no time is spent on exporting each of them."""

    def refuse(*arguments):
        raise RuntimeError("not in this test")

    monkeypatch.setattr(forward, "_export", refuse)


KINDS = ["random", "black", "saturated", "real"]


@pytest.mark.parametrize("way", WAYS)
def test_torch(way, by_torch):
    """Four kinds of images, uint8 and float, 35 images each: 280 attempts each way, 1,120 in all,
    with either noise.
    """
    found = {"float": 0, "exact": 0}
    for seed, kind in enumerate(KINDS):
        networks = (Unlike, LastBits if kind == "black" else Like)
        for floats, network in zip((False, True), networks, strict=True):
            tried = attempt(kind, floats=floats, network=network, number=35, seed=seed)
            for noise in found:
                found[noise] += int(tried.false_certificates(way, noise).sum())
    assert found["float"] > 200, found
    assert found["exact"] == 0, found


@pytest.mark.parametrize("way", ["fixed", "radius"])
def test_onnx_runtime(way):
    for floats in (False, True):
        tried = attempt("real", floats=floats, number=12, seed=7)
        assert tried.false_certificates(way, "float").sum() > 6
        assert tried.false_certificates(way, "exact").sum() == 0


def as_graph(network: nn.Module) -> QuantizedNetwork:
    """The network as the int8 path runs networks: by a graph of its own."""
    example = torch.rand(2, 3, SIDE, SIDE)
    return QuantizedNetwork(export(network.eval(), example))


@pytest.mark.parametrize("way", ["fixed", "predict"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions(way, precision):
    """The arithmetic of the attack stays in float32; what runs it is another backend."""
    tried = attempt("real", floats=False, number=12, seed=8)
    tried.precision = precision
    if precision == "int8":
        tried.network = as_graph(tried.network)
    assert tried.false_certificates(way, "float").sum() > 6
    assert tried.false_certificates(way, "exact").sum() == 0


@pytest.mark.parametrize("way", ["adaptive", "radius"])
def test_the_noise_of_a_gpu(way, by_torch, monkeypatch):
    """The tables and the batches of a GPU, on the CPU: the code is the same."""
    monkeypatch.setattr(count, "batches", batches._assembled)
    for network in (Unlike, Like):
        tried = attempt("random", floats=network is Like, network=network, number=20, seed=9)
        assert tried.false_certificates(way, "float").sum() > 10
        assert tried.false_certificates(way, "exact").sum() == 0


def test_many(by_torch):
    """10,000 attempts with exact noise."""
    found = 0
    for seed in range(125):
        network = (Unlike, Like, LastBits)[seed % 3]
        tried = attempt(
            KINDS[seed % 4], floats=seed % 8 >= 4, network=network, number=20, seed=seed
        )
        for way in WAYS:
            found += int(tried.false_certificates(way, "exact").sum())
    assert found == 0
