"""Image files as the networks see them: any size and mode, resized and cropped as the dataset says.

A certificate speaks of the array made here, not of the file: the radius is measured after resizing
and cropping.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from aces.errors import InputError


def read_images(
    paths: Sequence[str | Path], *, shape: tuple[int, int, int], resize: int | None = None
) -> np.ndarray:
    """Read image files; (N, H, W, C) uint8 for `shape` (C, H, W). See `read_image`."""
    return np.stack([read_image(path, shape=shape, resize=resize) for path in paths])


def read_image(
    path: str | Path, *, shape: tuple[int, int, int], resize: int | None = None
) -> np.ndarray:
    """Read one image file; (H, W, C) uint8 for `shape` (C, H, W).

    The shorter side becomes `resize` (default: just large enough for the crop), then the centre H x
    W is kept. The camera's orientation is applied, transparent pixels become white, of an animation
    the first frame counts.
    """
    channels, height, width = shape
    image = _as_eight_bit(_open(Path(path)), path)
    image = image.convert("RGB" if channels == 3 else "L")
    image = _crop(
        _resize(image, height=height, width=width, shorter=resize), height=height, width=width
    )
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


def _open(path: Path) -> Image.Image:
    try:
        with Image.open(path) as file:
            file.load()
            return ImageOps.exif_transpose(file)
    except FileNotFoundError:
        raise InputError(f"image {path} does not exist") from None
    except IsADirectoryError:
        raise InputError(
            f"image {path} is a folder: name the files in it, such as {path}/*.png"
        ) from None
    except UnidentifiedImageError:
        raise InputError(
            f"image {path} is in no format that Pillow reads: convert it to PNG or JPEG"
        ) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"image {path} cannot be read ({error}): is it complete?") from None


def _as_eight_bit(image: Image.Image, path: str | Path) -> Image.Image:
    """Modes that Pillow's `convert` would clip or strip: 16 and 32 bits a pixel, and transparency."""
    if image.mode.startswith(("I", "F")):
        full = 65535 if image.mode.startswith("I;16") else None
        return Image.fromarray(_eight_bit_values(np.asarray(image).astype(np.float64), full, path))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image


def _eight_bit_values(values: np.ndarray, full: int | None, path: str | Path) -> np.ndarray:
    """Grey values from 0 to `full` as 0..255; where the mode leaves `full` open, the least of 1,
    255, 65535 that fits.
    """
    low, high = values.min(), values.max()
    full = full or next((full for full in (1, 255, 65535) if high <= full), None)
    if not low >= 0 or full is None:  # NaN fails too
        raise InputError(
            f"image {path} has values from {low:g} to {high:g}: expected 0 to 1, 255 or 65535; convert it to "
            "PNG"
        )
    return np.round(values * (255 / full)).astype(np.uint8)


def _resize(image: Image.Image, *, height: int, width: int, shorter: int | None) -> Image.Image:
    if shorter is None:
        scale = max(height / image.height, width / image.width)
    else:
        scale = shorter / min(image.height, image.width)
    size = max(width, int(image.width * scale)), max(height, int(image.height * scale))
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def _crop(image: Image.Image, *, height: int, width: int) -> Image.Image:
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
