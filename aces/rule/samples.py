"""The files that the stage `sample` leaves, tied to the images and networks they were made from.

Whoever needs the counts of a run reads them here: the stages, and commands that are given the
folder of a run.
"""

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
    """What the draws were made from: images, networks, and the network as it was run."""
    networks = [paths.network(role) for role in ("core", "certify", "select")]
    graph = [paths.DEPLOYED_GRAPH] if params.sample.precision == "int8" else []
    images = paths.evaluation_images(params.dataset.name)
    return [images, *networks, paths.DEPLOYED_ABOUT, *graph]


def record(params: Params) -> None:
    """Note which files belong together. To be called when all of them are written."""
    made = [paths.COUNTS, paths.CORE, *paths.COMPARISON_COUNTS.glob("*.npz")]
    write_manifest(paths.MANIFEST, [*inputs(params), *made])


def check(*files: Path, folder: Path = Path()) -> None:
    """Raise InputError unless these files of the run in `folder` are those that `record` noted."""
    check_manifest(folder / paths.MANIFEST, files, remedy=REMEDY, find=lambda name: folder / name)


def read_evaluation(folder: Path = Path()) -> tuple[Counts, np.ndarray]:
    """The counts of the evaluation images of the run in `folder`, and (N,) the core network's
    classes of these images.
    """
    counts = read_counts(folder / paths.COUNTS)
    core = read_core(counts, folder)
    check(paths.COUNTS, paths.CORE, folder=folder)
    return counts, core


def read_comparison(name: str) -> Counts:
    """Other counts of the same images, `sigma-0.5` or `entropy`."""
    path = paths.COMPARISON_COUNTS / f"{name}.npz"
    counts = read_counts(path)
    check(path)
    return counts


def read_core(counts: Counts, folder: Path = Path()) -> np.ndarray:
    """(N,) the core network's classes of the images of `counts`."""
    path = folder / paths.CORE
    arrays = read_npz(path, what="the core's answers", remedy=REMEDY)
    images, classes = counts.classes.shape[1:]
    core, index = arrays.get("prediction"), arrays.get("index")
    if core is None or core.shape != (images,) or core.dtype.kind != "i":
        raise InputError(f"{path} is not one class for each of {images} images: {REMEDY}")
    if index is None or not np.array_equal(index, counts.index):
        raise InputError(f"{path} is about other images than {folder / paths.COUNTS}: {REMEDY}")
    if core.min() < 0 or core.max() >= classes:
        raise InputError(f"{path} has a class that is not among the {classes}: {REMEDY}")
    return core
