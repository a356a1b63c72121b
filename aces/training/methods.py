"""The training methods, by a built-in name or by `package.module:function`.

A method is a function `loss(network, batch, *, sigma, generator, settings) -> Loss`. The built-in
ones have a file each in this package. A function of one's own is named in params.yaml as
`certify.method: package.module:function`, and `certify.settings`, a free mapping, reaches it as
`settings`. From Python, `Method("mine", loss)` is all that `train_network` needs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from aces import extension, params
from aces.errors import InputError
from aces.training import consistency, gaussian, macer, smoothadv, standard
from aces.training.batches import Loss
from aces.training.method import Method

Settings = params.SmoothAdv | params.Macer | params.Consistency

LOSSES: dict[str, Callable[..., Loss]] = {
    "standard": standard.loss,
    "gaussian": gaussian.loss,
    "smoothadv": smoothadv.loss,
    "macer": macer.loss,
    "consistency": consistency.loss,
}


def resolve(certify: params.Certify, sigma: float) -> Method:
    """The certification network's method, with its settings for `sigma`."""
    name = certify.method
    if name not in LOSSES:
        return _own(name, certify.settings)
    settings = nearest(getattr(certify, name, ()), sigma)
    # SmoothAdv's published recipes count noisy copies: a batch of 256 with m = 8 is 8 steps of 32
    # images.
    split = settings.draws if isinstance(settings, params.SmoothAdv) else 1
    return Method(name, LOSSES[name], settings, split)


def nearest(blocks: Sequence[Settings], sigma: float) -> Settings | None:
    """The settings of the nearest sigma; None for a method that has no settings."""
    return min(blocks, key=lambda block: abs(math.log(block.sigma / sigma)), default=None)


def _own(name: str, settings: dict[str, Any]) -> Method:
    """A method that is not of this package."""
    loss = extension.resolve(name, what="certify.method")
    source = extension.source_digest(loss)
    if source is None:
        raise InputError(
            f"certify.method={name!r} comes from no source file: expected a function defined in a "
            "Python file, whose changes can be noticed"
        )
    return Method(name, loss, _ordered(settings), source=source)


def _ordered(value: Any) -> Any:
    """Mappings ordered by name: the order in which a file lists settings means nothing."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=str)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
