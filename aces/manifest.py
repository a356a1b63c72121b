"""A manifest ties files together: the digests of what a step read and wrote.

Counts, core predictions, images and networks are useful only as a set. Each may be sound by itself,
and still belong to another run. A step that uses some of them checks the manifest of the step that
made them.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from aces.errors import InputError
from aces.files import digest, write_json


def write_manifest(path: str | Path, files: Iterable[str | Path]) -> None:
    """Write the digest of every file."""
    write_json(path, {str(file): digest(file) for file in sorted(map(str, files))})


def check_manifest(path: str | Path, files: Iterable[str | Path], *, remedy: str) -> None:
    """Raise InputError unless every file is the one that the manifest names."""
    try:
        known = json.loads(Path(path).read_text(encoding="utf-8"))
        sound = isinstance(known, dict)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {remedy}") from None
    except (OSError, ValueError, RecursionError):
        sound = False
    if not sound:
        raise InputError(f"{path} is not a list of files and digests: {remedy}")
    for file in map(str, files):
        if not Path(file).is_file():
            raise InputError(f"{file} does not exist: {remedy}")
        if known.get(file) != digest(file):
            raise InputError(f"{file} is not the file that {path} names: {remedy}")
