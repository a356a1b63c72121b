"""Files by path or address, checked by their SHA-256."""

import hashlib
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from aces import files, paths
from aces.console import progress
from aces.errors import InputError, one_line

MOST_BYTES = 8 * 2**30  # of a file that is fetched
SECONDS = 30  # without an answer
_STEP = 1 << 20


def obtain(source: str | Path, *, sha256: str | None = None) -> Path:
    """The local path of a file, fetched if `source` is an address (https://...).

    sha256: the digest the file must have. A file that was fetched before is taken again if it has
    that digest.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise InputError(f"sha256={sha256!r}: expected 64 hexadecimal digits")
    address = urllib.parse.urlsplit(str(source))
    if address.scheme not in ("http", "https"):
        if "://" in str(source):
            raise InputError(f"{source}: expected a path, or an address that begins with https://")
        return checked(Path(source), sha256)
    if address.scheme == "http" and sha256 is None:
        raise InputError(
            f"{source} comes over an open line: give its digest (--sha256), or an https address"
        )
    name = Path(urllib.parse.unquote(address.path)).name or "checkpoint"
    # Two addresses may end in the same name.
    place = hashlib.sha256(str(source).encode()).hexdigest()[:12]
    target = paths.scratch() / "downloads" / place / name
    if sha256 is None or not target.is_file() or files.digest(target) != sha256.lower():
        _fetch(str(source), target)
    return checked(target, sha256)


def checked(path: Path, sha256: str | None, *, where: str = "") -> Path:
    """The path, if it is a file with this digest; `where` says where to get it, for the error."""
    hint = f": get it from {where}" if where else ": give the path of a file"
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"checkpoint {path} {what}{hint}")
    if sha256 is not None and (found := files.digest(path)) != sha256.lower():
        raise InputError(
            f"checkpoint {path} has the SHA-256 {found}, expected {sha256.lower()}: it is damaged, "
            "or "
            f"another file{hint if where else '; get it again'}"
        )
    return path


def _fetch(address: str, target: Path) -> None:
    try:
        with (
            urllib.request.urlopen(address, timeout=SECONDS) as answer,
            files.atomic(target) as temporary,
            temporary.open("wb") as file,
        ):
            total = int(answer.headers.get("Content-Length") or 0)
            if total > MOST_BYTES:
                raise InputError(f"{address} has {total:,} bytes: more than {MOST_BYTES:,}")
            with progress(f"fetching {target.name}", total, "bytes") as bar:
                _copy(answer, file, bar, address)
    except (OSError, ValueError) as error:  # urllib's errors are OSErrors
        if isinstance(error, InputError) or getattr(error, "filename", None) == os.fspath(target):
            raise
        raise InputError(
            f"{address} cannot be fetched ({one_line(error)}): fetch it elsewhere, and give the "
            "path "
            "of the file"
        ) from None


def _copy(answer, file, bar, address: str) -> None:
    size = 0
    while part := answer.read(_STEP):
        size += len(part)
        if size > MOST_BYTES:
            raise InputError(f"{address} does not end after {MOST_BYTES:,} bytes")
        file.write(part)
        bar.advance(len(part))
