"""Images that come one by one, from a library's dataset: one array if they are few, else files."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from aces import params
from aces.console import progress
from aces.data.images import fit, is_grey, read_header, read_image
from aces.data.splits import ARRAY_BYTES, Part
from aces.errors import InputError
from aces.files import atomic, write_json

Item = tuple[Image.Image | bytes, int]  # an image or the content of its file, and its label
COMPLETE = "complete.json"


def collect(
    count: int, get: Callable[[int], Item], dataset: params.Dataset, *, folder: Path, title: str
) -> Part:
    """The images get(0), ..., get(count - 1).

    Those too large for memory are written to `folder`, once, and found there the next time.
    """
    if count == 0:
        return Part([], np.empty(0, np.int64))
    height, width = _size(get(0)[0], dataset)
    if 3 * count * height * width > ARRAY_BYTES:
        return _export(count, get, folder=folder, title=title)
    images, labels = [], []
    with progress(f"reading {title}", count, "images") as bar:
        for number in range(count):
            image, label = get(number)
            name = f"{number} of the {title}"
            if dataset.size is None and _size(image, dataset) != (height, width):
                raise InputError(
                    f"dataset.size is not set, and the {title} of {dataset.name} have different "
                    "sizes: set it to the side they get, such as 64"
                )
            images.append(_pixels(image, (height, width), dataset.resize, name=name))
            labels.append(label)
            bar.advance()
    if any(pixels.shape[2] == 3 for pixels in images):
        images = [np.broadcast_to(pixels, (height, width, 3)) for pixels in images]
    return Part(np.stack(images), np.array(labels, dtype=np.int64))


def _size(image: Image.Image | bytes, dataset: params.Dataset) -> tuple[int, int]:
    """(height, width) that an image gets."""
    if dataset.size is not None:
        return dataset.size, dataset.size
    if isinstance(image, bytes):
        header = read_header(image)
        return header.height, header.width
    return image.height, image.width


def _pixels(
    image: Image.Image | bytes, size: tuple[int, int], resize: int | None, *, name: str
) -> np.ndarray:
    """(H, W, 1 or 3) uint8."""
    grey = read_header(image, name=name).grey if isinstance(image, bytes) else is_grey(image)
    shape = (1 if grey else 3, *size)
    if isinstance(image, bytes):
        return read_image(image, shape=shape, resize=resize, name=name)
    return np.asarray(fit(image, shape=shape, resize=resize)).reshape(*size, shape[0])


def _export(count: int, get: Callable[[int], Item], *, folder: Path, title: str) -> Part:
    """One file for each image, as it is; PNG where only its pixels are known."""
    record = folder / COMPLETE
    if record.is_file():
        kept = json.loads(record.read_text())
        return Part([folder / name for name in kept["name"]], np.array(kept["label"], np.int64))
    names, labels = [], []
    with progress(f"writing {title} to {folder}", count, "images") as bar:
        for number in range(count):
            image, label = get(number)
            names.append(
                f"{label}/{number:07d}.{'png' if isinstance(image, Image.Image) else 'img'}"
            )
            with atomic(folder / names[-1]) as temporary:
                if isinstance(image, bytes):
                    temporary.write_bytes(image)
                else:
                    image.save(temporary)
            labels.append(label)
            bar.advance()
    write_json(record, {"name": names, "label": labels})
    return Part([folder / name for name in names], np.array(labels, np.int64))
