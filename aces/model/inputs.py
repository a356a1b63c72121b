"""What a user hands to the model: arrays, tensors, image files, PIL images."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from aces.errors import InputError
from aces.sampling import Images

ARRAYS = (np.ndarray, Tensor, Images)  # taken as they are; files and PIL images are read

if TYPE_CHECKING:
    from PIL.Image import Image

    Source = (
        np.ndarray
        | Tensor
        | Images
        | str
        | os.PathLike
        | Image
        | Sequence[str | os.PathLike | bytes | Image]
    )


def as_images(
    source: "Source", *, shape: tuple[int, int, int] | None, resize: int | None
) -> Images:
    """Checked images of the shape (C, H, W) that a model takes; None takes any.

    source: (N, C, H, W) floats in [0, 1]; (N, H, W, C) or (N, C, H, W) uint8; a path or a PIL
    image; or a list of these, or of the bytes of image files. Files and PIL images are resized and
    cropped as the model says.
    """
    if isinstance(source, ARRAYS):
        images = Images.of(source)
    else:
        images = Images.of(_read(source, shape=shape, resize=resize))
    if shape is not None and images.shape != shape:
        raise InputError(f"images of shape {images.shape}: this model takes (C, H, W) = {shape}")
    return images


def _read(source: Any, *, shape: tuple[int, int, int] | None, resize: int | None) -> np.ndarray:
    """(N, H, W, C) uint8 of files and PIL images."""
    from PIL.Image import Image

    from aces.data.images import read_images

    parts = list(source) if isinstance(source, (list, tuple)) else [source]
    strange = [it for it in parts if not isinstance(it, (str, os.PathLike, bytes, Image))]
    if strange or not parts:
        found = f"a {type(strange[0]).__name__}" if strange else "an empty list"
        raise InputError(
            f"images: {found}: expected an array, a tensor, a path, a PIL image, or a list of "
            "paths or PIL images"
        )
    if shape is None:
        raise InputError(
            "the model does not say which images it takes: give ACES(shape=(C, H, W)), or pass an "
            "array"
        )
    return read_images(parts, shape=shape, resize=resize)
