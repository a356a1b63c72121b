"""A stage ends when the `dvc` that started it is gone.

If dvc alone is terminated or killed, the stages it started would go on: nobody waits for their
results, and the next run waits for their locks. So a stage watches its dvc and ends cleanly; what
it has finished stays in scratch.
"""

import os
import signal
import threading
import time
from pathlib import Path
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
    if dvc is not None:
        threading.Thread(target=_watch, args=(dvc,), name="watch dvc", daemon=True).start()


def find_dvc() -> psutil.Process | None:
    """The nearest dvc among the processes above this one."""
    try:
        return next(filter(_is_dvc, psutil.Process().parents()), None)
    except psutil.Error:
        return None


def _is_dvc(process: psutil.Process) -> bool:
    """Whether a process is `dvc ...`, `python .../dvc ...` or `python -m dvc ...`."""
    try:
        words = process.cmdline()[:3]
    except psutil.Error:
        return False
    return any(Path(word).name == "dvc" for word in words[:2]) or words[1:3] == ["-m", "dvc"]


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
