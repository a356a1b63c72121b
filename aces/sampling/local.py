"""This machine's engine: one thread per worker, each with one core of the CPU or one GPU.

Threads suffice: noise, forward pass and counting run outside Python's lock. ONNX Runtime serves all
of them with one network; of a torch module, and of a graph in OpenVINO, each has its own copy
(`forward`).
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np
import torch

from aces.runtime import cores
from aces.sampling.batches import Job
from aces.sampling.count import Counter


class LocalEngine:
    """Counts jobs on this machine's devices. As a context, it ends its threads."""

    def __init__(
        self, counter: Counter, devices: list[torch.device], *, workers: int | None = None
    ):
        devices = devices * (workers or cores()) if devices[0].type == "cpu" else devices[:workers]
        opened = {device: counter.open(device) for device in dict.fromkeys(devices)}
        self._workers = [opened[device] for device in devices]
        self._mine, self._stop = threading.local(), threading.Event()

    def __enter__(self) -> "LocalEngine":
        free: queue.SimpleQueue = queue.SimpleQueue()
        for worker in self._workers:
            free.put(worker)
        self._threads = torch.get_num_threads()
        # One thread here too: its few operations would wait for cores that the workers have.
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(len(self._workers), "sampler", self._start, (free,))
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, np.ndarray]]:
        """Each job with its counts, as they get finished."""
        jobs, pending = iter(jobs), 0
        finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
        while True:
            # Two jobs per worker: a job may wait for a worker, never a worker for a job.
            for job in islice(jobs, 2 * len(self._workers) - pending):
                self._pool.submit(self._serve, job).add_done_callback(finished.put)
                pending += 1
            if not pending:
                return
            yield finished.get().result()
            pending -= 1

    def _start(self, free: queue.SimpleQueue) -> None:
        self._mine.count = free.get()
        torch.set_num_threads(1)  # the workers are the parallelism

    def _serve(self, job: Job) -> tuple[Job, np.ndarray]:
        return job, self._mine.count(job, self._stop)
