"""Reading: the finished pipeline runs of the store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aces.tracking import names, store

MOST_RUNS = 5000


@dataclass(frozen=True)
class FinishedRun:
    """A finished pipeline run, as `aces compare` reads it."""

    id: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    _client: Any = field(repr=False, compare=False, default=None)

    def artifact(self, path: str) -> Path | None:
        """A local copy of an artifact; None where the run has none."""
        from mlflow.exceptions import MlflowException

        try:
            return Path(self._client.download_artifacts(self.id, path))
        except (MlflowException, OSError):
            return None


def finished_runs() -> list[FinishedRun]:
    """All finished parent runs, the newest first."""
    file = store.database()
    if file is not None and not file.exists():
        return []
    client = store.open_store()
    experiment = client.get_experiment_by_name(names.EXPERIMENT)
    if experiment is None:
        return []
    query = f"attributes.status = 'FINISHED' and tags.`{names.PIPELINE}` LIKE '%'"
    found = client.search_runs([experiment.experiment_id], query, max_results=MOST_RUNS)
    return [
        FinishedRun(
            run.info.run_id,
            run.info.run_name,
            run.data.params,
            run.data.metrics,
            run.data.tags,
            client,
        )
        for run in found
    ]
