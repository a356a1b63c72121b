"""ImageNet (ILSVRC 2012) from a folder of the user's: `val/<wnid>/*.JPEG` and
`train/<wnid>/*.JPEG`.

The folder is `ACES_IMAGENET`, or else `<datasets>/imagenet`. Validation images are resized to 256
and cropped to 224 pixels in the middle, as in Cohen et al. (2019): certificates speak of the image
the network then sees. The training images stay where they are; only their paths are kept.
"""

from pathlib import Path

import numpy as np

from aces.data import places
from aces.data.listing import class_files, class_folders
from aces.data.splits import Part, Splits
from aces.errors import InputError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 1000
RESIZE, CROP = 256, 224


def load() -> Splits:
    """The validation images in the order of their paths, and the training images.

    Without a folder `train` there are none of these: published networks can still be evaluated.
    """
    root = places.imagenet()
    train = root / "train"
    return Splits(
        train=_listing(train) if train.is_dir() else Part([], np.empty(0, np.int64)),
        test=_listing(root / "val"),
        classes=class_names(),
        mean=MEAN,
        std=STD,
        size=CROP,
        resize=RESIZE,
        root=places.IMAGENET,
        benchmark=True,
    )


def class_names() -> list[str]:
    """The names of the 1000 classes, in the order of their wnids."""
    from aces.vision import torchvision

    return list(torchvision.models.ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


def _listing(part: Path) -> Part:
    """All images of `part` with their labels."""
    classes = class_folders(part)
    if len(classes) != CLASSES:
        raise InputError(
            f"{part} has {len(classes)} class folders, expected {CLASSES}: sort the images into "
            "one folder for each wnid, such as n01440764"
        )
    return class_files(part, classes)
