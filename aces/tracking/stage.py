"""What a stage calls to be tracked. Nothing here raises, and nothing waits for a silent store.

with track("combine", parameters) as run:
    run.log_metrics({"loss": 0.3}, step=1)
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aces.console import warn
from aces.files import digest
from aces.tracking import pipelines
from aces.tracking.channel import Channel


class StageRun:
    """A stage's nested run and its parent.

    Before `start` it records nothing, so a process that is not to be tracked has one as well.
    Values are sent to a process of their own; the stage goes on at once. Only `seconds`,
    `revision`, `call` and `finish` wait for answers, for 20 seconds in total.
    """

    def __init__(self, stage: str):
        self.stage = stage
        self._channel: Channel | None = None
        self._started: Future | None = None
        self._workspace: Path | None = None

    def start(self, parameters: Mapping[str, object]) -> None:
        self._channel = Channel(self._complain)
        self._started = self._channel.post(
            "start",
            vital=True,
            stage=self.stage,
            parameters=dict(parameters),
            pid=os.getpid(),
            began=time.time(),
        )

    @property
    def id(self) -> str | None:
        """The id of this stage's run; None where nothing is tracked."""
        return self._ids().get("id")

    @property
    def parent(self) -> str | None:
        """The id of the pipeline's run; None where nothing is tracked."""
        return self._ids().get("parent")

    # ------------------------------------------------------------ values

    def log_metrics(self, metrics: Mapping[str, float], *, step: int = 0) -> None:
        """Numbers of this stage, such as the loss of an epoch."""
        self._post("log_metrics", metrics=_floats(metrics), step=step)

    def log_summary(self, metrics: Mapping[str, float], output: str) -> None:
        """The stage's result, to its run and, under the stage's name, to the parent.

        output: the digest of the file that holds it; a later run that DVC skips is traced by it.
        """
        self._post("log_summary", stage=self.stage, metrics=_floats(metrics), output=output)

    def log_headline(self, metrics: Mapping[str, float]) -> None:
        """The numbers of the whole pipeline, under their plain names, to the parent."""
        self._post("log_metrics", metrics=_floats(metrics), parent=True)

    def log_series(self, rows: list[dict[str, float]], *, steps: list[int]) -> None:
        """A curve, one step per row, to the parent."""
        self._post("log_series", rows=[_floats(row) for row in rows], steps=steps)

    def log_table(self, columns: Mapping[str, list[float]], name: str) -> None:
        """A table as an artifact (`name` ends in .json) that MLflow's page can show."""
        self._post("log_table", rows=dict(columns), name=name)

    def log_dataset(self, path: str | Path, *, name: str, context: str, images: int = 0) -> None:
        """A file of images that the stage used, with its digest; context: `training`, `evaluation`
        or `calibration`.
        """
        if self._channel is None or not Path(path).is_file():
            return
        self._post(
            "log_dataset",
            name=name,
            content=digest(path),
            context=context,
            source=str(path),
            size=images,
        )

    def log_artifact(self, path: str | Path, folder: str | None = None) -> None:
        """A file or folder, kept with the parent run. It must stay unchanged until `finish`."""
        self._post("log_artifact", path=str(Path(path).absolute()), folder=folder)

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Tags of the parent run."""
        self._post("log_tags", tags=dict(tags))

    def roll_up(self, summaries: Mapping[str, Path]) -> None:
        """Log to the parent what stages that DVC skipped had computed.

        summaries: stage -> its metrics file.
        """
        files = {stage: str(Path(path).absolute()) for stage, path in summaries.items()}
        self._post("roll_up", summaries=files)

    def workspace(self) -> Path:
        """A folder for files that are made only to be logged; it is removed by `finish`."""
        if self._workspace is None:
            self._workspace = Path(tempfile.mkdtemp(prefix="aces-tracking-"))
        return self._workspace

    # ------------------------------------------------------------ answers

    def seconds(self) -> dict[str, float]:
        """How long each finished stage under this parent took."""
        return self._ask("seconds") or {}

    def revision(self) -> dict[str, str]:
        """The git revision, and the run in the store that this is about."""
        return {"parent_run": self.parent or "", **pipelines.git_tags()}

    def call(self, function: str, /, *, seconds: float = 0.0, **options: Any) -> Any:
        """Call `package.module:function` in the writer, with the parent as MLflow's active run.

        seconds: how long it may take beyond the stage's allowance. None where it fails.
        """
        return self._ask("call", extra=seconds, function=function, options=options)

    # ------------------------------------------------------------ the end

    def discard(self) -> None:
        """Forget this run: another process starts the stage anew."""
        self._ask("discard")
        self._close()

    def finish(self, status: str = "FINISHED") -> None:
        """FINISHED, FAILED or KILLED, for this run and for the parent."""
        self._ask("finish", status=status)
        self._close()

    def _post(self, command: str, **arguments: Any) -> None:
        if self._channel is not None:
            self._channel.post(command, **arguments)

    def _ask(self, command: str, *, extra: float = 0.0, **arguments: Any) -> Any:
        channel = self._channel
        if channel is None:
            return None
        return channel.wait(channel.post(command, extra=extra, **arguments), extra=extra)

    def _ids(self) -> dict[str, str]:
        if self._started is None:
            return {}
        if self._channel is None:  # after the end: what was known then
            return (self._started.result() if self._started.done() else None) or {}
        return self._channel.wait(self._started) or {}

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        if self._workspace is not None:
            shutil.rmtree(self._workspace, ignore_errors=True)

    def _complain(self, why: str) -> None:
        warn(f"{self.stage}: not tracked in MLflow, the stage goes on: {why}")


@contextmanager
def track(stage: str, parameters: Mapping[str, object]) -> Iterator[StageRun]:
    """A stage's run, which ends with the block."""
    run = StageRun(stage)
    run.start(parameters)
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        run.finish(status)


def _floats(metrics: Mapping[str, float]) -> dict[str, float]:
    """Plain numbers: what is sent must not depend on numpy or torch."""
    return {name: float(value) for name, value in metrics.items()}
