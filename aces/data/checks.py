"""Mistakes in a dataset, each said in one line before any work starts."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from aces import params
from aces.console import warn
from aces.data.splits import Part, Splits
from aces.errors import InputError

NAMED = 2  # pairs of equal images that are named in the warning


def check_splits(splits: Splits, dataset: params.Dataset) -> None:
    """InputError unless there is something to train on and to evaluate."""
    name, classes = dataset.name, splits.classes
    if not len(splits.test):
        raise InputError(f"dataset {name} has no test images: nothing could be evaluated")
    if len(classes) < 2:
        raise InputError(
            f"dataset {name} has {len(classes)} class{_named(classes)}: expected at least 2; sort "
            "the images into one folder for each class"
        )
    for part, title in ((splits.train, "training"), (splits.test, "test")):
        _check_part(part, title, name=name, classes=classes)
    _check_same_kind(splits, name)
    if len(splits.test) < dataset.stride:
        raise InputError(
            f"dataset.stride={dataset.stride}: there are only {len(splits.test)} test images, of "
            "which one would be evaluated; set dataset.stride to 1, or to a few"
        )


def _named(classes: list[str]) -> str:
    return f" ({', '.join(classes)})" if classes else "es"


def _check_part(part: Part, title: str, *, name: str, classes: list[str]) -> None:
    label = np.asarray(part.label)
    if label.shape != (len(part),) or label.dtype.kind not in "iu":
        raise InputError(
            f"dataset {name}: {len(part)} {title} images, and labels of shape {label.shape} and "
            f"type {label.dtype}: expected one whole number for each image"
        )
    if len(part) and not 0 <= int(label.min()) <= int(label.max()) < len(classes):
        raise InputError(
            f"dataset {name}: {title} labels from {label.min()} to {label.max()}: expected 0 to "
            f"{len(classes) - 1}, for {len(classes)} classes"
        )
    if isinstance(part.image, np.ndarray):
        shape, kind = part.image.shape, part.image.dtype
        if kind != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape[1:]:
            raise InputError(
                f"dataset {name}: {title} images are {kind} of shape {shape}: expected uint8 of "
                "shape (N, height, width, 1 or 3)"
            )


def _check_same_kind(splits: Splits, name: str) -> None:
    train, test = splits.train.image, splits.test.image
    if not len(train):
        return
    if isinstance(train, np.ndarray) and isinstance(test, np.ndarray):
        if train.shape[1:] != test.shape[1:]:
            raise InputError(
                f"dataset {name}: training images of shape {train.shape[1:]}, test images of shape "
                f"{test.shape[1:]}: expected the same"
            )
    elif isinstance(train, np.ndarray) or isinstance(test, np.ndarray):
        raise InputError(
            f"dataset {name}: one of training and test images are files, the others an array: "
            "expected the same of both"
        )


def warn_of_untested(splits: Splits) -> None:
    """Warn of classes that are trained and have no test image."""
    trained, tested = (set(np.unique(part.label).tolist()) for part in (splits.train, splits.test))
    missing = [splits.classes[number] for number in sorted(trained - tested)]
    if missing:
        named = f"{', '.join(map(repr, missing[:3]))}{', ...' * (len(missing) > 3)}"
        warn(
            f"warning: {len(missing)} of {len(splits.classes)} classes have training images and no "
            f"test images ({named}): nothing in the results is about them; add test images, or "
            "remove the classes"
        )


def warn_of_duplicates(splits: Splits) -> int:
    """Warn of test images that are training images, byte by byte; how many there are."""
    pairs = list(_duplicates(splits))
    if pairs:
        examples = "; ".join(f"{test} is {train}" for test, train in pairs[:NAMED])
        warn(
            f"warning: {len(pairs)} of {len(splits.test)} test images are also training images, "
            f"byte by byte ({examples}): their accuracy says nothing about new images; remove them "
            "from one side"
        )
    return len(pairs)


def _duplicates(splits: Splits) -> Iterable[tuple[object, object]]:
    """(test, train) pairs: paths, or positions in the arrays."""
    train, test = splits.train.image, splits.test.image
    if isinstance(train, np.ndarray) and isinstance(test, np.ndarray):
        yield from _equal(enumerate(map(_row_digest, train)), enumerate(map(_row_digest, test)))
    elif not isinstance(train, np.ndarray) and not isinstance(test, np.ndarray):
        # Only files of equal size can have equal bytes, so few need to be read.
        size = {path: os.path.getsize(path) for path in (*train, *test)}
        common = {size[path] for path in train} & {size[path] for path in test}
        yield from _equal(
            ((path, _file_digest(path)) for path in train if size[path] in common),
            ((path, _file_digest(path)) for path in test if size[path] in common),
        )


def _equal(train: Iterable, test: Iterable) -> Iterable[tuple[object, object]]:
    known = {digest: place for place, digest in train}
    for place, digest in test:
        if digest in known:
            yield place, known[digest]


def _row_digest(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def _file_digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
