"""A folder of image files: `train/<class>/*` and `test/<class>/*` (or `val`), or `<class>/*` alone.

The classes are named like their folders. Without a folder for the test images, a share
`dataset.split` of every class is taken for them, chosen by `dataset.settings.seed`.
"""

from pathlib import Path

import numpy as np

from aces import params
from aces.console import say
from aces.data import places
from aces.data.listing import class_files, class_folders, image_files
from aces.data.options import options, path_of
from aces.data.splits import Part, Splits, divide
from aces.errors import InputError

TRAIN = ("train", "training")
TEST = ("test", "val", "validation", "valid")
EXPECTED = "train/<class>/<image> and test/<class>/<image>, or <class>/<image>"


def load(dataset: params.Dataset) -> Splits:
    settings = options(dataset, seed=0, mirror=None)
    path = path_of(dataset)
    if not path.is_dir():
        raise InputError(f"dataset.path={dataset.path!r} is a file: expected a folder, {EXPECTED}")
    train, test = _first(path, TRAIN), _first(path, TEST)
    if test is not None:
        classes, parts = _two_folders(train, test)
    elif train is not None:
        raise InputError(
            f"{path} has a folder {train.name}, and none of {', '.join(TEST)}: add one, or set "
            f"dataset.path to {train} to split it by dataset.split"
        )
    else:
        classes, parts = _one_tree(path, share=dataset.split, seed=settings["seed"])
    _check_found(path, classes, parts)
    return Splits(*parts, classes, mirror=settings["mirror"], root=places.describe(path))


def _first(path: Path, names: tuple[str, ...]) -> Path | None:
    found = [path / name for name in names if (path / name).is_dir()]
    if len(found) > 1:
        say(f"{path}: {found[0].name} is used, {', '.join(other.name for other in found[1:])} not")
    return found[0] if found else None


def _two_folders(train: Path | None, test: Path) -> tuple[list[str], tuple[Part, Part]]:
    """Without training images, published networks can still be certified."""
    tested = class_folders(test)
    if train is None:
        return tested, (Part([], np.empty(0, np.int64)), class_files(test, tested))
    classes = class_folders(train)
    unknown = [name for name in tested if name not in classes and image_files(test / name)]
    if unknown:
        raise InputError(
            f"{test} has {_list('class', unknown)}, which {train} lacks: no network could learn "
            "it; add training images, or remove the folder"
        )
    return classes, (class_files(train, classes), class_files(test, classes))


def _one_tree(path: Path, *, share: float, seed: int) -> tuple[list[str], tuple[Part, Part]]:
    classes = class_folders(path)
    whole = class_files(path, classes)
    return classes, divide(whole, classes, share=share, seed=seed)


def _check_found(path: Path, classes: list[str], parts: tuple[Part, Part]) -> None:
    train, test = parts
    if not len(train) and not len(test):
        raise InputError(f"{path} holds no images in folders of classes: expected {EXPECTED}")
    if len(train):
        empty = [name for number, name in enumerate(classes) if not (train.label == number).any()]
        if empty:
            raise InputError(
                f"{path}: {_list('class', empty)} without training images: add some, or remove the "
                "folder"
            )


def _list(what: str, names: list[str]) -> str:
    """class 'cat'; or 5 classes ('cat', 'dog', ...)"""
    if len(names) == 1:
        return f"{what} {names[0]!r}"
    return f"{len(names)} {what}es ({', '.join(map(repr, names[:3]))}{', ...' * (len(names) > 3)})"
