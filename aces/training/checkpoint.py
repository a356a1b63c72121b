"""The state of a training, written after each epoch, so that a killed run goes on where it was.

The last state stays, without the optimiser: a stage that dies between its training and DVC's taking
over the network, or a second experiment that needs the same network, finds it. `aces scratch` lists
and removes states.
"""

import hashlib
import inspect
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import numpy as np
import torch
from torch import nn

from aces.console import warn

FORMAT = 1


class Checkpoint:
    """One file in `folder`, named by a fingerprint of everything the training depends on."""

    def __init__(self, folder: Path, fingerprint: str):
        self.path = Path(folder) / f"{fingerprint}.pt"
        self._lock = self.path.with_suffix(".lock")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held by the one process that trains this: an orphan of a killed run may still be at it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self._lock)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            warn(
                f"{self.path.name} is being trained by another process: waiting for it",
            )
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def read(self) -> dict | None:
        if not self.path.exists():
            return None
        return torch.load(self.path, map_location="cpu", weights_only=True)

    def write(self, state: dict) -> None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        temporary = self.path.with_suffix(f".{os.getpid()}")
        with open(temporary, "wb") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


def fingerprint(*parts: object) -> str:
    """sha256 (hex) of the parts: arrays by their bytes, everything else by its repr."""
    digest = hashlib.sha256(f"training {FORMAT};".encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape};".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()


def code_digest(loss: Callable, network: nn.Module) -> str | None:
    """sha256 (hex) of the code that a trained network depends on: this package, the files of the
    loss and of the network's layers, torch's version. None where some of it is in no file, and so
    nothing is known of it.
    """
    try:
        files = {
            Path(inspect.getsourcefile(it))
            for it in (loss, *{type(layer) for layer in network.modules()})
        }
        files |= set(Path(__file__).parent.glob("*.py"))
        return fingerprint(torch.__version__, *sorted(path.read_bytes() for path in files))
    except (TypeError, OSError):
        return None
