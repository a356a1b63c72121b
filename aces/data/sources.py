"""Where each dataset comes from, by the name in params.yaml."""

import difflib

from aces import extension, params, paths
from aces.data import (
    cifar10,
    digits,
    folder,
    huggingface,
    imagenet,
    npz,
    own,
    torchvision_sets,
)
from aces.data.sets import Info, read_info
from aces.data.splits import Splits
from aces.errors import InputError

DATASETS = {"cifar10": cifar10.load, "imagenet": imagenet.load, "digits": digits.load}
OF_THE_USER = {"folder": folder.load, "npz": npz.load}
PREFIXES = {torchvision_sets.PREFIX: torchvision_sets.load, huggingface.PREFIX: huggingface.load}


def load(dataset: params.Dataset) -> Splits:
    """The whole dataset."""
    name = dataset.name
    if name in DATASETS:
        return DATASETS[name]()
    if name in OF_THE_USER:
        return OF_THE_USER[name](dataset)
    for prefix, source in PREFIXES.items():
        if name.startswith(prefix):
            return source(dataset)
    if extension.is_reference(name):
        return own.load(dataset)
    known = [*DATASETS, *OF_THE_USER]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(
        f"dataset.name={name!r}: expected one of {', '.join(known)}, torchvision/<Name>, hf/<name> "
        f"or package.module:function{hint}"
    )


def info(name: str) -> Info:
    """What the dataset of the pipeline in this folder is.

    The evaluation images say it, once the stage `subsample` has written them. Before that, only the
    built-in datasets are known.
    """
    written = paths.evaluation_images(name)
    if written.is_file():
        return read_info(written)
    if name == "cifar10":
        return Info(name, cifar10.CLASSES, (3, 32, 32), cifar10.MEAN, cifar10.STD)
    if name == "imagenet":
        shape = (3, imagenet.CROP, imagenet.CROP)
        classes = imagenet.class_names()
        return Info(name, classes, shape, imagenet.MEAN, imagenet.STD, imagenet.RESIZE)
    if name == "digits":
        return Info(name, digits.CLASSES, (1, 8, 8), digits.MEAN, digits.STD)
    raise InputError(
        f"dataset.name={name!r}: {written} does not exist, and only {', '.join(DATASETS)} are "
        "known before it does; run `dvc repro subsample` first"
    )
