"""What a dataset is, without its images: from the evaluation images, or from what everybody knows.

This module imports no source of images, so a change of one retrains nothing.
"""

from pathlib import Path

from aces import params, paths
from aces.data.sets import Info, read_info
from aces.errors import InputError

CIFAR10 = Info(
    name="cifar10",
    classes="airplane automobile bird cat deer dog frog horse ship truck".split(),
    shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),  # these and the deviations are those of the published networks
    std=(0.2023, 0.1994, 0.2010),
)
DIGITS = Info(
    name="digits",
    classes=[str(digit) for digit in range(10)],
    shape=(1, 8, 8),
    mean=(0.3053,),
    std=(0.3760,),
)
DATASETS = ("cifar10", "imagenet", "digits")

TITLES = {"cifar10": "CIFAR-10", "imagenet": "ImageNet", "digits": "the digits"}


def title(dataset: params.Dataset) -> str:
    """What a person calls the dataset."""
    name = dataset.name
    if name in ("folder", "npz") and dataset.path is not None:
        return Path(dataset.path).stem
    return TITLES.get(name, name.removeprefix("torchvision/").removeprefix("hf/"))


def imagenet() -> Info:
    from aces.vision import torchvision

    return Info(
        name="imagenet",
        # in the order of their wnids
        classes=list(torchvision.models.ResNet50_Weights.IMAGENET1K_V1.meta["categories"]),
        shape=(3, 224, 224),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        resize=256,
    )


def info(name: str) -> Info:
    """What the dataset of the pipeline in this folder is.

    The evaluation images say it, once the stage `subsample` has written them. Before that, only the
    built-in datasets are known.
    """
    written = paths.evaluation_images(name)
    if written.is_file():
        return read_info(written)
    for known in (CIFAR10, DIGITS):
        if known.name == name:
            return known
    if name == "imagenet":
        return imagenet()
    raise InputError(
        f"dataset.name={name!r}: {written} does not exist, and only {', '.join(DATASETS)} are "
        "known before it does; run `dvc repro subsample` first"
    )
