"""A stage ends when the `dvc` that started it is gone.

If dvc alone is terminated or killed, the stages it started would go on: nobody waits for their
results, and the next run waits for their locks. So a stage watches its dvc and ends cleanly; what
it has finished stays in scratch.
"""

import os
import signal
import threading
import time
from types import FrameType

import psutil

from aces.console import warn

LOOK_SECONDS = 1.0
GRACE_SECONDS = 20.0  # to end cleanly; then the process ends at once
INTERRUPTED = 130  # exit status, as after Ctrl-C


def end_with_dvc() -> None:
    """End this process, as if by Ctrl-C, when the dvc above it is gone or it gets SIGTERM.

    Call it from the main thread. Without a dvc above, only SIGTERM is taken care of.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    dvc = find_dvc()
    if dvc is None:
        return
    if _session_of(dvc) != os.getsid(0):
        # dvc starts a stage in its own session. Another one means that dvc ended while this
        # process still loaded its libraries, and that init has adopted it.
        warn("dvc, which started this stage, is gone: the stage ends too")
        raise KeyboardInterrupt
    threading.Thread(target=_watch, args=(dvc,), name="watch dvc", daemon=True).start()


def find_dvc() -> psutil.Process | None:
    """The process that runs dvc for this stage, whatever its name: the nearest above without the
    variable that dvc sets for what it starts. None where that is not set.
    """
    stage = os.environ.get("DVC_STAGE")
    above = psutil.Process().parents() if stage else []
    return next((process for process in above if _stage_of(process) != stage), None)


def _stage_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("DVC_STAGE")
    except psutil.Error:  # it is another user's, or gone
        return None


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:  # it is gone
        return None


def _watch(dvc: psutil.Process) -> None:
    while _alive(dvc):
        time.sleep(LOOK_SECONDS)
    warn(f"dvc ({dvc.pid}), which started this stage, is gone: the stage ends too")
    # SIGTERM and not SIGINT, which a shell tells its background processes to ignore.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(INTERRUPTED)  # the main thread does not return from a library


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
