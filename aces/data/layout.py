"""Which shape the images get, and what is known of them: from parameters, headers and pixels."""

import dataclasses
from collections import Counter
from dataclasses import dataclass

import numpy as np

from aces import params
from aces.data.images import Header, read_header
from aces.data.reading import attempt, in_threads, tell_failures
from aces.data.sets import Shape
from aces.data.splits import Part, Splits
from aces.errors import InputError

LEAST_STD = 1 / 255  # of a channel: images of one single value would be divided by 0


@dataclass(frozen=True)
class Layout:
    shape: Shape  # (C, H, W) of every image
    resize: int | None  # the shorter side of an image before the crop


def find_layout(splits: Splits, dataset: params.Dataset) -> tuple[Layout, Splits]:
    """The layout, and the dataset without the training files whose headers cannot be read.

    Unreadable test files keep their place, so that positions in the test set stay what they are.
    """
    resize = dataset.resize or (splits.resize if dataset.size is None else None)
    side = dataset.size or splits.size
    if isinstance(splits.test.image, np.ndarray):
        _, height, width, channels = splits.test.image.shape
        return Layout((channels, side or height, side or width), _fitting(resize, side)), splits
    if splits.benchmark and side is not None:
        return Layout((3, side, side), _fitting(resize, side)), splits
    train = _probe(splits.train, "training images")
    test = _probe(splits.test, "test images")
    tell_failures(train.failures, total=len(splits.train), skip=dataset.skip_unreadable)
    if not dataset.skip_unreadable:  # otherwise they are left out, and said, when they are read
        tell_failures(test.failures, total=len(splits.test), skip=False)
    headers = [header for header in (*train.headers, *test.headers) if header is not None]
    channels = 1 if all(header.grey for header in headers) else 3
    height, width = (side, side) if side else _common_size(headers)
    found = Layout((channels, height, width), _fitting(resize, min(height, width)))
    kept = splits.train.rows(np.array([header is not None for header in train.headers], bool))
    return found, dataclasses.replace(splits, train=kept)


def _fitting(resize: int | None, side: int | None) -> int | None:
    if resize is not None and side is not None and resize < side:
        raise InputError(
            f"dataset.resize={resize} is smaller than the images ({side} pixels): expected at "
            f"least {side}, since the middle is cropped after resizing"
        )
    return resize


@dataclass(frozen=True)
class _Probe:
    headers: list[Header | None]  # one for each file; None where it cannot be read
    failures: list[InputError]


def _probe(part: Part, title: str) -> _Probe:
    paths = list(part.image)
    read = attempt(read_header)
    results = list(in_threads(read, paths, title=f"headers of {title}"))
    return _Probe(
        headers=[result if isinstance(result, Header) else None for result in results],
        failures=[result for result in results if isinstance(result, InputError)],
    )


def _common_size(headers: list[Header]) -> tuple[int, int]:
    """(height, width) of all images, if they agree."""
    sizes = Counter((header.height, header.width) for header in headers)
    if len(sizes) > 1:
        small, large = min(sizes, key=np.prod), max(sizes, key=np.prod)
        raise InputError(
            f"dataset.size is not set, and the images have {len(sizes)} sizes, {small[1]} x "
            f"{small[0]} to {large[1]} x {large[0]} pixels: set dataset.size to the side they get, "
            "such as 64 (fast) or 224 (usual for pretrained networks)"
        )
    return next(iter(sizes))


def measure(image: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of (N, H, W, C) uint8 images, as pixels in [0, 1]."""
    value = np.arange(256) / 255
    mean, std = [], []
    for channel in range(image.shape[3]):
        share = np.bincount(image[..., channel].ravel(), minlength=256) / image[..., channel].size
        centre = float(share @ value)
        mean.append(round(centre, 6))
        std.append(round(max(float(np.sqrt(share @ (value - centre) ** 2)), LEAST_STD), 6))
    return tuple(mean), tuple(std)
