"""Random crops and flips of a whole batch at once: nothing but index arithmetic on one tensor."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Views:
    """One random view of every training image.

    Views are drawn for all images at once, so that an image's view depends neither on the order of
    the images nor on the process that trains on it.
    """

    shift: Tensor  # (N, 2) int64: rows and columns, in [-padding, padding]
    mirror: Tensor  # (N,) bool


def draw_views(shape: tuple[int, ...], generator: torch.Generator, *, mirror: bool) -> Views:
    """Views for images of `shape` (N, H, W, C): shifts by up to an eighth of the side, and, with
    `mirror`, a mirror image of every other image.
    """
    count, height, _, _ = shape
    padding = height // 8
    shift = torch.randint(-padding, padding + 1, (count, 2), generator=generator)
    mirrored = torch.rand(count, generator=generator) < (0.5 if mirror else 0.0)
    return Views(shift, mirrored)


def crop(images: Tensor, rows: Tensor, views: Views) -> Tensor:
    """The views of images[rows]: uint8 (N, H, W, C) -> float32 (B, C, H, W) in [0, 1], channels
    last.

    What a shift brings in from outside is the reflected image.
    """
    _, height, width, _ = images.shape
    shift, mirror = views.shift[rows], views.mirror[rows]
    down = _reflect(torch.arange(height, device=images.device) + shift[:, :1], height)
    right = torch.arange(width, device=images.device)
    right = _reflect(torch.where(mirror[:, None], right.flip(0), right) + shift[:, 1:], width)
    pixels = images[rows[:, None, None], down[:, :, None], right[:, None, :]]
    return pixels.float().div_(255).permute(0, 3, 1, 2)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Positions outside [0, size) mirrored at the edge pixels."""
    return (size - 1) - ((size - 1) - position.abs()).abs()
