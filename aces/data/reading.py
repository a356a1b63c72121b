"""Many images at once: threads decode the files, and those that cannot be read are collected."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from aces import runtime
from aces.console import progress, warn
from aces.data.images import fit, read_image
from aces.data.sets import Shape, TrainSet
from aces.data.splits import Part
from aces.errors import InputError

THREADS = 8  # at most
NAMED = 3  # unreadable files that are named in a message; the others are counted

Result = TypeVar("Result")


@dataclass(frozen=True)
class Rows:
    """Images that were read, and their positions in their part."""

    image: np.ndarray  # (N, H, W, C) uint8
    row: np.ndarray  # (N,) int64


def read_rows(
    part: Part, rows: np.ndarray, *, shape: Shape, resize: int | None, skip: bool, title: str
) -> Rows:
    """The images `rows` of `part` in `shape` (C, H, W).

    Files that cannot be read are an InputError; with `skip` they are left out, and counted in a
    warning.
    """
    if isinstance(part.image, np.ndarray):
        return Rows(fit_array(part.image[rows], shape=shape, resize=resize), rows)
    channels, height, width = shape
    paths = [part.image[row] for row in rows]
    image, failures = np.empty((len(rows), height, width, channels), np.uint8), {}
    read = attempt(lambda path: read_image(path, shape=shape, resize=resize))
    for position, result in enumerate(in_threads(read, paths, title=title)):
        if isinstance(result, InputError):
            failures[position] = result
        else:
            image[position] = result
    tell_failures(list(failures.values()), total=len(paths), skip=skip)
    kept = np.setdiff1d(np.arange(len(rows)), list(failures)) if failures else slice(None)
    return Rows(image[kept], rows[kept])


def fit_array(image: np.ndarray, *, shape: Shape, resize: int | None) -> np.ndarray:
    """(N, H, W, C) uint8 images of any size in `shape` (C, H, W); unchanged where they have it."""
    channels, height, width = shape
    if image.shape[1:] == (height, width, channels):
        return image

    def fitted(pixels: np.ndarray) -> np.ndarray:
        picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        return np.asarray(fit(picture, shape=shape, resize=resize)).reshape(height, width, channels)

    result = np.empty((len(image), height, width, channels), np.uint8)
    for position, pixels in enumerate(image):
        result[position] = fitted(pixels)
    return result


def at_size(training: TrainSet, size: int) -> TrainSet:
    """The training images for a core network with a size of its own: those that were read from the
    files at that size, or else the files themselves; an array that has no larger source is resized.
    """
    shape = (training.shape[0], size, size)
    if isinstance(training.image, np.ndarray):
        source = training.image if training.core_image is None else training.core_image
        image = fit_array(source, shape=shape, resize=None)
        return dataclasses.replace(training, image=image, core_image=None)
    return dataclasses.replace(training, file_shape=shape)


def attempt(read: Callable[[Path], Result]) -> Callable[[Path], Result | InputError]:
    """`read`, but an InputError is returned instead of raised."""

    def attempted(path: Path) -> Result | InputError:
        try:
            return read(path)
        except InputError as error:
            return error

    return attempted


def in_threads(
    read: Callable[[Path], Result], paths: Sequence[Path], *, title: str
) -> Iterator[Result]:
    """read(path) for each path, in order; Pillow decodes outside Python's lock."""
    workers = min(THREADS, runtime.cores())
    with (
        ThreadPoolExecutor(workers) as pool,
        progress(f"reading {title}", len(paths), "images") as bar,
    ):
        # In slices, so that results never wait in memory for the one who takes them.
        for start in range(0, len(paths), 64 * workers):
            for result in pool.map(read, paths[start : start + 64 * workers]):
                bar.advance()
                yield result


def tell_failures(failures: list[InputError], *, total: int, skip: bool) -> None:
    """One line about all files that cannot be read: an error, or a warning if they are skipped."""
    if not failures:
        return
    if len(failures) == total:
        raise InputError(f"none of {total} images can be read: {failures[0]}")
    named = "; ".join(map(str, failures[:NAMED]))
    more = f"; and {len(failures) - NAMED} more" if len(failures) > NAMED else ""
    line = f"{len(failures)} of {total} images cannot be read: {named}{more}"
    if not skip:
        raise InputError(
            f"{line}. Replace or remove them, or set dataset.skip_unreadable to leave them out"
        )
    warn(f"warning: {line}. They are left out")
