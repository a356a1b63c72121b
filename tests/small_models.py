"""Networks for the tests of what users touch: one whose smoothing is known exactly, and small
trained ones.
"""

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

from aces import ACES, data, networks, params, training
from aces.files import write_json
from aces.runtime import Runtime
from aces.training import gaussian, standard

CLASSES = list("0123456789")
SIGMA = 0.25


class HalfSpace(nn.Module):
    """Class 1 where the mean of the pixels is above `threshold`, else 0; as sure of it as `scale`
    is large.

    Smoothed, it is the same half space: the exact radius is the distance to the boundary, |mean -
    threshold| * sqrt(pixels).
    """

    def __init__(self, *, threshold: float = 0.5, scale: float = 1e4, classes: int = 2):
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))
        self.register_buffer("scale", torch.tensor(scale))
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        margin = self.scale * (x.mean(dim=(1, 2, 3)) - self.threshold)
        return torch.stack(
            [-margin, margin, *[torch.full_like(margin, -1e6)] * (self.classes - 2)], dim=1
        )


class Constant(nn.Module):
    """Always the same logits."""

    def __init__(self, logits: list[float]):
        super().__init__()
        self.register_buffer("logits", torch.tensor(logits))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits.expand(len(x), -1) + 0 * x.mean(dim=(1, 2, 3))[:, None]


@functools.cache
def half_space_model(*, core: int = 0, theta: float = 0.9, sigma: float = SIGMA, **options) -> ACES:
    """The certification network is a half space, always sure of itself; the core network always
    says `core`.
    """
    return ACES(
        core=Constant([1.0 - core, float(core)]),
        certify=HalfSpace(),
        sigma=sigma,
        theta=theta,
        num_classes=2,
        shape=(1, 4, 4),
        workers=1,
        **options,
    )


def grey(*levels: float) -> Tensor:
    """(N, 1, 4, 4) images of one grey each: their distance to a half space's boundary is 4 |level -
    threshold|.
    """
    return torch.tensor(levels)[:, None, None, None].expand(-1, 1, 4, 4).clone()


@functools.cache
def digits_model(theta: float = 0.6) -> ACES:
    """Trained on the digits in seconds."""
    info = data.info("digits")
    train = data.prepare(params.Dataset(name="digits", stride=1)).training
    settings = params.Train(
        epochs=6,
        batch=64,
        lr=0.2,
        momentum=0.9,
        weight_decay=0.0005,
        schedule="one-cycle",
        milestones=[],
    )
    trained = {}
    for role, loss in (("core", standard.loss), ("certify", gaussian.loss)):
        torch.manual_seed(0)
        network = networks.build("tiny", num_classes=10, mean=info.mean, std=info.std)
        trained[role] = training.train_network(
            network,
            train,
            settings=settings,
            method=training.Method(role, loss),
            sigma=SIGMA,
            seed=0,
            runtime=Runtime(device="cpu"),
            title=role,
        )
    return ACES(
        **trained, sigma=SIGMA, theta=theta, num_classes=10, classes=info.classes, shape=info.shape
    )


@functools.cache
def digits() -> data.EvalSet:
    return data.prepare(params.Dataset(name="digits", stride=9)).evaluation


def write_project(folder: Path) -> None:
    """A finished pipeline on the digits: params.yaml, the networks, and the working point."""
    profile = Path(__file__).parent.parent / "profiles" / "digits.yaml"
    (folder / "params.yaml").write_text(profile.read_text())
    for role, network in digits_model().networks.items():
        networks.save_model(folder / "models" / f"{role}.safetensors", network, **network.recipe)
    write_json(folder / "results" / "calibration.json", {"theta": 0.7})
