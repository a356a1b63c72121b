"""What the stages `combine` and `report` need for a large evaluation set: seconds and memory.

The run in this folder is enlarged: its images and their counts are repeated until there are enough
of them, in a temporary copy of the project, where the two stages run as DVC runs them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from aces import data, params, paths
from aces.errors import InputError
from aces.files import write_npz
from aces.params import Params
from aces.rule import samples
from aces.rule.counts import write_counts

THETA_STEP = 0.001
STAGES = ("combine", "report")
COPIED = (paths.MODELS, paths.RESULTS, paths.STAGE_METRICS)
KIBIBYTE = 1024  # the unit of a process's peak memory on Linux


def measure_results(*, images: int) -> dict:
    """Seconds and peak memory in bytes of each stage, for so many images and 1,001 thetas; the size
    of the page.
    """
    settings = params.load()
    settings = settings.replace(combine=settings.combine.replace(theta_step=THETA_STEP))
    with _enlarged(settings, images) as folder:
        found = {stage: _run(stage, folder) for stage in STAGES}
        page = (folder / paths.REPORTS / "index.html").stat().st_size
    thetas = len(settings.combine.thetas)
    return {"images": images, "thetas": thetas, "stages": found, "page_bytes": page}


@contextmanager
def _enlarged(settings: Params, images: int) -> Iterator[Path]:
    """A temporary copy of the run in this folder that has so many images."""
    counts, core = samples.read_evaluation()
    name = settings.dataset.name
    evaluated = data.read_eval(paths.evaluation_images(name))
    rows = np.arange(images) % len(core)
    counts = replace(counts.part(rows), index=np.arange(images))
    evaluated = replace(
        evaluated,
        image=evaluated.image[rows],
        label=evaluated.label[rows],
        index=np.arange(images),
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for copied in filter(Path.exists, COPIED):
            shutil.copytree(copied, folder / copied)
        (folder / paths.PARAMS).write_text(yaml.safe_dump(settings.model_dump(mode="json")))
        with chdir(folder):
            data.write_eval(paths.evaluation_images(name), evaluated)
            write_counts(paths.COUNTS, counts)
            write_npz(paths.CORE, prediction=core[rows], index=np.arange(images))
            samples.record(settings)
        yield folder


def _run(stage: str, folder: Path) -> dict:
    """Run a stage in a process of its own."""
    # Its run goes to a store in the temporary folder, never to that of the user.
    where = {"PYTHONPATH": str(paths.root()), "DVC_ROOT": str(folder), "MLFLOW_TRACKING_URI": ""}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", f"stages.{stage}"],
        cwd=folder,
        env=os.environ | where,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"stage {stage} failed for the enlarged run: see the message above")
    return {
        "seconds": time.perf_counter() - start,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * KIBIBYTE,
    }
