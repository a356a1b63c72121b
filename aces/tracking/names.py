"""The names under which things are stored in MLflow."""

import math
from collections.abc import Mapping
from typing import Any

EXPERIMENT = "aces"
PIPELINE = "aces.pipeline"  # tag of a parent run: the key that all stages of a pipeline run share
COMPLETE = "aces.complete"  # tag of a parent run: its last stage has finished
LAST_STAGE = "publish"  # when it has finished, a pipeline run is complete
STAGE = "aces.stage"  # tag of a nested run: the name of its stage
OUTPUT = "aces.output"  # tag of a nested run: digest of the metrics file it wrote
PROCESS = "aces.process"  # tag of a nested run: host, process id and start of its process
PARENT = "mlflow.parentRunId"
DESCRIPTION = "mlflow.note.content"
CURVE = "curve"  # metrics of the trade-off curve are named `curve/nac` and so on


def metric_name(name: str) -> str:
    """MLflow rejects `@` and `σ`: `certified@0.5σ` is `certified/r_0.5sigma` there."""
    return name.replace("@", "/r_").replace("σ", "sigma")


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a nested metrics file: `{"certify": {"acr": 0.4}}` is `{"certify/acr": 0.4}`.

    Texts, lists, truth values and numbers that are not finite are left out.
    """
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if math.isfinite(value):
                flat[name] = float(value)
    return flat
