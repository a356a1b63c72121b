"""A manifest ties files together: the digests of what a step read and wrote.

Counts, core predictions, images, networks and results are useful only as a set. Each may be sound
by itself, and still belong to another run. A step that uses some of them checks the manifest of the
step that made them.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from aces.errors import InputError
from aces.files import digest, read_json, write_json


def write_manifest(path: str | Path, files: Iterable[str | Path]) -> None:
    """Write the digest of every file."""
    write_json(path, {str(file): digest(file) for file in sorted(map(str, files))})


def check_manifest(
    path: str | Path,
    files: Iterable[str | Path],
    *,
    remedy: str,
    find: Callable[[str], Path | None] = Path,
) -> None:
    """Raise InputError unless every file is the one that the manifest names.

    files: as the manifest names them; find: where such a file lies now, None if it is missing.
    """
    known = read_json(path, remedy=remedy)
    for name in map(str, files):
        file = find(name)
        if file is None or not file.is_file():
            raise InputError(f"{name} does not exist: {remedy}")
        if known.get(name) != digest(file):
            raise InputError(f"{name} is not the file that {path} names: {remedy}")
