"""Every number a result depends on: `params.yaml`, validated when it is loaded.

`sections` has one class per section of the file; `reading` reads a file, says in one line what is
wrong with it, and describes the file to editors (`schema`). What changes only the speed (device, workers,
engine) is not here: see `aces.runtime`.
"""

from aces.params.reading import flatten, load, parse, schema
from aces.params.sections import (
    METHODS,
    NONE,
    SCORES,
    Adaptive,
    Baseline,
    Calibrate,
    Certify,
    Combine,
    Consistency,
    Core,
    Dataset,
    Denoiser,
    Macer,
    Params,
    Report,
    Sample,
    Select,
    SmoothAdv,
    Train,
    needed_draws,
)

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
