"""Partial work that survives: `<scratch>/<fingerprint>/` keeps the counts of every finished unit.

`units.log` has one line for each unit: a checksum, the unit's key, its counts. The checksum covers
the fingerprint as well, that is, everything the draws depend on. A line that is cut short, damaged,
or of another run fails its checksum and is dropped, so that its unit is drawn again. Of several
lines with one key, the last counts. Only the sampler that holds `lock` writes. `about.json` says
what the draws depend on.
"""

import base64
import errno
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from aces.console import warn
from aces.errors import InputError

LOG = "units.log"
# A machine that goes down loses the work of this time at most; a killed process loses none.
_SYNC_SECONDS = 2.0
_PROBE_TOLERANCE = 1e-4  # of the logits' scale: above the rounding of other threads and versions


class Shards:
    """The finished units of one fingerprint, which is the folder's name. Made by `open_shards`,
    which holds the lock.
    """

    def __init__(self, folder: Path):
        self.path, self._fingerprint = folder / LOG, folder.name
        self._lines = _repaired(self.path, self._fingerprint)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._synced = time.monotonic()

    def get(self, key: str, *, shape: tuple[int, int]) -> np.ndarray | None:
        """The counts, of the given shape, of a unit that an earlier run finished; None if there are
        none that can be read.
        """
        if key not in self._lines:
            return None
        offset, length = self._lines[key]
        return _table(os.pread(self._file, length, offset), shape=shape)

    def add(self, key: str, table: np.ndarray) -> None:
        """Keep a unit's counts. Once this returns, killing the process does not lose them."""
        line = _line(key, table, self._fingerprint)
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                self.sync()
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error.strerror}): make room and run again; what "
                "is finished is kept"
            ) from error

    def sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        os.close(self._file)


@contextmanager
def open_shards(folder: Path, *, about: dict, probe: list[float]) -> Iterator[Shards]:
    """The shards in `folder`, for this process alone.

    about: what the draws depend on, written beside them; probe: logits of the network, which must
    be the same each time.
    """
    _make(folder)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        warn(
            f"{folder} is in use by {_owner(folder)}, which makes the same draws: waiting for it "
            "to finish or to be ended; its work is kept either way",
        )
        lock.acquire()
    try:
        _write(folder / "owner", f"process {os.getpid()} on {os.uname().nodename}")
        _check_probe(folder / "about.json", about, probe)
        shards = Shards(folder)
        try:
            yield shards
            shards.sync()
        finally:
            shards.close()
    finally:
        lock.release()


def read_keys(folder: Path) -> list[str]:
    """The keys of the finished units, for a look from outside: no lock is taken, nothing is
    changed.
    """
    return list(_scan(folder / LOG, folder.name)[0])


def _repaired(path: Path, fingerprint: str) -> dict[str, tuple[int, int]]:
    """Where each unit's line is, after dropping the lines that are damaged."""
    lines, size = _scan(path, fingerprint)
    if size == sum(length for _, length in lines.values()):
        return lines
    temporary = path.with_suffix(".tmp")
    with open(path, "rb") as old, open(temporary, "wb") as new:
        for offset, length in lines.values():
            old.seek(offset)
            new.write(old.read(length))
        new.flush()
        os.fsync(new.fileno())
    os.replace(temporary, path)
    return _scan(path, fingerprint)[0]


def _scan(path: Path, fingerprint: str) -> tuple[dict[str, tuple[int, int]], int]:
    """(offset, length) of the sound lines by key, and the size of the file."""
    lines: dict[str, tuple[int, int]] = {}
    offset = 0
    if path.exists():
        with open(path, "rb") as file:
            for line in file:
                if (key := _sound_key(line, fingerprint)) is not None:
                    lines[key] = (offset, len(line))
                offset += len(line)
    return lines, offset


def _line(key: str, table: np.ndarray, fingerprint: str) -> bytes:
    assert table.min() >= 0 and table.max() < 2**31, "counts of a unit fit in 31 bits"
    packed = base64.b64encode(zlib.compress(table.astype("<i4").tobytes(), 1))
    rest = key.encode() + b" " + packed + b"\n"
    return _checksum(rest, fingerprint) + b" " + rest


def _sound_key(line: bytes, fingerprint: str) -> str | None:
    """The key of a line that is whole and of this run; None for any other line."""
    checksum, _, rest = line.partition(b" ")
    if not rest.endswith(b"\n") or checksum != _checksum(rest, fingerprint):
        return None
    return rest.partition(b" ")[0].decode(errors="replace")


def _table(line: bytes, *, shape: tuple[int, int]) -> np.ndarray | None:
    """The counts in a line; None if they do not have the shape."""
    size = 4 * shape[0] * shape[1]
    try:
        packed = base64.b64decode(line.split()[2], validate=True)
        data = zlib.decompressobj().decompress(packed, size + 1)
    except (IndexError, ValueError, zlib.error):
        return None
    if len(data) != size:
        return None
    return np.frombuffer(data, dtype="<i4").reshape(shape).astype(np.int64)


def _checksum(data: bytes, fingerprint: str) -> bytes:
    return hashlib.sha256(fingerprint.encode() + b"\n" + data).hexdigest()[:32].encode()


def _check_probe(path: Path, about: dict, probe: list[float]) -> None:
    """Two networks may be described alike and compute different things; their draws must not be
    mixed.
    """
    known = _known_probe(path, about)
    if known is None or len(known) != len(probe):
        _write(path, json.dumps(about | {"probe": probe}, sort_keys=True))
        return
    scale = np.abs(np.nan_to_num(probe, posinf=0.0, neginf=0.0)).max(initial=1e-3)
    tolerance = _PROBE_TOLERANCE * scale
    if not np.allclose(known, probe, rtol=0, atol=tolerance, equal_nan=True):
        raise InputError(
            f"{path.parent} has draws of a network that looks the same but computes something "
            f"else: `aces scratch --remove {path.parent.name[:8]}` removes them"
        )


def _known_probe(path: Path, about: dict) -> list[float] | None:
    """The probe in a description of these draws; None if it is missing, damaged or of others."""
    try:
        found = json.loads(path.read_text())
        known = [float(value) for value in found.pop("probe")]
        return known if found == json.loads(json.dumps(about)) else None
    except Exception:  # each kind of damage raises another one
        return None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the scratch folder {folder} cannot be made ({error.strerror}): "
            "is its parent writable?"
        ) from None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): make room and run again"
        ) from None


def _owner(folder: Path) -> str:
    try:
        return (folder / "owner").read_text()
    except OSError:
        return "another sampler"
