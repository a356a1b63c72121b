"""MLflow, and nothing else imports it here: one parent run a pipeline run, one nested run a stage.

The stages of one `dvc repro` (or one experiment) are separate processes; they find their common
parent by a tag. The store is `mlflow.db` beside `.dvc`, also from DVC's temporary workspaces,
unless `MLFLOW_TRACKING_URI` says otherwise. Tracking never stops the work: what fails is said once,
and the stage goes on.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import filelock
import psutil

from aces import paths
from aces.console import warn

EXPERIMENT = "aces"
PIPELINE = "aces.pipeline"  # tag of a parent run: the key its stages share
STAGE = "aces.stage"  # tag of a nested run: its stage
OUTPUT = "aces.output"  # tag of a nested run: digest of the metrics it wrote
PARENT = "mlflow.parentRunId"
MOST_FAILURES = (
    3  # of a stage: then it tracks no more, since each may wait for a server that does not answer
)


def tracking_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{paths.root() / 'mlflow.db'}"


def metric_name(name: str) -> str:
    """MLflow rejects `@`: `certified_accuracy@0.25` is `certified_accuracy/r_0.25` there."""
    return name.replace("@", "/r_")


# ---------------------------------------------------------------- writing


class StageRun:
    """A stage's nested run. Every method is safe: a tracking failure warns once and is forgotten."""

    def __init__(self, stage: str):
        self.stage = stage
        self.id: str | None = None
        self.parent: str | None = None
        self._client = None
        self._failures = 0

    def start(self, parameters: dict[str, object]) -> None:
        self._safely(lambda: self._start(parameters), starting=True)

    def log_metrics(self, metrics: dict[str, float], *, step: int = 0) -> None:
        """Log to this stage's run."""
        self._safely(lambda: self._log(self.id, metrics, step))

    def log_summary(self, metrics: dict[str, float], digest: str) -> None:
        """Log the stage's result to its run and, prefixed by its name, to the parent."""
        self._safely(lambda: self._log(self.id, metrics, 0))
        self._safely(lambda: self._client.set_tag(self.id, OUTPUT, digest))
        self._safely(
            lambda: self._log(
                self.parent, {f"{self.stage}/{name}": v for name, v in metrics.items()}, 0
            )
        )

    def log_series(self, rows: list[dict[str, float]], *, steps: list[int]) -> None:
        """Log a curve, one step a row, to this run and to the parent."""

        def write():
            from mlflow.entities import Metric

            now = int(time.time() * 1000)
            metrics = [
                Metric(metric_name(name), float(value), now, step)
                for row, step in zip(rows, steps, strict=True)
                for name, value in row.items()
            ]
            for run in (self.id, self.parent):
                for start in range(0, len(metrics), 1000):
                    self._client.log_batch(run, metrics=metrics[start : start + 1000])

        self._safely(write)

    def log_artifact(self, path: str | Path, folder: str | None = None) -> None:
        """Keep a file or folder with the parent run, where a person looks for it."""
        log = "log_artifacts" if Path(path).is_dir() else "log_artifact"
        self._safely(lambda: getattr(self._client, log)(self.parent, str(path), folder))

    def log_tags(self, tags: dict[str, str]) -> None:
        self._safely(
            lambda: [self._client.set_tag(self.parent, name, value) for name, value in tags.items()]
        )

    def roll_up(self, summaries: dict[str, Path]) -> None:
        """Log to the parent what stages that DVC skipped had computed, and name the runs that did.

        summaries: stage -> its metrics file.
        """
        self._safely(lambda: self._roll_up(summaries))

    def seconds(self) -> dict[str, float]:
        """How long each finished stage under this parent took."""
        return (
            self._safely(
                lambda: {
                    run.data.tags[STAGE]: (run.info.end_time - run.info.start_time) / 1000
                    for run in self._children(self.parent)
                    if run.info.end_time
                }
            )
            or {}
        )

    def revision(self) -> dict[str, str]:
        """The git revision and the runs in the store that this is about."""
        return {"parent_run": self.parent or "", **_git_tags()}

    def within_parent(self, action: Callable[[], None]) -> None:
        """Run `action` with the parent as MLflow's active run, for its fluent functions."""

        def act():
            import mlflow

            mlflow.set_tracking_uri(tracking_uri())
            with mlflow.start_run(run_id=self.parent):
                action()

        self._safely(act)

    def discard(self) -> None:
        """Forget this run: another process starts the stage anew."""
        self._safely(lambda: self._client.delete_run(self.id))
        self._client = None

    def finish(self, succeeded: bool) -> None:
        status = "FINISHED" if succeeded else "FAILED"
        if self.id:
            self._safely(lambda: self._client.set_terminated(self.id, status))
        if self.parent:
            self._safely(lambda: self._client.set_terminated(self.parent, status))

    def _safely(self, action: Callable, *, starting: bool = False):
        if self._client is None and not starting:
            return None  # a run that never started logs nothing
        try:
            return action()
        except Exception as error:  # whatever the store does, the work goes on
            self._failures += 1
            if self._failures == 1:
                warn(
                    f"{self.stage}: MLflow tracking failed, the stage goes on: {_one_line(error)}",
                )
            if self._failures == MOST_FAILURES:
                self._client = None
            return None

    def _start(self, parameters: dict[str, object]) -> None:
        os.environ.pop("MLFLOW_RUN_ID", None)  # it would override every parent
        client = _client()
        with _lock():
            experiment = _experiment(client)
            self.parent = _parent(client, experiment, parameters)
        run = client.create_run(
            experiment, run_name=self.stage, tags={STAGE: self.stage, PARENT: self.parent}
        )
        self._client, self.id = client, run.info.run_id

    def _log(self, run: str | None, metrics: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(
            run,
            metrics=[
                Metric(metric_name(name), float(value), now, step)
                for name, value in metrics.items()
            ],
        )

    def _children(self, parent: str) -> list:
        experiment = self._client.get_run(parent).info.experiment_id
        return self._client.search_runs([experiment], f"tags.`{PARENT}` = '{parent}'")

    def _roll_up(self, summaries: dict[str, Path]) -> None:
        ran = {run.data.tags.get(STAGE) for run in self._children(self.parent)}
        experiment = self._client.get_run(self.parent).info.experiment_id
        for stage, path in summaries.items():
            if stage in ran or not path.exists():
                continue
            metrics = numbers(json.loads(path.read_text()))
            self._log(self.parent, {f"{stage}/{name}": value for name, value in metrics.items()}, 0)
            query = f"tags.`{STAGE}` = '{stage}' and tags.`{OUTPUT}` = '{digest(path)}'"
            origin = self._client.search_runs([experiment], query, max_results=1)
            if origin:
                self._client.set_tag(self.parent, f"aces.cached.{stage}", origin[0].info.run_id)


@contextmanager
def track(stage: str, parameters: dict[str, object]) -> Iterator[StageRun]:
    """A stage's run, finished or failed with the block."""
    run = StageRun(stage)
    run.start(parameters)
    succeeded = False
    try:
        yield run
        succeeded = True
    finally:
        run.finish(succeeded)


def numbers(metrics: dict) -> dict[str, float]:
    """The numbers of a nested metrics file: `{"certify": {"acr": 0.4}}` is `{"certify/acr": 0.4}`."""
    flat = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            flat[name] = value
    return flat


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Run:
    """A finished pipeline run, as `aces compare` reads it."""

    id: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    _client: object = field(repr=False, compare=False, default=None)

    def artifact(self, path: str) -> Path | None:
        """A local copy of an artifact; None where the run has none."""
        from mlflow.exceptions import MlflowException

        try:
            return Path(self._client.download_artifacts(self.id, path))
        except (MlflowException, OSError):
            return None


def finished_runs() -> list[Run]:
    """All finished parent runs, the newest first."""
    uri = tracking_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return []
    client = _client()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return []
    query = f"attributes.status = 'FINISHED' and tags.`{PIPELINE}` LIKE '%'"
    found = client.search_runs([experiment.experiment_id], query, max_results=5000)
    return [
        Run(
            run.info.run_id,
            run.info.run_name,
            run.data.params,
            run.data.metrics,
            run.data.tags,
            client,
        )
        for run in found
    ]


# ---------------------------------------------------------------- the store


def _client():
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault(
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3"
    )  # a stage need not wait minutes for a server that is down
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    import mlflow
    from mlflow import MlflowClient

    _create_database()
    mlflow.set_tracking_uri(tracking_uri())
    return MlflowClient(tracking_uri=tracking_uri())


def _lock() -> filelock.FileLock:
    folder = paths.root() / ".dvc" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(folder / "mlflow.lock")


def _create_database() -> None:
    """Create a missing SQLite store in one step.

    MLflow's own migrations take no lock: two processes that both find no database spoil it for
    good. So it is made under a temporary name by one of them and renamed when complete.
    """
    uri = tracking_uri()
    if not uri.startswith("sqlite:///"):
        return
    database = Path(uri.removeprefix("sqlite:///"))
    if database.exists():
        return
    with _lock():
        if database.exists():
            return
        database.parent.mkdir(parents=True, exist_ok=True)
        unfinished = database.with_name(f".{database.name}.{os.getpid()}")
        program = "import sys; from mlflow import MlflowClient; MlflowClient(sys.argv[1]).search_experiments()"
        # In a process of its own, with the folder the default experiment's artifacts are to lie in.
        made = subprocess.run(
            [sys.executable, "-c", program, f"sqlite:///{unfinished}"],
            cwd=database.parent,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            unfinished.unlink(missing_ok=True)
            raise RuntimeError(f"cannot create {database}: {_one_line(made.stderr)}")
        os.replace(unfinished, database)


def _experiment(client) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return found.experiment_id
    # Left to MLflow, the place of the artifacts would be the working directory, which may be a
    # temporary one.
    local = tracking_uri().startswith("sqlite:///")
    return client.create_experiment(
        EXPERIMENT,
        artifact_location=(paths.root() / "mlruns").as_uri() if local else None,
        tags={"mlflow.experimentKind": "custom_model_development"},
    )  # `mlflow ui` opens at the runs


def _parent(client, experiment: str, parameters: dict[str, object]) -> str:
    key = f"{_pipeline_key()}/{_digest_of(parameters)}"
    found = client.search_runs([experiment], f"tags.`{PIPELINE}` = '{key}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return found[0].info.run_id
    from mlflow.entities import Param

    tags = {PIPELINE: key, "mlflow.source.name": "dvc.yaml", **_git_tags()}
    run = client.create_run(experiment, run_name=_run_name(parameters), tags=tags)
    client.log_batch(
        run.info.run_id,
        params=[Param(name, str(value)[:6000]) for name, value in parameters.items()],
    )
    return run.info.run_id


def _run_name(parameters: dict[str, object]) -> str:
    experiment = os.environ.get("DVC_EXP_NAME")
    what = f"{parameters['dataset.name']}-{parameters['certify.method']}-{parameters['sigma']:g}"
    return f"{what}-{experiment}" if experiment else what


def _digest_of(parameters: dict[str, object]) -> str:
    """Runs of other parameters are other runs, even under the name of an experiment that failed."""
    return hashlib.sha256(repr(sorted(parameters.items())).encode()).hexdigest()[:8]


def _pipeline_key() -> str:
    """What the stages of one pipeline run have in common, besides the parameters."""
    if experiment := os.environ.get("DVC_EXP_NAME"):
        return f"exp/{os.environ.get('DVC_EXP_BASELINE_REV', '')}/{experiment}"
    for ancestor in reversed(psutil.Process().parents()):  # the outermost first
        if _is_dvc(ancestor):
            return f"repro/{socket.gethostname()}/{ancestor.pid}@{ancestor.create_time():.0f}"
    return f"alone/{uuid.uuid4().hex}"


def _is_dvc(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()[:3]
    except psutil.Error:
        return False
    return any(Path(word).name == "dvc" for word in words[:2]) or words[1:3] == ["-m", "dvc"]


def _git_tags() -> dict[str, str]:
    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", *arguments], cwd=paths.root(), capture_output=True, text=True
        )
        return answer.stdout.strip() if answer.returncode == 0 else ""

    tags = {
        "mlflow.source.git.commit": git("rev-parse", "HEAD"),
        "mlflow.source.git.branch": git("branch", "--show-current"),
        "aces.git.changed": "yes" if git("status", "--porcelain", "--untracked-files=no") else "",
        "aces.experiment": os.environ.get("DVC_EXP_NAME", ""),
    }
    return {name: value for name, value in tags.items() if value}


def _one_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
