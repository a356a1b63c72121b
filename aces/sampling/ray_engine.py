"""The engine for clusters: each unit of draws is a Ray task, its result is counts.

It joins the cluster that RAY_ADDRESS names, or starts Ray on this machine. A task whose worker is
lost runs again; the driver keeps the shards, so a driver that dies goes on from them. Every node
needs the driver's environment, and its kind of GPU if GPUs are used: a node that would run the
network in another way refuses, since its counts would differ.
"""

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from aces.errors import InputError
from aces.sampling.batches import Job
from aces.sampling.count import Counter

_RETRIES = 20  # a task whose worker was lost is started again so often


class RayEngine:
    """Counts jobs on the CPUs or GPUs of a Ray cluster. As a context, it ends the Ray that it
    started.
    """

    def __init__(
        self, counter: Counter, devices: list[torch.device], *, workers: int | None = None
    ):
        self._ray = _import_ray()
        self._counter, self._device, self._workers = counter, devices[0].type, workers
        self._started = False

    def __enter__(self) -> "RayEngine":
        if not self._ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cpus = None if "RAY_ADDRESS" in os.environ else self._workers
            self._ray.init(
                num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="error"
            )
            self._started = True
        resources = {"num_cpus": 1} if self._device == "cpu" else {"num_cpus": 1, "num_gpus": 1}
        self._task = self._ray.remote(max_retries=_RETRIES, **resources)(_count)
        self._reference = self._ray.put(self._counter)
        return self

    def __exit__(self, *_) -> None:
        if self._started:
            self._ray.shutdown()

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, np.ndarray]]:
        """Each job with its counts, as they get finished."""
        jobs = iter(jobs)
        pending: dict[Any, Job] = {}
        try:
            while True:
                for job in islice(jobs, max(0, 2 * self._slots() - len(pending))):
                    # In a list, the reference is passed as it is: a worker fetches the network
                    # once, not for each task.
                    pending[self._task.remote([self._reference], self._device, job)] = job
                if not pending:
                    return
                for done in self._ray.wait(list(pending), num_returns=1)[0]:
                    yield pending.pop(done), self._result(done)
        finally:
            for task in pending:
                self._ray.cancel(task)

    def _slots(self) -> int:
        """Workers to keep busy; a cluster may grow and shrink."""
        found = int(self._ray.cluster_resources().get("CPU" if self._device == "cpu" else "GPU", 0))
        return max(1, min(found, self._workers or found))

    def _result(self, done) -> np.ndarray:
        try:
            return self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None


def _import_ray():
    try:
        import ray
    except ImportError:
        raise InputError(
            "engine='ray' needs Ray, which is not installed: pip install 'aces[ray]'"
        ) from None
    return ray


def _count(references: list, device: str, job: Job) -> np.ndarray:
    """The task: runs on a worker of the cluster."""
    (reference,) = references
    return _opened(reference, device)(job, threading.Event())


@functools.lru_cache(maxsize=1)
def _opened(reference, device: str):
    import ray

    torch.set_num_threads(1)
    return ray.get(reference).open(torch.device(device))
