"""How every stage runs: validated parameters, a tracked run, a metrics file, errors in one line."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from aces import params as parameters
from aces.console import errors
from aces.errors import DISK_FULL, InputError
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
    except InputError as error:
        errors.print(f"{name}: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        errors.print(
            f"{name}: {error.filename or 'the disk'}: {error.strerror}: make room and run `dvc repro` again; what is "
            "finished is kept",
            style="red",
            markup=False,
            soft_wrap=True,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print(f"{name}: interrupted; `dvc repro` goes on from here", style="red")
        sys.exit(130)


def write_json(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
