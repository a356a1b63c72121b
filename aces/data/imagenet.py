"""ImageNet (ILSVRC 2012) from a folder of the user's: `val/<wnid>/*.JPEG` and
`train/<wnid>/*.JPEG`.

The folder is `ACES_IMAGENET`, or else `<datasets>/imagenet`. Validation images are resized to 256
and cropped to 224 pixels in the middle, as in Cohen et al. (2019): certificates speak of the image
the network then sees. The training images stay where they are; only their paths are kept.
"""

import os
from pathlib import Path

import numpy as np

from aces import paths
from aces.console import progress
from aces.data.sets import EvalSet, TrainSet
from aces.errors import InputError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 1000
RESIZE, CROP = 256, 224
SUFFIXES = (".jpeg", ".jpg", ".png")


def load(stride: int) -> tuple[EvalSet, TrainSet]:
    """Every `stride`-th validation image in the order of its path, and the paths of the training
    images.

    Without a folder `train` there are none of these: published networks can still be evaluated.
    """
    root = folder()
    paths, label = _listing(root / "val")
    index = np.arange(0, len(paths), stride)
    image = np.empty((len(index), CROP, CROP, 3), np.uint8)
    with progress("reading ImageNet", len(index), "images") as bar:
        for place, number in enumerate(index):
            image[place] = read_image(paths[number])
            bar.advance()
    training, training_label = (
        _listing(root / "train") if (root / "train").is_dir() else ([], np.empty(0, np.int64))
    )
    return (
        EvalSet(image=image, label=label[index], index=index, classes=class_names()),
        TrainSet(image=training, label=training_label),
    )


def folder() -> Path:
    """Where the user's copy is."""
    path = Path(os.environ.get("ACES_IMAGENET", paths.datasets() / "imagenet"))
    if not path.is_dir():
        raise InputError(
            f"ImageNet is not at {path}: set ACES_IMAGENET to the folder that holds val/<wnid>/*.JPEG and "
            "train/<wnid>/*.JPEG"
        )
    return path.resolve()


def class_names() -> list[str]:
    """The names of the 1000 classes, in the order of their wnids."""
    from aces.vision import torchvision

    return list(torchvision.models.ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


def read_image(path: Path) -> np.ndarray:
    """(224, 224, 3) uint8: the shorter side resized to 256 pixels, the middle cropped."""
    from PIL import Image

    from aces.vision import torchvision

    try:
        with Image.open(path) as file:
            picture = torchvision.transforms.functional.resize(file.convert("RGB"), RESIZE)
    except OSError as error:
        raise InputError(f"{path} is not a readable image ({error}): get it again") from None
    return np.asarray(torchvision.transforms.functional.center_crop(picture, CROP))


def _listing(part: Path) -> tuple[list[Path], np.ndarray]:
    """All images of `part`, sorted by class and name, with their labels: the order of torchvision's
    ImageFolder.
    """
    if not part.is_dir():
        raise InputError(f"{part} does not exist: ImageNet's folder must hold val/<wnid>/*.JPEG")
    classes = sorted(entry.name for entry in os.scandir(part) if entry.is_dir())
    if len(classes) != CLASSES:
        raise InputError(
            f"{part} has {len(classes)} class folders, expected {CLASSES}: sort the images into one "
            "folder for each wnid, such as n01440764"
        )
    paths, label = [], []
    for number, name in enumerate(classes):
        found = sorted(path for path in (part / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        paths += found
        label += [number] * len(found)
    return paths, np.array(label, dtype=np.int64)
