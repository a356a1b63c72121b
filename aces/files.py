"""Files: written in one step, read with a check, named by their digest."""

import hashlib
import json
import os
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from aces.errors import InputError, one_line

MOST_BYTES = 64 * 2**30  # of one npz file after unpacking
MOST_EXPANSION = 1100  # deflate packs at most 1032 to 1; more is a damaged or malicious directory


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` when the block ends well.

    No reader ever sees half a file, and a kill leaves the old one. The temporary file names the
    machine and the process that write it, so that what a killed process left is known and removed
    by the next one that writes `path`. It keeps the suffix of `path`, because some writers choose
    the format, or append a suffix, by it.
    """
    path = Path(path)
    make_folder(path.parent)
    _remove_unfinished(path)
    temporary = path.with_name(f"{_unfinished(path)}{os.getpid()}{path.suffix}")
    try:
        _begin(temporary)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: str | Path) -> Path:
    """The folder, with all above it, made if it is missing; InputError where that is impossible."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # although its parents are there: it lies in /proc
        raise _no_place(path, error) from None
    return path


def _begin(temporary: Path) -> None:
    try:
        temporary.touch()
    except FileNotFoundError as error:  # although its folder is there: it is /proc
        raise _no_place(temporary.parent, error) from None


def _no_place(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder}: nothing can be written there ({error.strerror}): choose another place"
    )


def _unfinished(path: Path) -> str:
    """How the name of every temporary file for `path` begins that is written on this machine."""
    return f".{path.stem}.{socket.gethostname()}-"


def _remove_unfinished(path: Path) -> None:
    """Remove the temporary files for `path` whose process on this machine is gone."""
    start = _unfinished(path)
    for name in os.listdir(path.parent):
        process = name.removeprefix(start).removesuffix(path.suffix)
        if name == f"{start}{process}{path.suffix}" and process.isdecimal():
            if not _runs(int(process)):
                (path.parent / name).unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)  # asks, and sends nothing
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return True
    return True


def write_bytes(path: str | Path, data: bytes) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: str | Path, content: object) -> None:
    """The same content gives the same bytes; keys stay in their order."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: str | Path, *, remedy: str) -> dict:
    """The object in a JSON file that `write_json` wrote; the `remedy` is for the user."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({one_line(error)}): {remedy}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object: {remedy}")
    return content


def write_npz(path: str | Path, /, *, compressed: bool = True, **arrays: np.ndarray) -> None:
    """The same arrays give the same bytes."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]


def read_npz(path: str | Path, *, what: str, remedy: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file. `what` it should be and the `remedy` are words for the user.

    Nothing is unpickled, and a file that claims to unpack to far more than it can hold is refused
    before any memory is taken.
    """
    path = Path(path)
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if odd := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{odd[0]} is no array")
        return arrays
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {remedy}") from None
    except (Exception, MemoryError) as error:  # each kind of damage raises another exception
        raise InputError(f"{path} is not {what} ({one_line(error)}): {remedy}") from None


def _check_sizes(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MOST_BYTES or size > MOST_EXPANSION * max(path.stat().st_size, 1):
        raise ValueError(f"it claims to unpack to {size:,} bytes")


def digest(path: str | Path) -> str:
    """sha256 of a file (hex)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(*parts: object) -> str:
    """sha256 (hex) of values: arrays and bytes by their content, everything else by its repr."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype}{part.shape};".encode())
            state.update(np.ascontiguousarray(part).data)
        elif isinstance(part, bytes):
            state.update(f"{len(part)} bytes;".encode())
            state.update(part)
        else:
            state.update(f"{part!r};".encode())
    return state.hexdigest()
