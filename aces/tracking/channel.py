"""The stage's end of the connection to its writer: commands in order, a limit to all waiting."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import aces
from aces.tracking.store import silent

SECONDS = 20.0  # a stage waits this long for its store, in total; and the writer for one answer
SETUP_SECONDS = 120.0  # to start Python, import MLflow and create a local database
MOST_FAILURES = 3  # a stage stops tracking after this many errors


class Channel:
    """Sends commands to a writer process from a thread of its own, so that the stage need not wait.

    The first command that fails is reported by `complain`. After one that gets no answer in time,
    after a failed start and after several failures, the writer is ended and nothing more is sent.
    """

    def __init__(self, complain: Callable[[str], None]):
        self._complain = complain
        self._commands: queue.SimpleQueue = queue.SimpleQueue()
        self._patience = SECONDS
        self._ready = threading.Event()
        self._failures = 0
        self._counting = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    def post(
        self, command: str, *, vital: bool = False, extra: float = 0.0, **arguments: Any
    ) -> Future:
        """Send a command, without waiting. `vital`: nothing more can be tracked without it."""
        answer: Future = Future()
        self._commands.put((command, arguments, vital, SECONDS + extra, answer))
        return answer

    def wait(self, answer: Future, *, extra: float = 0.0) -> Any:
        """The answer to a command, or None. All waits of a stage share one allowance of time.

        It begins when the writer is set up, which involves no server and has a limit of its own.
        extra: time that this answer may take beyond the allowance, such as for a large upload.
        """
        self._ready.wait()
        start = time.monotonic()
        try:
            return answer.result(timeout=self._patience + extra)
        except NotInTime:
            self._give_up(silent(SECONDS + extra))
            return None
        finally:
            used = time.monotonic() - start - extra
            self._patience = max(0.0, self._patience - max(0.0, used))

    def close(self) -> None:
        """End the writer. Call it when the last command has been waited for."""
        self._commands.put(None)
        self._thread.join(timeout=5)
        self._end()

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        try:
            ours, theirs = Pipe()
            self._process = _start(theirs.fileno())
            theirs.close()
            self._exchange(ours, "connect", {}, True, SETUP_SECONDS)
            self._ready.set()
            while (entry := self._commands.get()) is not None:
                command, arguments, vital, limit, answer = entry
                answer.set_result(self._exchange(ours, command, arguments, vital, limit))
            ours.close()
        except Exception as error:  # a writer that ended, a fork that failed: never the stage's
            self._give_up(f"the process that writes to MLflow failed ({type(error).__name__})")
            self._ready.set()
            self._drain()

    def _exchange(
        self, connection: Any, command: str, arguments: dict, vital: bool, limit: float
    ) -> Any:
        """Send one command and return its result; None if it failed or tracking was given up."""
        if self._failures >= MOST_FAILURES:
            return None
        connection.send((command, arguments))
        if not connection.poll(limit):
            self._give_up(silent(limit))
            return None
        done, value = connection.recv()
        if done:
            return value
        if vital:
            self._give_up(value)
        else:
            self._fail(value)
        return None

    def _fail(self, why: str) -> None:
        if self._count(1) == 0:
            self._complain(why)
        if self._failures >= MOST_FAILURES:
            self._end()

    def _give_up(self, why: str) -> None:
        if self._count(MOST_FAILURES) == 0:
            self._complain(why)
        self._end(at_once=True)

    def _count(self, failures: int) -> int:
        """Add failures; how many there were before. The stage and the thread may both find one."""
        with self._counting:
            before = self._failures
            self._failures += failures
        return before

    def _drain(self) -> None:
        """Nobody answers any more: let those who wait go on."""
        while (entry := self._commands.get()) is not None:
            entry[-1].set_result(None)

    def _end(self, *, at_once: bool = False) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(timeout=0 if at_once else 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(descriptor: int) -> subprocess.Popen:
    """The writer: with this library's code, its own session, and none of the stage's files."""
    library = str(Path(aces.__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return subprocess.Popen(
        [sys.executable, "-m", "aces.tracking.writer", str(descriptor), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[descriptor],
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": f"{library}{os.pathsep}{known}" if known else library},
    )
