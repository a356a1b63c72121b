"""Images as the caller gives them, checked once before any work, and the numbers beside them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aces.errors import InputError


@dataclass(frozen=True, eq=False)
class Images:
    """Images that were checked: (N, C, H, W) on the CPU, uint8, or float32 or float64 in [0, 1]."""

    pixels: Tensor

    @staticmethod
    def of(images: "np.ndarray | Tensor | Images") -> "Images":
        """Checks images. Takes uint8 as (N, H, W, C) or (N, C, H, W), told apart by which place
        holds 1 or 3 channels (the last, if both do), and floats in [0, 1] as (N, C, H, W).
        """
        return images if isinstance(images, Images) else Images(_checked(images))

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of each image."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width


def as_floats(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1] as float32."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float()


def as_numbers(name: str, values, images: int) -> np.ndarray:
    """(N,) int64: one whole number for each image; 0, 1, 2, ... if there are none."""
    values = np.arange(images) if values is None else np.asarray(values)
    if values.shape != (images,) or not np.issubdtype(values.dtype, np.integer):
        raise InputError(
            f"{name} of shape {values.shape} and type {values.dtype}: expected a whole number for "
            f"each of the {images} images"
        )
    return values.astype(np.int64)


def check_index(index: np.ndarray) -> None:
    if len(np.unique(index)) < len(index):
        raise InputError(
            "index names an image twice: its noise depends on it, so each must be named once"
        )


def _checked(images: np.ndarray | Tensor) -> Tensor:
    if isinstance(images, np.ndarray) and min(images.strides, default=0) < 0:
        images = images.copy()  # torch cannot wrap a view with negative strides
    images = torch.as_tensor(images).detach().cpu()
    if images.ndim != 4 or 0 in images.shape:
        raise InputError(
            f"images of shape {tuple(images.shape)}: expected (N, C, H, W), or (N, H, W, C) for "
            "uint8"
        )
    if images.dtype == torch.uint8:
        return images.permute(0, 3, 1, 2).contiguous() if images.shape[3] in (1, 3) else images
    if not images.dtype.is_floating_point:
        raise InputError(f"images of type {images.dtype}: expected uint8, or floats in [0, 1]")
    low, high = images.min().item(), images.max().item()
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise InputError(
            f"images with values from {low:g} to {high:g}: expected floats in [0, 1]; divide by "
            "255, or give uint8 (normalisation belongs inside the network)"
        )
    return images if images.dtype == torch.float64 else images.float()
