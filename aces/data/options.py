"""The settings of a dataset, `dataset.settings` in params.yaml, and where it lies."""

from pathlib import Path
from typing import Any

from aces import params
from aces.data import places
from aces.errors import InputError


def options(dataset: params.Dataset, **defaults: Any) -> dict[str, Any]:
    """The settings with their defaults; InputError for one that the dataset does not know."""
    for name, value in dataset.settings.items():
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            raise InputError(
                f"dataset.settings.{name}={value!r} is unknown to {dataset.name}: expected {known}"
            )
    return defaults | dataset.settings


def path_of(dataset: params.Dataset) -> Path:
    """The file or folder `dataset.path`."""
    if dataset.path is None:
        raise InputError(
            f"dataset.path is not set: {dataset.name} needs the path of its images, relative to "
            "the project or absolute"
        )
    path = places.folder(dataset.path)
    if not path.exists():
        raise InputError(
            f"dataset.path={dataset.path!r} does not exist (looked for {path}): correct it, or put "
            "the images there"
        )
    return path
