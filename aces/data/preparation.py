"""From a whole dataset to what the pipeline needs: images for evaluation, calibration, training."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aces import params
from aces.console import warn
from aces.data import places
from aces.data.checks import check_splits, warn_of_duplicates, warn_of_untested
from aces.data.layout import Layout, find_layout, measure
from aces.data.reading import Rows, read_rows
from aces.data.sets import EvalSet, Prepared, Shape, TrainSet
from aces.data.splits import ARRAY_BYTES, Images, Part, Splits

MEASURED = 5000  # files, at most, that mean and standard deviation are measured on


def assemble(
    splits: Splits, dataset: params.Dataset, calibration: int, core_size: int | None = None
) -> Prepared:
    """Choose the images and read them.

    Every stride-th test image is evaluated. Of the others, `calibration` images calibrate theta.
    With `core_size` the images are read a second time, at that size. Training images that stay
    files are read by the stage that trains.
    """
    check_splits(splits, dataset)
    layout, splits = find_layout(splits, dataset)
    check_splits(splits, dataset)  # again, without the files that were left out
    if not splits.benchmark:
        warn_of_untested(splits)
        warn_of_duplicates(splits)
    training = _training(splits, layout, dataset, core_size)
    evaluated, calibrated = choose(len(splits.test), dataset.stride, calibration)
    test = _Test(splits, dataset, layout, core_size, training)
    return Prepared(
        evaluation=test.read(evaluated, "images to evaluate"),
        calibration=test.read(calibrated, "images to calibrate"),
        training=training,
    )


def choose(count: int, stride: int, calibration: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of `count` test images are evaluated, and which calibrate: of those not evaluated,
    `calibration` images spread evenly, or all of them if there are fewer.
    """
    evaluated = np.arange(0, count, stride)
    others = np.setdiff1d(np.arange(count), evaluated)
    size = min(calibration, len(others))
    return evaluated, others[np.arange(size) * len(others) // max(size, 1)]


@dataclass(frozen=True)
class _Test:
    """The test images, of which some are read."""

    splits: Splits
    dataset: params.Dataset
    layout: Layout
    core_size: int | None
    training: TrainSet

    def read(self, rows: np.ndarray, title: str) -> EvalSet:
        shape = self.layout.shape
        found = self._read(rows, shape, self.layout.resize, title)
        core, core_shape = None, _core_shape(self.layout, self.core_size)
        if core_shape is not None:
            core = self._read(found.row, core_shape, None, f"{title}, for the core network")
        return EvalSet(
            image=found.image,
            label=np.asarray(self.splits.test.label)[found.row].astype(np.int64),
            index=found.row,
            classes=self.splits.classes,
            mean=self.training.mean,
            std=self.training.std,
            resize=self.layout.resize,
            name=self.dataset.name,
            core_image=None if core is None else core.image,
        )

    def _read(self, rows: np.ndarray, shape: Shape, resize: int | None, title: str) -> Rows:
        skip = self.dataset.skip_unreadable
        return read_rows(self.splits.test, rows, shape=shape, resize=resize, skip=skip, title=title)


def _core_shape(layout: Layout, core_size: int | None) -> Shape | None:
    """The shape of the core network's images, if it is not that of all images."""
    shape = layout.shape
    if core_size is None or shape[1:] == (core_size, core_size):
        return None
    return shape[0], core_size, core_size


def _training(
    splits: Splits, layout: Layout, dataset: params.Dataset, core_size: int | None
) -> TrainSet:
    """The training images: one array if they are few, otherwise their paths.

    For a core network with a size of its own they are read a second time, unless the array has all
    the pixels that there are: then the stage that trains resizes it.
    """
    part = splits.train
    image, label = part.image, np.asarray(part.label).astype(np.int64)
    core_image, core_shape = None, _core_shape(layout, core_size)
    bytes_each = math.prod(layout.shape) + math.prod(core_shape or (0,))
    if part.is_array or (not splits.benchmark and len(part) * bytes_each <= ARRAY_BYTES):
        rows = _read_training(part, layout, dataset)
        image, label = rows.image, label[rows.row]
        as_given = isinstance(part.image, np.ndarray) and image.shape == part.image.shape
        if core_shape is not None and not as_given:
            core_image = _read_training(part, Layout(core_shape, None), dataset, rows.row).image
    mean, std = _statistics(splits, image, layout, dataset)
    return TrainSet(
        image=image if isinstance(image, np.ndarray) else list(image),
        label=label,
        classes=splits.classes,
        mean=mean,
        std=std,
        resize=layout.resize,
        name=dataset.name,
        file_shape=layout.shape,
        mirror=splits.mirror,
        root=_root(splits, image),
        core_image=core_image,
    )


def _root(splits: Splits, image: Images) -> str:
    """The folder of files that stay files."""
    if splits.root or isinstance(image, np.ndarray) or not len(image):
        return splits.root
    return places.describe(Path(os.path.commonpath([path.parent for path in image])))


def _read_training(
    part: Part, layout: Layout, dataset: params.Dataset, rows: np.ndarray | None = None
) -> Rows:
    """Training images in a layout: all of them, or these rows."""
    return read_rows(
        part,
        np.arange(len(part)) if rows is None else rows,
        shape=layout.shape,
        resize=layout.resize,
        skip=dataset.skip_unreadable,
        title="training images",
    )


def _statistics(
    splits: Splits, image: Images, layout: Layout, dataset: params.Dataset
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation: the dataset's own, or measured on its training images."""
    if splits.mean is not None and splits.std is not None:
        return splits.mean, splits.std
    if not len(image):
        warn(
            "warning: no training images: mean and standard deviation are taken to be 0.5 and 0.25"
        )
        return (0.5,) * layout.shape[0], (0.25,) * layout.shape[0]
    if isinstance(image, np.ndarray):
        return measure(image)
    size = min(len(image), MEASURED)
    rows = np.arange(size) * len(image) // size
    return measure(_read_training(splits.train, layout, dataset, rows).image)
