"""The process that writes to MLflow on behalf of one stage.

    python -m aces.tracking.writer FD PID    # its end of the connection, and the stage

A process of its own, for three reasons: a call that hangs in a library can be ended; MLflow's
import of several seconds happens beside the stage's work; and a stage that is killed leaves someone
who marks its run as KILLED. It takes commands from a connection and answers each of them.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from aces import paths
from aces.tracking.recorder import Recorder
from aces.tracking.store import reason

LAST_SECONDS = 20.0  # this process ends at the latest so long after its stage
LOOK_SECONDS = 0.5


def main(descriptor: int, stage: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the stage, which says how it ended
    os.chdir(paths.root())  # a temporary workspace may be removed while this process still writes
    # The stage is named: it may have been killed before this process could ask for its parent.
    threading.Thread(target=_outlive, args=(stage,), daemon=True).start()
    # Children of the stage may still hold its connection open when it is gone.
    serve(Connection(descriptor), stage_is_gone=lambda: os.getppid() != stage)
    os._exit(0)  # MLflow's thread pools would be waited for


def serve(connection: Connection, *, stage_is_gone: Callable[[], bool]) -> None:
    """Answer commands until the stage ends; a run that it left open was killed."""
    recorder = Recorder()
    while (message := _receive(connection, stage_is_gone)) is not None:
        command, arguments = message
        try:
            answer = (True, getattr(recorder, command)(**arguments))
        except BaseException as error:  # whatever MLflow, its database or its server do
            answer = (False, reason(error))
        try:
            connection.send(answer)
        except OSError:
            break
    with contextlib.suppress(Exception):  # there is nobody left to be told
        recorder.abandon()


def _receive(connection: Connection, stage_is_gone: Callable[[], bool]) -> tuple[str, dict] | None:
    """The next command; None when the stage is gone or wants no more."""
    try:
        while not connection.poll(LOOK_SECONDS):
            if stage_is_gone():
                return None
        return connection.recv()
    except (EOFError, OSError):
        return None


def _outlive(stage: int) -> None:
    """End this process, even in the middle of a call, some time after its stage has gone."""
    while os.getppid() == stage:
        time.sleep(LOOK_SECONDS)
    time.sleep(LAST_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
