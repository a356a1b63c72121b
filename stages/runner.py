"""How every stage runs: validated parameters, a tracked run, a metrics file, errors in one line."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from aces import params as parameters
from aces.console import fail
from aces.errors import explain
from aces.files import write_json
from aces.tracking import StageRun, digest, numbers, track

Stage = Callable[[parameters.Params, StageRun], dict | None]


def run_stage(name: str, stage: Stage, summary: Path | None = None) -> None:
    """Run `stage(params, run)`; what it returns is its summary, written to `summary` or
    `metrics/<name>.json`.

    The summary is a DVC output: it holds results, never times.
    """
    try:
        params = parameters.load()
        if int(os.environ.get("RANK", 0)) > 0:
            stage(
                params, StageRun(name)
            )  # one of torchrun's processes: only the main one tracks and writes
            return
        with track(name, parameters.flatten(params)) as run:
            result = stage(params, run)
            if result is not None:
                path = summary or Path("metrics") / f"{name}.json"
                write_json(path, result)
                run.log_summary(numbers(result), digest(path))
    except (Exception, KeyboardInterrupt) as error:
        explanation = explain(error)
        if explanation is None:
            raise
        fail(f"{name}: {explanation.text}")
        sys.exit(explanation.status)
