"""Finished runs as MLflow's store gives them back, with the results of a simulated one."""

import json
from dataclasses import dataclass
from pathlib import Path

from aces import params
from simulated import simulated_run


@dataclass
class StoredRun:
    """What `aces.tracking.finished_runs` gives back."""

    id: str
    name: str
    params: dict
    folder: Path

    def artifact(self, path: str) -> Path | None:
        return self.folder / path if (self.folder / path).exists() else None


def stored(folder: Path, id: str, name: str, *, seed: int, **changes) -> StoredRun:
    run = simulated_run(images=40, theta_step=0.05, seed=seed)
    (folder / id / "results").mkdir(parents=True)
    run.curve.to_csv(folder / id / "results/curve.csv", index=False)
    (folder / id / "results/summary.json").write_text(json.dumps(run.metrics))
    run.comparison.to_csv(folder / id / "results/comparison.csv", index=False)
    parameters = {key: str(value) for key, value in (params.flatten(run.params) | changes).items()}
    return StoredRun(id, name, parameters, folder / id)
