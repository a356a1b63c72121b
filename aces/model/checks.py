"""What may be wrong with the parts of a model, and with the numbers of a question, in one line
each.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from aces import grid, params
from aces.errors import InputError
from aces.rule.statistics import check_alpha


def check_networks(networks: Mapping[str, nn.Module]) -> None:
    for role, network in networks.items():
        if not isinstance(network, nn.Module):
            raise InputError(
                f"{role} is a {type(network).__name__}: expected a torch module from images to "
                "logits"
            )


def check_theta(theta: float) -> None:
    if not grid.is_on_grid(theta):
        raise InputError(f"theta={theta:g}: expected a multiple of 1/{grid.BINS} in [0, 1]")


def check_classes(classes: Sequence[str] | None, num_classes: int) -> None:
    if classes is not None and len(classes) != num_classes:
        raise InputError(f"classes has {len(classes)} names: expected num_classes={num_classes}")


def check_draws(n: int, *, alpha: float, spend: float = 1.0) -> None:
    """InputError if n draws can never make an answer sure; they have the share `spend` of alpha."""
    check_alpha(alpha)
    needed = params.needed_draws(alpha * spend)
    if n < needed:
        raise InputError(
            f"n={n} is too small for alpha={alpha:g}: every answer would be an abstention; take at "
            f"least {needed}"
        )


def as_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    found = np.asarray(shape)
    if found.shape != (3,) or found.dtype.kind not in "iu" or found.min() < 1:
        raise InputError(f"shape={shape}: expected (C, H, W), three whole numbers from 1")
    channels, height, width = found.tolist()
    return channels, height, width


def as_resize(resize: int | None) -> int | None:
    if resize is not None and not (isinstance(resize, (int, np.integer)) and resize >= 1):
        raise InputError(f"resize={resize!r}: expected a whole number from 1, or None")
    return None if resize is None else int(resize)


def as_labels(labels: Sequence[int] | np.ndarray, *, images: int, num_classes: int) -> np.ndarray:
    """(N,) the true classes of the images."""
    found = np.asarray(labels)
    if found.shape != (images,) or found.dtype.kind not in "iu":
        raise InputError(
            f"labels of shape {found.shape} and type {found.dtype}: expected one whole number for "
            f"each of the {images} images"
        )
    if found.min() < 0 or found.max() >= num_classes:
        raise InputError(
            f"labels from {found.min()} to {found.max()}: expected classes 0 to {num_classes - 1}"
        )
    return found
