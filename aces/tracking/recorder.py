"""What is written to MLflow for one stage. It runs in the writer's process, and may raise anything.

Every public method is a command that `StageRun` sends, or `runs` when it reads a server.
"""

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from aces import extension
from aces.files import digest
from aces.tracking import names, pipelines, runs, store

SYSTEM_SECONDS = 5.0  # between two samples of processor, memory and disk
MOST_METRICS = 1000  # MLflow's limit for one request


class Recorder:
    """One nested run and its parent."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.parent: str | None = None
        self._client: Any = None
        self._experiment = self._stage = ""
        self._monitor: Any = None

    def connect(self) -> None:
        """Load MLflow and open the store. No call to a server is made."""
        os.environ.pop("MLFLOW_RUN_ID", None)  # it would override every parent
        self._client = store.open_store()

    def start(
        self, stage: str, parameters: dict[str, object], pid: int, began: float
    ) -> dict[str, str]:
        """Begin the stage's run under its parent; the ids of both.

        began: when the stage began, which is seconds before this process is ready to write.
        """
        self._stage, self._experiment = stage, store.experiment_id(self._client)
        pipelines.close_dead(self._client, self._experiment)
        self.parent = pipelines.find_parent(self._client, self._experiment, parameters)
        tags = {
            names.STAGE: stage,
            names.PARENT: self.parent,
            names.PROCESS: pipelines.process_name(pid),
        }
        run = self._client.create_run(
            self._experiment, run_name=stage, tags=tags, start_time=int(began * 1000)
        )
        self.id = run.info.run_id
        self._start_monitor()
        return {"id": run.info.run_id, "parent": self.parent}

    # ------------------------------------------------------------ values

    def log_metrics(self, metrics: dict[str, float], step: int = 0, parent: bool = False) -> None:
        self._log(self.parent if parent else self.id, [(metrics, step)])

    def log_summary(self, stage: str, metrics: dict[str, float], output: str) -> None:
        """The result of a stage: in its run, and in the parent under the stage's name."""
        self._log(self.id, [(metrics, 0)])
        self._client.set_tag(self.id, names.OUTPUT, output)
        self._log(self.parent, [(_prefixed(stage, metrics), 0)])

    def log_series(self, rows: list[dict[str, float]], steps: list[int]) -> None:
        """A curve, one step per row, to the parent."""
        self._log(self.parent, list(zip(rows, steps, strict=True)))

    def log_tags(self, tags: dict[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_tag(self.parent, name, value)

    def log_dataset(self, name: str, content: str, context: str, source: str, size: int) -> None:
        """An input of the stage: its name, digest and what it is used for (`training` ...)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=content[:36],
            source_type="local",
            source=json.dumps({"uri": source}),
            profile=json.dumps({"num_images": size}),
        )
        entry = DatasetInput(dataset, [InputTag("mlflow.data.context", context)])
        for run in (self.id, self.parent):
            self._client.log_inputs(run, datasets=[entry])

    def log_artifact(self, path: str, folder: str | None = None) -> None:
        """A file or folder, kept with the parent run, where a person looks for it."""
        log = self._client.log_artifacts if Path(path).is_dir() else self._client.log_artifact
        log(self.parent, path, folder)

    def log_table(self, rows: dict[str, list[float]], name: str) -> None:
        """A table that MLflow's page can show and compare between runs."""
        self._client.log_table(self.parent, rows, name)

    def roll_up(self, summaries: dict[str, str]) -> None:
        """Log to the parent what stages that DVC skipped had computed, and name the runs that did.

        summaries: stage -> its metrics file.
        """
        ran = {run.data.tags.get(names.STAGE) for run in self._children()}
        for stage, text in summaries.items():
            path = Path(text)
            if stage in ran or not path.exists():
                continue
            self._log(
                self.parent, [(_prefixed(stage, names.numbers(json.loads(path.read_text()))), 0)]
            )
            query = f"tags.`{names.STAGE}` = '{stage}' and tags.`{names.OUTPUT}` = '{digest(path)}'"
            origin = self._client.search_runs([self._experiment], query, max_results=1)
            if origin:
                self._client.set_tag(self.parent, f"aces.cached.{stage}", origin[0].info.run_id)

    def seconds(self) -> dict[str, float]:
        """How long each finished stage under this parent took; the latest run of each counts."""
        return {
            run.data.tags[names.STAGE]: (run.info.end_time - run.info.start_time) / 1000
            for run in reversed(self._children())
            if run.info.end_time and run.info.status == "FINISHED"
        }

    def call(self, function: str, options: dict[str, Any]) -> Any:
        """Call `package.module:function` with the parent as MLflow's active run."""
        import mlflow

        with store.default_uri(), mlflow.start_run(run_id=self.parent):
            answer = extension.resolve(function, what="function")(**options)
        return answer if isinstance(answer, (str, int, float)) else None  # no objects of MLflow

    # ------------------------------------------------------------ reading a server

    def search_runs(self) -> list[dict[str, Any]]:
        return runs.search(self._client)

    def download(self, run: str, path: str) -> str | None:
        return runs.download(self._client, run, path)

    # ------------------------------------------------------------ the end

    def discard(self) -> None:
        """Forget this run: another process starts the stage anew."""
        self._client.delete_run(self.id)
        self.id = None

    def finish(self, status: str) -> None:
        """End both runs. After the last stage the next pipeline run gets a parent of its own."""
        self._stop_monitor()
        if self._stage == names.LAST_STAGE and status == "FINISHED":
            self._client.set_tag(self.parent, names.COMPLETE, "yes")
        for run in (self.id, self.parent):
            if run is not None:
                self._client.set_terminated(run, status)
        self.id = None

    def abandon(self) -> None:
        """The stage is gone without a word."""
        if self._client is not None and self.id is not None:
            self.finish("KILLED")

    def _children(self) -> list[Any]:
        query = f"tags.`{names.PARENT}` = '{self.parent}'"
        return list(self._client.search_runs([self._experiment], query))

    def _log(self, run: str | None, series: list[tuple[dict[str, float], int]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(names.metric_name(name), float(value), now, step)
            for row, step in series
            for name, value in row.items()
        ]
        for start in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(run, metrics=metrics[start : start + MOST_METRICS])

    def _start_monitor(self) -> None:
        """Processor, memory, disk and GPU of this machine, beside the metrics of the stage."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        logging.getLogger("mlflow.system_metrics").setLevel(logging.CRITICAL)
        self._monitor = SystemMetricsMonitor(
            self.id, sampling_interval=SYSTEM_SECONDS, tracking_uri=store.tracking_uri()
        )
        self._monitor.start()

    def _stop_monitor(self) -> None:
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            stopping = threading.Thread(target=_last_sample, args=(monitor,), daemon=True)
            stopping.start()
            stopping.join(SYSTEM_SECONDS)


def _last_sample(monitor: Any) -> None:
    """Stop, and log one more sample: a stage of a few seconds has at least that one."""
    monitor.finish()
    monitor.collect_metrics()
    monitor.publish_metrics(monitor.aggregate_metrics())
    monitor.mlflow_logger.flush()


def _prefixed(stage: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{stage}/{name}": value for name, value in metrics.items()}
