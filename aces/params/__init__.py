"""Every number a result depends on: `params.yaml`, validated when it is loaded.

One module per section of the file, so that a stage depends on the sections it reads; `file` is the
whole; `reading` reads a file and says in one line what is wrong with it. What changes only the
speed (device, workers, engine) is not here: see `aces.runtime`.
"""

from aces.params.calibrate import Calibrate
from aces.params.combine import Combine
from aces.params.dataset import Dataset
from aces.params.file import Params, needed_draws
from aces.params.networks import (
    METHODS,
    SCORES,
    Certify,
    Consistency,
    Core,
    Denoiser,
    Macer,
    Select,
    SmoothAdv,
    Train,
)
from aces.params.reading import flatten, load, parse, schema
from aces.params.report import Baseline, Report
from aces.params.sample import Adaptive, Sample
from aces.params.section import NONE

__all__ = [
    "METHODS",
    "NONE",
    "SCORES",
    "Adaptive",
    "Baseline",
    "Calibrate",
    "Certify",
    "Combine",
    "Consistency",
    "Core",
    "Dataset",
    "Denoiser",
    "Macer",
    "Params",
    "Report",
    "Sample",
    "Select",
    "SmoothAdv",
    "Train",
    "flatten",
    "load",
    "needed_draws",
    "parse",
    "schema",
]
