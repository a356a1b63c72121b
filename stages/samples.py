"""The files that the stage `sample` leaves, tied to the images and networks they were made from."""

from pathlib import Path

import numpy as np

from aces import paths
from aces.errors import InputError
from aces.files import read_npz
from aces.manifest import check_manifest, write_manifest
from aces.params import Params
from aces.rule.counts import Counts, read_counts

REMEDY = "run `dvc repro -f sample`"


def inputs(params: Params) -> list[Path]:
    """What the draws were made from."""
    networks = [paths.network(role) for role in ("core", "certify", "select")]
    return [paths.evaluation_images(params.dataset.name), *networks]


def record(params: Params) -> None:
    """Note which files belong together. To be called when all of them are written."""
    made = [paths.COUNTS, paths.CORE, *paths.COMPARISON_COUNTS.glob("*.npz")]
    write_manifest(paths.MANIFEST, [*inputs(params), *made])


def check(*files: Path) -> None:
    """Raise InputError unless these files are those that `record` noted."""
    check_manifest(paths.MANIFEST, files, remedy=REMEDY)


def read_evaluation() -> tuple[Counts, np.ndarray]:
    """The counts of the evaluation images, and (N,) the core network's classes of these images."""
    counts = read_counts(paths.COUNTS)
    core = read_core(counts)
    check(paths.COUNTS, paths.CORE)
    return counts, core


def read_comparison(name: str) -> Counts:
    """Other counts of the same images, `sigma-0.5` or `entropy`."""
    path = paths.COMPARISON_COUNTS / f"{name}.npz"
    counts = read_counts(path)
    check(path)
    return counts


def read_core(counts: Counts) -> np.ndarray:
    """(N,) the core network's classes of the images of `counts`."""
    arrays = read_npz(paths.CORE, what="the core's answers", remedy=REMEDY)
    images, classes = counts.classes.shape[1:]
    core, index = arrays.get("prediction"), arrays.get("index")
    if core is None or core.shape != (images,) or core.dtype.kind != "i":
        raise InputError(f"{paths.CORE} is not one class for each of {images} images: {REMEDY}")
    if index is None or not np.array_equal(index, counts.index):
        raise InputError(f"{paths.CORE} is about other images than {paths.COUNTS}: {REMEDY}")
    if core.min() < 0 or core.max() >= classes:
        raise InputError(f"{paths.CORE} has a class that is not among the {classes}: {REMEDY}")
    return core
