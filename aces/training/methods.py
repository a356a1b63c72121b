"""The training methods by name.

A method is a function `loss(network, batch, *, sigma, generator, settings) -> Loss` in a file of
its own. To add one: write the file, and name it in `LOSSES` (and, for params.yaml, in
`aces.params.METHODS`); from Python, `Method("mine", loss)` is all that `train_network` needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aces import params
from aces.training import consistency, gaussian, macer, smoothadv
from aces.training import standard as _standard
from aces.training.batches import Batch, Loss

__all__ = ["Batch", "LOSSES", "Loss", "Method", "resolve", "standard"]

Settings = params.SmoothAdv | params.Macer | params.Consistency

LOSSES: dict[str, Callable[..., Loss]] = {
    "standard": _standard.loss,
    "gaussian": gaussian.loss,
    "smoothadv": smoothadv.loss,
    "macer": macer.loss,
    "consistency": consistency.loss,
}


@dataclass(frozen=True)
class Method:
    """A loss and its settings. The name and the settings identify the method in a checkpoint."""

    name: str
    loss: Callable[..., Loss]
    settings: object = None
    split: int = 1  # the images of a batch are taken in so many steps


def standard() -> Method:
    """The core network's: no noise."""
    return Method("standard", _standard.loss)


def resolve(certify: params.Certify, sigma: float) -> Method:
    """The certification network's method, with its settings for `sigma`."""
    settings = nearest(getattr(certify, certify.method, ()), sigma)
    # SmoothAdv's published recipes count noisy copies: a batch of 256 with m = 8 is 8 steps of 32
    # images.
    split = settings.draws if isinstance(settings, params.SmoothAdv) else 1
    return Method(certify.method, LOSSES[certify.method], settings, split)


def nearest(blocks: Sequence[Settings], sigma: float) -> Settings | None:
    """Of a method's settings by sigma, those of the nearest sigma; None for a method without any."""
    return min(blocks, key=lambda block: abs(math.log(block.sigma / sigma)), default=None)
