"""The image files of a folder, in a fixed order."""

import os
from functools import cache
from pathlib import Path

import numpy as np

from aces.data.splits import Part
from aces.errors import InputError


@cache
def suffixes() -> frozenset[str]:
    """What names of image files end in: every format that Pillow reads."""
    from PIL import Image

    from aces.data.images import REFUSED

    Image.init()
    return frozenset(
        suffix
        for suffix, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in REFUSED and suffix != ".pdf"
    )


def image_files(folder: Path) -> list[Path]:
    """The image files below `folder`, sorted by path; hidden files and folders are left out."""
    found = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(parent, name)
            for name in names
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in suffixes()
        ]
    return sorted(found)


def class_folders(part: Path) -> list[str]:
    """The names of the folders in `part`, sorted: one for each class."""
    if not part.is_dir():
        raise InputError(f"{part} does not exist: expected a folder that holds <class>/<image>")
    return sorted(
        entry.name
        for entry in os.scandir(part)
        if entry.is_dir() and not entry.name.startswith(".")
    )


def class_files(part: Path, classes: list[str]) -> Part:
    """All images of `part`, sorted by class and path: the order of torchvision's ImageFolder."""
    paths, label = [], []
    for number, name in enumerate(classes):
        found = image_files(part / name) if (part / name).is_dir() else []
        paths += found
        label += [number] * len(found)
    return Part(paths, np.array(label, dtype=np.int64))
