"""Copies of something that only one thread at a time may run."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Copies(Generic[T]):
    """Copies of something, each of which is run by one thread at a time: it may keep values while it
    runs, which a second thread would replace.
    """

    def __init__(self, make: Callable[[], T]):
        self._make = make
        self._free: queue.SimpleQueue[T] = queue.SimpleQueue()

    @contextlib.contextmanager
    def one(self) -> Iterator[T]:
        """A copy that nobody else runs."""
        try:
            found = self._free.get_nowait()
        except queue.Empty:
            found = self._make()
        try:
            yield found
        finally:
            self._free.put(found)
