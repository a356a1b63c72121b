"""How every stage runs: validated parameters, a tracked run, a summary, errors in one line."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from aces import extension, paths
from aces import params as parameters
from aces.console import fail
from aces.errors import explain
from aces.files import digest, write_json
from aces.params import Params
from aces.process import end_with_dvc
from aces.tracking import StageRun, numbers, track

Stage = Callable[[Params, StageRun], dict | None]
Shortcut = Callable[[Params], dict | None]


def run_stage(
    name: str, stage: Stage, *, summary: Path | None = None, shortcut: Shortcut | None = None
) -> None:
    """Run `stage(params, run)`. What it returns is its summary, written to `summary` or
    `metrics/<name>.json`. The summary is a DVC output: it holds results, never times.

    shortcut: tried first. If it returns a summary, there was nothing to do that is worth tracking.
    """
    path = summary or paths.stage_metrics(name)
    try:
        end_with_dvc()
        params = parameters.load()
        check_own_code(params)
        if int(os.environ.get("RANK", 0)) > 0:
            # One of torchrun's processes: only the main one tracks and writes.
            stage(params, StageRun(name))
            return
        done = shortcut(params) if shortcut is not None else None
        if done is not None:
            write_json(path, done)
            return
        with track(name, parameters.flatten(params)) as run:
            result = stage(params, run)
            if result is not None:
                write_json(path, result)
                run.log_summary(numbers(result), digest(path))
    except (Exception, KeyboardInterrupt) as error:
        explanation = explain(error)
        if explanation is None:
            raise
        fail(f"{name}: {explanation.text}")
        sys.exit(explanation.status)


def check_own_code(params: Params) -> None:
    """InputError if code of the user's own lies in this project, and DVC does not watch it."""
    dataset, core, certify, select = params.dataset, params.core, params.certify, params.select
    for name, code, what in (
        (dataset.name, dataset.code, "dataset.name"),
        (core.arch, core.code, "core.arch"),
        (certify.arch, certify.code, "certify.arch"),
        (certify.method, certify.code, "certify.method"),
        (certify.denoiser.arch, certify.code, "certify.denoiser.arch"),
        (select.score, select.code, "select.score"),
    ):
        extension.check_watched(name, code=code, what=what)
