"""The state of a training, written after each epoch, so that a killed run goes on where it was.

The last state stays, without the optimiser: a stage that dies between its training and DVC's taking
over the network, or a second experiment that needs the same network, finds it. `aces scratch` lists
and removes states.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import torch
from torch import nn

from aces import files
from aces.console import warn
from aces.errors import one_line
from aces.extension import source_digest

FORMAT = 2
_DIGEST = hashlib.sha256().digest_size
# Files of this package that no trained network depends on.
_WITHOUT_INFLUENCE = {"__init__.py", "concerns.py", "curve.py", "selection.py"}

State = dict[str, Any]


class Checkpoint:
    """One file in `folder`, named by the key of everything the training depends on.

    The file holds what `torch.save` wrote, then a sha256 of the key and of those bytes. A file that
    is damaged, or that belongs to another key, counts as absent: the training starts again, and one
    line says so. Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None, key: str):
        self.key = key
        self.path = None if folder is None else Path(folder) / f"{key}.pt"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held by the one process that trains this: an orphan of a killed run may be at it."""
        if self.path is None:
            yield
            return
        files.make_folder(self.path.parent)
        lock = filelock.FileLock(self.path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            warn(f"{self.path.name} is being trained by another process: waiting for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def read(self) -> State | None:
        """The state that was written last; None if there is none or if it is damaged."""
        if self.path is None or not self.path.exists():
            return None
        try:
            data = self.path.read_bytes()
            content, digest = data[:-_DIGEST], data[-_DIGEST:]
            if digest != self._digest(content):
                raise ValueError("its checksum is wrong")
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # each kind of damage raises another exception
            warn(
                f"{self.path} is not a usable training state ({one_line(error)}): "
                "this training starts from the beginning"
            )
            return None

    def write(self, state: State) -> None:
        if self.path is None:
            return
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        files.write_bytes(self.path, content + self._digest(content))

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self.key.encode() + content).digest()


def training_key(*parts: object) -> str:
    """The key of a training: sha256 (hex) of everything its result depends on but the code."""
    return files.digest_of("training", FORMAT, *parts)


def code_digest(loss: Callable[..., object], network: nn.Module) -> str | None:
    """sha256 (hex) of the code that a trained network depends on: this package, the files of the
    loss and of the network's layers, torch's version. None where some of it is in no file, so that
    nobody can say whether it changed.
    """
    layers = {type(layer) for layer in network.modules()}
    theirs = source_digest(loss, *layers)
    if theirs is None:
        return None
    ours = sorted(Path(__file__).parent.glob("*.py"))
    return files.digest_of(
        torch.__version__,
        theirs,
        *(path.read_bytes() for path in ours if path.name not in _WITHOUT_INFLUENCE),
    )
