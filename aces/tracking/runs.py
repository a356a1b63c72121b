"""Reading: the finished pipeline runs of the store.

A server is read by the process that also writes for stages, because only a process can be ended
when its server sends an answer byte by byte.
"""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aces.errors import InputError
from aces.tracking import names, store
from aces.tracking.channel import Channel

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_RUNS = 5000
FILE_SECONDS = 1.0  # for one file of a run, beyond the 20 s for everything that a server is asked


@dataclass(frozen=True)
class FinishedRun:
    """A finished pipeline run, as `aces compare` reads it."""

    id: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    _download: Callable[[str, str], str | None] = field(
        repr=False, compare=False, default=lambda run, path: None
    )

    def artifact(self, path: str) -> Path | None:
        """A local copy of an artifact; None where the run has none."""
        found = self._download(self.id, path)
        return None if found is None else Path(found)


def finished_runs() -> list[FinishedRun]:
    """All finished parent runs, the newest first."""
    file = store.database()
    if file is None:
        server = _Server()
        return [FinishedRun(**run, _download=server.download) for run in server.search()]
    if not file.exists():
        return []
    client = store.open_store()

    def from_disk(run: str, path: str) -> str | None:
        return download(client, run, path)

    return [FinishedRun(**run, _download=from_disk) for run in search(client)]


def search(client: "MlflowClient") -> list[dict[str, Any]]:
    """The finished parent runs as plain values, which can be sent between processes."""
    experiment = client.get_experiment_by_name(names.EXPERIMENT)
    if experiment is None:
        return []
    query = f"attributes.status = 'FINISHED' and tags.`{names.PIPELINE}` LIKE '%'"
    return [
        {
            "id": run.info.run_id,
            "name": run.info.run_name,
            "params": dict(run.data.params),
            "metrics": dict(run.data.metrics),
            "tags": dict(run.data.tags),
        }
        for run in client.search_runs([experiment.experiment_id], query, max_results=MOST_RUNS)
    ]


def download(client: "MlflowClient", run: str, path: str) -> str | None:
    """The path of a local copy of an artifact; None where the run has none."""
    from mlflow.exceptions import MlflowException

    try:
        return client.download_artifacts(run, path)
    except (MlflowException, OSError):
        return None


class _Server:
    """The runs of a server, asked by another process. All waiting together has one limit."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._channel = Channel(self._problems.append)
        atexit.register(self._channel.close)

    def search(self) -> list[dict[str, Any]]:
        return self._ask("search_runs", vital=True) or []

    def download(self, run: str, path: str) -> str | None:
        return self._ask("download", extra=FILE_SECONDS, run=run, path=path)

    def _ask(self, command: str, *, vital: bool = False, extra: float = 0.0, **arguments: Any):
        answer = self._channel.post(command, vital=vital, extra=extra, **arguments)
        value = self._channel.wait(answer, extra=extra)
        if self._problems:
            raise InputError(self._problems[0])
        return value
