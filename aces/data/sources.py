"""Where each dataset comes from, by the name in params.yaml."""

from aces import params
from aces.data import cifar10, digits, imagenet
from aces.data.sets import Info
from aces.data.splits import Splits
from aces.errors import InputError

DATASETS = {"cifar10": cifar10.load, "imagenet": imagenet.load, "digits": digits.load}


def load(dataset: params.Dataset) -> Splits:
    """The whole dataset."""
    return DATASETS[dataset.name]()


def info(name: str) -> Info:
    """What is known of a built-in dataset before it is loaded.

    Of any dataset, `read_eval(...).info` says the same once the stage `subsample` has run.
    """
    if name == "cifar10":
        return Info(name, cifar10.CLASSES, (3, 32, 32), cifar10.MEAN, cifar10.STD)
    if name == "imagenet":
        shape = (3, imagenet.CROP, imagenet.CROP)
        classes = imagenet.class_names()
        return Info(name, classes, shape, imagenet.MEAN, imagenet.STD, imagenet.RESIZE)
    if name == "digits":
        return Info(name, digits.CLASSES, (1, 8, 8), digits.MEAN, digits.STD)
    raise InputError(
        f"dataset.name={name!r}: expected one of {', '.join(DATASETS)}, or the dataset's images; run "
        "`dvc repro subsample` first"
    )
