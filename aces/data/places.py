"""Where a dataset's files lie on this machine.

A folder is written down as text that means the same on another machine: `$ACES_IMAGENET` and
`$ACES_DATA` (with a path below them) stand for folders of the user's choice, any other text is a
path, relative to the project.
"""

import os
from pathlib import Path

from aces import paths
from aces.errors import InputError

IMAGENET = "$ACES_IMAGENET"
DATASETS = "$ACES_DATA"


def folder(text: str) -> Path:
    """The folder that `text` stands for here; it need not exist, unless it is ImageNet's."""
    if text == IMAGENET:
        return imagenet()
    if text.startswith(DATASETS):
        return paths.datasets().resolve() / text.removeprefix(DATASETS).lstrip("/")
    return (paths.root() / Path(text).expanduser()).resolve()


def imagenet() -> Path:
    """Where the user's copy of ImageNet is."""
    path = Path(os.environ.get("ACES_IMAGENET", paths.datasets() / "imagenet"))
    if not path.is_dir():
        raise InputError(
            f"ImageNet is not at {path}: set ACES_IMAGENET to the folder that holds "
            "val/<wnid>/*.JPEG and train/<wnid>/*.JPEG"
        )
    return path.resolve()


def describe(path: Path) -> str:
    """The text that `folder` turns into this path again, if possible also on another machine."""
    path = path.resolve()
    for base, text in ((paths.datasets().resolve(), DATASETS), (paths.root().resolve(), "")):
        if path == base or base in path.parents:
            below = path.relative_to(base).as_posix()
            return f"{text}/{below}" if text else below
    return str(path)
