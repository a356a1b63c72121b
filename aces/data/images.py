"""The one loader of image files: any size and mode becomes the array that the networks see.

A certificate speaks of the array made here, not of the file: its radius is measured after the image
was resized and cropped.

What every reader of image files relies on:
- the camera's orientation (EXIF) is applied, transparent pixels become white, of an animation the
  first frame counts, 16-bit and LAB images become 8-bit RGB or grey;
- size and shape are judged before a pixel is decoded, so a small file cannot fill the memory;
- pipes and devices are refused, since reading them may never end;
- whatever is wrong with a file is an InputError of one line that names it.
"""

import io
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from aces.errors import InputError, one_line

MAX_PIXELS = 80_000_000  # in a file, and in the image after resizing: 240 MB as RGB
MAX_ASPECT = 100  # longer side : shorter side
REFUSED = ("EPS", "WMF")  # formats that Pillow hands to other programs
ORIENTATION = 0x0112  # the EXIF tag
GREY_MODES = ("1", "L", "LA", "La", "I", "F")  # and I;16 in all its forms

Box = tuple[float, float, float, float]  # left, top, right, bottom

# Pillow warns of large images and of damaged metadata, several lines for one file. What matters is
# refused here, in one line.
warnings.filterwarnings("ignore", module=r"PIL\.")


@dataclass(frozen=True)
class Header:
    """What a file says of its image before it is decoded."""

    width: int
    height: int
    grey: bool


# A path, the content of a file, or an image that Pillow has opened or made
File = str | os.PathLike[str] | bytes | Image.Image


def read_images(
    files: Sequence[File], *, shape: tuple[int, int, int], resize: int | None = None
) -> np.ndarray:
    """Read image files; (N, H, W, C) uint8 for `shape` (C, H, W). See `read_image`."""
    return np.stack([read_image(file, shape=shape, resize=resize) for file in files])


def read_image(
    file: File, *, shape: tuple[int, int, int], resize: int | None = None, name: str = ""
) -> np.ndarray:
    """Read one image file; (H, W, C) uint8 for `shape` (C, H, W).

    The shorter side becomes `resize` (default: just large enough for the crop), then the centre of
    H x W pixels is kept. This is torchvision's Resize and CenterCrop, bit by bit. `name` stands for
    the file in error messages, where only its content is given. An image of Pillow's is read as its
    file would be.
    """

    def centre(image: Image.Image) -> Image.Image:
        return fit(image, shape=shape, resize=resize)

    return _read(file, shape, centre, shorter=max(resize or 0, *shape[1:]), name=name)


def read_crop(
    file: File, *, shape: tuple[int, int, int], choose: Callable[[int, int], Box]
) -> np.ndarray:
    """Read a part of one image file, for training; (H, W, C) uint8 for `shape` (C, H, W).

    choose(width, height): the part to be kept; it is resized to H x W.
    """
    _, height, width = shape

    def part(image: Image.Image) -> Image.Image:
        box = choose(image.width, image.height)
        return image.resize((width, height), Image.Resampling.BILINEAR, box=box)

    return _read(file, shape, part, shorter=1)


def read_header(file: File, *, name: str = "") -> Header:
    """Size and kind of an image file, without decoding it."""
    name = _name(file, name)
    with _reading(name), _open(file, name) as image:
        _check_size(image, name, shorter=1)
        width, height = image.size
        if _orientation(image) >= 5:  # turned by 90 degrees
            width, height = height, width
        return Header(width, height, is_grey(image))


def is_grey(image: Image.Image) -> bool:
    return image.mode in GREY_MODES or image.mode.startswith("I;16")


def fit(
    image: Image.Image, *, shape: tuple[int, int, int], resize: int | None = None
) -> Image.Image:
    """An image in the mode and size of `shape` (C, H, W): resized, then cropped in the middle."""
    channels, height, width = shape
    image = _in_colour(image, channels)
    if resize is None:
        scale = max(height / image.height, width / image.width)
    else:
        scale = resize / min(image.height, image.width)
    size = max(width, int(image.width * scale)), max(height, int(image.height * scale))
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _read(
    file: File,
    shape: tuple[int, int, int],
    view: Callable[[Image.Image], Image.Image],
    *,
    shorter: int,
    name: str = "",
) -> np.ndarray:
    channels, height, width = shape
    name = _name(file, name)
    with _reading(name), _open(file, name) as opened:
        _check_size(opened, name, shorter=shorter)
        opened.load()
        image = ImageOps.exif_transpose(opened) if _orientation(opened) > 1 else opened
        image = view(_in_colour(image, channels))
        return np.array(image, dtype=np.uint8).reshape(height, width, channels)


def _name(file: File, name: str) -> str:
    return name or ("from memory" if isinstance(file, (bytes, Image.Image)) else str(file))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Any error inside becomes one line about the file: Pillow raises nearly every kind."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(_explain(name, error)) from None


def _explain(name: str, error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return f"image {name} does not exist"
        case UnidentifiedImageError():
            return f"image {name} is in no format that Pillow reads: convert it to PNG or JPEG"
        case Image.DecompressionBombError():
            return f"image {name} has more than {MAX_PIXELS:,} pixels: make it smaller"
        case _:
            return f"image {name} cannot be read ({one_line(error)}): is it complete?"


def _open(file: File, name: str) -> AbstractContextManager[Image.Image]:
    if isinstance(file, Image.Image):
        return nullcontext(file)  # whoever opened it closes it
    if isinstance(file, bytes):
        return _identify(io.BytesIO(file))
    kind = os.stat(file).st_mode
    if stat.S_ISDIR(kind):
        raise InputError(f"image {name} is a folder: name the files in it, such as {name}/*.png")
    if not stat.S_ISREG(kind):
        raise InputError(f"image {name} is a pipe or a device: save it to a file first")
    return _identify(file)


def _identify(file: str | os.PathLike[str] | io.BytesIO) -> Image.Image:
    """Nearly every file is a PNG or a JPEG. Pillow takes longer to load all the others than to read
    a small image.
    """
    try:
        return Image.open(file, formats=("PNG", "JPEG"))
    except UnidentifiedImageError:
        return Image.open(file, formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.OPEN if name not in REFUSED)


def _check_size(image: Image.Image, name: str, *, shorter: int) -> None:
    """Refuse, before decoding, what would take absurd memory: also after the shorter side is
    resized to `shorter` pixels.
    """
    low, high = sorted(image.size)
    if low == 0:
        raise InputError(f"image {name} has no pixels ({image.width} x {image.height})")
    if high > MAX_ASPECT * low:
        raise InputError(
            f"image {name} has {image.width} x {image.height} pixels: expected sides of at most "
            f"{MAX_ASPECT} : 1; crop it"
        )
    if max(low * high, shorter * shorter * high / low) > MAX_PIXELS:
        raise InputError(
            f"image {name} has {image.width} x {image.height} pixels: expected at most "
            f"{MAX_PIXELS:,}, also after resizing; make it smaller"
        )


def _orientation(file: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) where it is absent or damaged."""
    try:
        value = int(file.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data is no reason to refuse the pixels
        return 1
    return value if 1 <= value <= 8 else 1


def _in_colour(image: Image.Image, channels: int) -> Image.Image:
    """The image as 8-bit RGB (3 channels) or grey (1).

    Pillow's `convert` would clip 16- and 32-bit values, drop transparency, and refuse LAB.
    """
    mode = "RGB" if channels == 3 else "L"
    if image.mode == mode and not image.has_transparency_data:
        return image
    if image.mode.startswith(("I", "F")):
        full = 65535 if image.mode.startswith("I;16") else None
        values = np.asarray(image).astype(np.float64)
        return Image.fromarray(_eight_bit(values, full)).convert(mode)
    if image.mode == "LAB":
        return _from_lab(image).convert(mode)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB").convert(mode)
    return image.convert(mode)


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    converted = ImageCms.applyTransform(image, ImageCms.buildTransform(lab, srgb, "LAB", "RGB"))
    assert converted is not None  # it is, for a change in place
    return converted


def _eight_bit(values: np.ndarray, full: int | None) -> np.ndarray:
    """Grey values from 0 to `full` as 0..255. Where the mode leaves `full` open, it is the least of
    1, 255 and 65535 that no value exceeds.
    """
    low, high = values.min(), values.max()
    full = full or next((full for full in (1, 255, 65535) if high <= full), None)
    if not low >= 0 or full is None:  # also refuses NaN
        raise ValueError(
            f"values from {low:g} to {high:g}, expected 0 to 1, 255 or 65535; convert it to PNG"
        )
    return np.round(values * (255 / full)).astype(np.uint8)
