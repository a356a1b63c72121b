"""Datasets: `dataset.name` in params.yaml chooses one, `prepare` makes its images ready.

Every source is one module that gives a whole dataset as `Splits`. `preparation` then chooses the
images, reads them, and says what they are; what it writes serves any later stage, whichever the
dataset is.
"""

from aces import params
from aces.data.known import DATASETS, info
from aces.data.sets import (
    EvalSet,
    Info,
    Prepared,
    TrainSet,
    read_eval,
    read_info,
    read_train,
    to_tensor,
    write_eval,
    write_train,
)
from aces.data.sources import load
from aces.data.splits import Part, Splits

__all__ = [
    "DATASETS",
    "EvalSet",
    "Info",
    "Part",
    "Prepared",
    "Splits",
    "TrainSet",
    "info",
    "load",
    "prepare",
    "read_eval",
    "read_info",
    "read_train",
    "to_tensor",
    "write_eval",
    "write_train",
]


def prepare(
    dataset: params.Dataset, calibration: int = 0, core_size: int | None = None
) -> Prepared:
    """Get the dataset, from the network if need be.

    Every stride-th test image is for evaluation; of the others up to `calibration` images are for
    choosing theta. A core network at a size of its own, `core_size`, gets the same test images
    read at that size.
    """
    from aces.data.preparation import assemble

    return assemble(load(dataset), dataset, calibration, core_size)
