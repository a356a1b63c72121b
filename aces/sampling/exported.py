"""Exported networks, kept between processes: exporting one takes longer than all else at the start.

Only networks that `aces.networks.build` made are kept, under their identity: weights, attributes,
the code of their classes, and the versions of the libraries. The logits of what is read are
compared with the network's own before it is used, as they are after an export. A file ends with the
sha256 of its content, so a damaged one is noticed and replaced.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from torch import nn

from aces import networks, paths
from aces.files import digest, digest_of, write_bytes

MOST_FILES = 40  # the oldest are removed
EXPORTERS = ("torch", "onnx", "onnxscript")
_CHECKSUM = hashlib.sha256().digest_size


def kept(
    parts: Sequence[nn.Module],
    shape: tuple[int, ...],
    export: Callable[[], bytes],
) -> tuple[bytes, Callable[[], None]]:
    """The exported network, from its file or by `export`, and what to call if it turns out wrong.

    parts: the networks that are exported together; shape: (C, H, W) of the images.
    """
    if not all(getattr(part, "recipe", None) for part in parts):
        return export(), lambda: None
    file = folder() / f"{_key(parts, shape)}.onnx"
    content = _read(file)
    if content is None:
        content = export()
        with contextlib.suppress(OSError):  # a place that cannot be written costs only time
            write_bytes(file, content + hashlib.sha256(content).digest())
            _remove_old(file.parent)
    return content, lambda: file.unlink(missing_ok=True)


def _read(file: Path) -> bytes | None:
    """The content of a kept file; None where it is missing or damaged."""
    try:
        found = file.read_bytes()
        os.utime(file)  # recently used files are kept
    except OSError:
        return None
    content, checksum = found[:-_CHECKSUM], found[-_CHECKSUM:]
    return content if hashlib.sha256(content).digest() == checksum else None


def folder() -> Path:
    """In a project beside the other partial work, else in the user's cache."""
    root = paths.root()
    if (root / ".dvc").is_dir():
        return root / "scratch" / "exported"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aces" / "exported"


def _key(parts: Sequence[nn.Module], shape: tuple[int, ...]) -> str:
    return digest_of(
        [networks.identity(part) for part in parts],
        shape,
        digest(__file__),
        [_version(name) for name in EXPORTERS],
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _remove_old(place: Path) -> None:
    files = sorted(place.glob("*.onnx"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)
