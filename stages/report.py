"""Tables, figures and the page; and the parent run gets all there is to know about this run."""

import dataclasses
import json
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from aces import data, networks, paths, reporting
from aces.model.composed import ACES
from aces.model.serving import log_model
from aces.params import Params
from aces.rule.counts import read_counts
from aces.tracking import StageRun, digest
from stages.runner import run_stage

REPORTS = Path("reports")
SUMMARIES = {
    stage: Path("metrics") / f"{stage}.json"
    for stage in ("subsample", "train_core", "train_certify", "train_select", "sample")
} | {"combine": Path("results/metrics.json")}
PACKAGES = ("aces", "torch", "torchvision", "onnxruntime", "numpy", "scipy", "dvc", "mlflow")


def report(params: Params, run: StageRun) -> None:
    inputs = read_inputs(params)
    reporting.write_report(REPORTS, inputs)
    run.roll_up(SUMMARIES)
    log_curve(inputs.curve, run)
    for path in (*SUMMARIES.values(), Path("results/curve.csv"), Path("results/comparison.csv")):
        run.log_artifact(path, path.parent.name)
    log_report(inputs, run)
    log_composed_model(params, run)


def read_inputs(params: Params) -> reporting.Inputs:
    comparison = pd.read_csv("results/comparison.csv")
    return reporting.Inputs(
        params=params,
        evaluation=data.read_eval(Path("data") / params.dataset.name / "eval.npz"),
        counts=read_counts("samples/counts.npz"),
        core=np.load("samples/core.npz")["prediction"],
        outcomes=reporting.read_outcomes(paths.OUTCOMES),
        curve=pd.read_csv("results/curve.csv"),
        metrics=json.loads(Path("results/metrics.json").read_text()),
        comparison=comparison if len(comparison) else None,
        calibration=json.loads(paths.CALIBRATION.read_text())
        if paths.CALIBRATION.exists()
        else None,
        provenance=provenance(params),
    )


def provenance(params: Params) -> dict:
    """Where the numbers come from. Nothing that differs between two runs of the same inputs."""
    files = [
        f"data/{params.dataset.name}/eval.npz",
        *(f"models/{role}.safetensors" for role in ("core", "certify", "select")),
        "samples/counts.npz",
    ]
    return {
        "SHA-256": {name: digest(Path(name)) for name in files},
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
    }


def log_curve(curve: pd.DataFrame, run: StageRun) -> None:
    """The curve as series, with 1000 theta as their steps. Here, because the stage `combine` may
    have been skipped.
    """
    run.log_series(
        curve.drop(columns="theta").to_dict("records"),
        steps=[round(1000 * theta) for theta in curve["theta"]],
    )


def log_report(inputs: reporting.Inputs, run: StageRun) -> None:
    """The MLflow copy of the report also says how long the stages took, and from which revision."""
    seconds = {f"{stage}_seconds": round(value, 1) for stage, value in run.seconds().items()}
    run.log_metrics(
        {f"seconds/{name.removesuffix('_seconds')}": value for name, value in seconds.items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "report"
        told = dataclasses.replace(
            inputs, provenance=inputs.provenance | {"run": {**run.revision(), **seconds}}
        )
        reporting.write_report(copy, told)
        reporting.screenshot(copy / "index.html", copy / "screenshot.png")
        run.log_artifact(copy, "report")


def log_composed_model(params: Params, run: StageRun) -> None:
    """The composed model, to be loaded, served, and found by name."""
    theta = min(params.report.thetas, key=lambda theta: abs(theta - 0.5))
    model = ACES.from_pipeline(theta=theta)
    run.log_tags(
        {
            f"aces.model.{role}": networks.fingerprint(network)
            for role, network in model.networks.items()
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        run.within_parent(
            lambda: log_model(
                folder, dataset=params.dataset.name, n0=params.sample.n0, alpha=params.combine.alpha
            )
        )


if __name__ == "__main__":
    run_stage("report", report)
