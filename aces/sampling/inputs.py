"""What the caller gives, checked before any work: images, their names, the numbers of draws."""

import numpy as np
import torch
from torch import Tensor

from aces.errors import InputError

PRECISIONS = ("float32", "float16", "bfloat16")
from aces.runtime import ENGINES


def as_images(images: np.ndarray | Tensor) -> Tensor:
    """(N, C, H, W) uint8, or float in [0, 1].

    Takes uint8 as (N, H, W, C) or (N, C, H, W), told apart by which place holds 1 or 3 channels
    (the last, if both do), and floats as (N, C, H, W).
    """
    if isinstance(images, np.ndarray) and min(images.strides, default=0) < 0:
        images = images.copy()  # torch takes no flipped views
    images = torch.as_tensor(images).detach().cpu()
    if images.ndim != 4 or 0 in images.shape:
        raise InputError(
            f"images of shape {tuple(images.shape)}: expected (N, C, H, W), or (N, H, W, C) for uint8"
        )
    if images.dtype == torch.uint8:
        return images.permute(0, 3, 1, 2).contiguous() if images.shape[3] in (1, 3) else images
    if not images.dtype.is_floating_point:
        raise InputError(f"images of type {images.dtype}: expected uint8, or floats in [0, 1]")
    low, high = images.min().item(), images.max().item()
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise InputError(
            f"images with values from {low:g} to {high:g}: expected floats in [0, 1]; divide by 255, or give "
            "uint8 (normalisation belongs inside the network)"
        )
    return images.float()


def as_numbers(name: str, values, images: int) -> np.ndarray:
    """(N,) int64: one whole number for each image; 0, 1, 2, ... if there are none."""
    values = np.arange(images) if values is None else np.asarray(values)
    if values.shape != (images,) or not np.issubdtype(values.dtype, np.integer):
        raise InputError(
            f"{name} of shape {values.shape} and type {values.dtype}: expected a whole number for each of the "
            f"{images} images"
        )
    return values.astype(np.int64)


def check_index(index: np.ndarray) -> None:
    if len(np.unique(index)) < len(index):
        raise InputError(
            "index names an image twice: its noise depends on it, so each must be named once"
        )


def check_settings(
    *,
    sigma: float,
    num_classes: int,
    n0: int,
    n: int,
    n_predict: int,
    seed: int,
    chunk: int,
    precision: str,
    engine: str,
    workers: int | None,
) -> None:
    def check(name, value, condition, expected):
        if not condition:
            raise InputError(f"{name}={value!r}: expected {expected}")

    check("sigma", sigma, 0 < sigma < float("inf"), "a number above 0, in [0, 1] pixel units")
    for name, value, least in (
        ("num_classes", num_classes, 2),
        ("n0", n0, 0),
        ("n", n, 0),
        ("n_predict", n_predict, 0),
        ("seed", seed, 0),
        ("chunk", chunk, 1),
    ):
        check(
            name,
            value,
            isinstance(value, (int, np.integer)) and value >= least,
            f"a whole number of at least {least}",
        )
    check("n0", n0, n0 > 0 or n == 0, "at least 1 draw for the guess, since n is above 0")
    check("n", n, n + n_predict > 0, "draws in some round")
    check("precision", precision, precision in PRECISIONS, "one of " + ", ".join(PRECISIONS))
    check("engine", engine, engine in ENGINES, "one of " + ", ".join(ENGINES))
    check(
        "workers",
        workers,
        workers is None or (isinstance(workers, int) and workers > 0),
        "a whole number above 0",
    )
