"""Tables, figures and the page; and the parent run gets all there is to know about this run."""

import json
import platform
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from aces import data, reporting, runtime
from aces.counts import read_counts
from aces.params import Params
from aces.tracking import StageRun, digest
from stages.runner import run_stage

REPORTS = Path("reports")
STAGES = ("subsample", "train_core", "train_certify", "train_select", "sample", "combine")
PACKAGES = ("aces", "torch", "torchvision", "onnxruntime", "numpy", "scipy", "dvc", "mlflow")


def report(params: Params, run: StageRun) -> dict:
    inputs = read_inputs(params)
    reporting.write_report(REPORTS, inputs)
    run.roll_up({stage: Path("metrics") / f"{stage}.json" for stage in STAGES})
    log_report(inputs, run)
    return {}
