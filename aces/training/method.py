"""A training method as the loop takes it: a loss, its settings, and what identifies them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aces.training.batches import Loss


@dataclass(frozen=True)
class Method:
    """A loss and its settings. Name, settings and source identify the method in a checkpoint."""

    name: str
    loss: Callable[..., Loss]
    settings: Any = None
    split: int = 1  # the images of a batch are taken in so many steps
    source: str | None = None  # an own method: the sha256 of the file its function comes from
