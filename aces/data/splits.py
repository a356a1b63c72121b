"""A whole dataset, as each source gives it: training and test images before any are chosen."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aces.errors import InputError

ARRAY_BYTES = 2**30  # images up to this size together become one array; more stay files

Images = np.ndarray | Sequence[Path]  # (N, H, W, C) uint8, or N image files


@dataclass(frozen=True)
class Part:
    """The training images or the test images."""

    image: Images
    label: np.ndarray  # (N,) whole numbers from 0

    def __len__(self) -> int:
        return len(self.image)

    @property
    def is_array(self) -> bool:
        return isinstance(self.image, np.ndarray)

    def rows(self, chosen: np.ndarray) -> "Part":
        """Those of the images that `chosen`, (N,) bool, says."""
        if isinstance(self.image, np.ndarray):
            return Part(self.image[chosen], self.label[chosen])
        return Part(
            [path for path, kept in zip(self.image, chosen, strict=True) if kept],
            self.label[chosen],
        )


@dataclass(frozen=True)
class Splits:
    """A dataset with its split into training and test images.

    A function of your own (`dataset.name: package.module:function`) returns one of these.
    """

    train: Part
    test: Part
    classes: list[str]  # K names; label k means classes[k]
    mean: tuple[float, ...] | None = None  # per channel, pixels in [0, 1]; None: measured
    std: tuple[float, ...] | None = None
    mirror: bool | None = None  # a mirror image has the same class; None: true of colour images
    size: int | None = None  # the side of the images made from files; None: as dataset.size says
    resize: int | None = None  # their shorter side before the crop; None: as dataset.resize says
    root: str = ""  # the folder of the files, see `aces.data.places`
    benchmark: bool = False  # a well-known dataset: its files are taken as they are, unchecked


def divide(whole: Part, classes: list[str], *, share: float, seed: int) -> tuple[Part, Part]:
    """Training and test images of a dataset that has no split: `share` of every class, and at least
    one image, is for test.

    The choice depends on the seed, and on a class's name and number of images alone: other classes
    may come and go. (RandomState draws the same numbers in every version of numpy.)
    """
    test = np.zeros(len(whole), bool)
    for number, name in enumerate(classes):
        rows = np.flatnonzero(whole.label == number)
        if len(rows) == 1:
            raise InputError(
                f"class {name!r} has one image: expected at least 2, one to train and one to test"
            )
        random = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode()))
        count = min(max(round(share * len(rows)), 1), max(len(rows) - 1, 0))
        test[random.permutation(rows)[:count]] = True
    return whole.rows(~test), whole.rows(test)
