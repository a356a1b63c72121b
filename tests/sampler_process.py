"""Samples in forked processes, for the tests that kill them or measure their memory. Called as a
script:

    python sampler_process.py kills FOLDER      # killed at random moments until it is done
    python sampler_process.py memory FOLDER     # peak memory of runs of different n

It prints JSON. The network is prepared before forking, so that a kill hits the sampling and not the
start of Python.
"""

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import odd_networks
from aces.rule.counts import write_counts
from aces.sampling import count, units
from sampled import sample

NETWORK = odd_networks.convolutional()
SETTINGS = dict(
    sigma=0.25,
    num_classes=odd_networks.CLASSES,
    n0=100,
    n=8000,
    n_predict=1000,
    seed=0,
    chunk=100,
    device="cpu",
    workers=2,
)
IMAGES = 12
UNITS = IMAGES * (1 + 80 + 10)  # one chunk in each


def draw(folder: Path | None, **changes):
    """In many small units, so that kills hit some."""
    with mock.patch.object(units, "SHARE", 10**9):
        return sample(
            NETWORK,
            odd_networks.images(IMAGES),
            **SETTINGS | changes,
            scratch=folder and folder / "scratch",
        )


def forked(work) -> int:
    """The process id of a child that does `work` and ends."""
    if child := os.fork():
        return child
    try:
        work()
    finally:
        os._exit(0 if sys.exc_info()[0] is None else 1)


def kills(
    folder: Path,
    number: int = 15,
    *,
    seed: int = 0,
    patience: float = 60.0,
    around: Callable[[int], AbstractContextManager] = nullcontext,
) -> dict:
    """Kill a sampler so often, and then let it end. around: given the number of kills so far, what
    the sampler works in.
    """
    started = folder / "started"  # a byte for each unit that a worker starts

    def work():
        descriptor, real = (
            os.open(started, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            count.Counter._count,
        )

        def counting(self, job, *arguments):
            os.write(descriptor, b".")
            return real(self, job, *arguments)

        count.Counter._count = counting
        with around(killed):
            counts = draw(folder)
        write_counts(folder / "killed.npz", counts)

    moments, killed, kept = random.Random(seed), 0, [0]
    while True:
        child = forked(work)
        if killed < number:
            wait_for(started, moments.randint(1, 60), patience)
            time.sleep(moments.uniform(0.0, 0.005))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status):
            assert status == 0
            break
        killed += 1
        logs = list((folder / "scratch").glob("*/units.log"))
        kept.append(logs[0].read_bytes().count(b"\n") if logs else 0)
    return {"kills": killed, "kept": kept, "started": started.stat().st_size, "units": UNITS}


def wait_for(started: Path, more: int, patience: float) -> None:
    """Until workers have started so many more units."""

    def size():
        return started.stat().st_size if started.exists() else 0

    target, end = size() + more, time.monotonic() + patience
    while size() < target and time.monotonic() < end:
        time.sleep(0.001)


def memory(folder: Path) -> dict:
    peaks = {}
    for n in (1_000, 100_000):

        def work():
            draw(folder, n0=100, n=n, n_predict=100, chunk=1000, workers=2)
            (folder / "peak").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))

        assert os.waitpid(forked(work), 0)[1] == 0
        peaks[n] = int((folder / "peak").read_text())
    return peaks


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    write_counts(
        folder / "prepared.npz",
        sample(NETWORK, odd_networks.images(1), **SETTINGS | dict(n0=1, n=1, n_predict=1)),
    )
    print(json.dumps({"kills": kills, "memory": memory}[sys.argv[1]](folder)))
