"""Datasets as arrays: `dataset.name` chooses one."""

from collections.abc import Callable
from dataclasses import dataclass

from aces import params
from aces.data import cifar10, digits, imagenet
from aces.data.sets import (
    EvalSet,
    TrainSet,
    read_eval,
    read_train,
    to_tensor,
    write_eval,
    write_train,
)
from aces.errors import InputError

__all__ = [
    "EvalSet",
    "Info",
    "TrainSet",
    "info",
    "prepare",
    "read_eval",
    "read_train",
    "to_tensor",
    "write_eval",
    "write_train",
]


@dataclass(frozen=True)
class Info:
    """What is known of a dataset before it is loaded."""

    name: str
    num_classes: int
    classes: list[str]
    shape: tuple[int, int, int]  # (C, H, W)
    mean: tuple[float, ...]  # per channel, of [0, 1] pixels
    std: tuple[float, ...]
    stride: int  # every stride-th test image is evaluated, as in the literature
    resize: int | None = (
        None  # the shorter side of an image file before the middle is cropped; None: no margin
    )


def info(name: str) -> Info:
    """What is known of the dataset `name`."""
    if name not in _INFO:
        raise InputError(f"dataset.name={name!r}: expected one of {', '.join(_INFO)}")
    return _INFO[name]()


def prepare(dataset: params.Dataset) -> tuple[EvalSet, TrainSet]:
    """Get the dataset, from the network if need be: every stride-th test image, and the training
    images.
    """
    return _LOAD[dataset.name](dataset.stride)


_INFO: dict[str, Callable[[], Info]] = {
    "cifar10": lambda: Info(
        "cifar10", 10, cifar10.CLASSES, (3, 32, 32), cifar10.MEAN, cifar10.STD, stride=20
    ),
    "imagenet": lambda: Info(
        "imagenet",
        1000,
        imagenet.class_names(),
        (3, 224, 224),
        imagenet.MEAN,
        imagenet.STD,
        stride=100,
        resize=imagenet.RESIZE,
    ),
    "digits": lambda: Info(
        "digits", 10, digits.CLASSES, (1, 8, 8), digits.MEAN, digits.STD, stride=1
    ),
}
_LOAD: dict[str, Callable[[int], tuple[EvalSet, TrainSet]]] = {
    "cifar10": cifar10.load,
    "imagenet": imagenet.load,
    "digits": digits.load,
}

DATASETS = tuple(_INFO)
