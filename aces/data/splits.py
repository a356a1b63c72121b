"""A whole dataset, as each source gives it: training and test images before any are chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
