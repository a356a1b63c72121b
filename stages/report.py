"""Tables, figures and the page; and the parent run gets all there is to know about this run."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from aces import data, networks, paths, reporting
from aces.model.composed import ACES
from aces.params import Params
from aces.rule.counts import read_counts
from aces.tracking import StageRun, digest, publish
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
    publish.log_working_point(run, inputs.metrics)
    publish.log_curve(run, inputs.curve.to_dict("list"))
    for path in (*SUMMARIES.values(), Path("results/curve.csv"), Path("results/comparison.csv")):
        run.log_artifact(path, path.parent.name)
    publish.log_report(run, REPORTS, picture=reporting.screenshot)
    log_composed_model(params, run)
    run.complete()


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
    folder = run.workspace() / "model"
    model.save(folder)
    run.call(
        "aces.model.serving:log_model",
        seconds=publish.MODEL_SECONDS,
        folder=str(folder),
        dataset=params.dataset.name,
        n0=params.sample.n0,
        alpha=params.combine.alpha,
    )


if __name__ == "__main__":
    run_stage("report", report)
