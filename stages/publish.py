"""Tell MLflow the whole story of the run: the working point, the curve, the report, the model.

This stage runs in every clone, also where DVC took everything before it from its cache or from the
committed results: the run in MLflow then gets what the skipped stages had computed. That is why its
output, metrics/publish.json, is neither cached nor committed.
"""

import numpy as np
import pandas as pd

from aces import data, files, paths, reporting
from aces.model.composed import ACES
from aces.networks import fingerprint
from aces.params import Params
from aces.reporting import results
from aces.rule import samples
from aces.tracking import StageRun, publish
from aces.tracking.card import ModelCard
from stages.runner import run_stage

SUMMARIES = {
    stage: paths.stage_metrics(stage)
    for stage in ("subsample", "train_core", "train_certify", "train_select", "sample", "calibrate")
} | {"combine": paths.METRICS}
ACCURACY = "certified_accuracy@"
SHOWN_RADII = 3  # in the model card
RESULTS = (*results.SHOWN, paths.METRICS, paths.RESULTS_MANIFEST)


def publish_run(params: Params, run: StageRun) -> dict:
    samples.check(*samples.inputs(params))
    results.check(*results.SHOWN, paths.METRICS)
    found = results.read_project()
    summary, curve = found.summary, found.curve
    run.roll_up(SUMMARIES)
    publish.log_working_point(run, files.read_json(paths.METRICS, remedy=results.REMEDY))
    publish.log_curve(run, {name: curve[name].tolist() for name in curve.columns})
    for path in (*RESULTS, *filter(lambda path: path.exists(), SUMMARIES.values())):
        run.log_artifact(path, path.parent.name)
    log_datasets(params, run)
    publish.log_report(run, paths.REPORTS, picture=reporting.screenshot)
    card = model_card(params, summary, curve)
    publish_model(params, run, card)
    return {"model": card.name}


def log_datasets(params: Params, run: StageRun) -> None:
    name = params.dataset.name
    images = {
        "evaluation": paths.evaluation_images(name),
        "calibration": paths.calibration_images(name),
        "training": paths.training_images(name),
    }
    for context, path in images.items():
        run.log_dataset(path, name=name, context=context)


def publish_model(params: Params, run: StageRun, card: ModelCard) -> None:
    """The composed model at the working point, to be loaded, served, and found by name."""
    model = ACES.from_pipeline(theta=card.theta)
    folder = run.workspace() / "model"
    model.save(folder)
    publish.log_model(
        run,
        "aces.model.serving:log_model",
        card=card.markdown(),
        tags={f"aces.model.{role}": fingerprint(it) for role, it in model.networks.items()},
        folder=str(folder),
        dataset=params.dataset.name,
        n0=params.sample.n0,
        alpha=params.combine.alpha,
    )


def shown_radii(curve: pd.DataFrame, *, ceiling: float) -> list[str]:
    """Three of the curve's radii, spread over those that the draws can certify."""
    radii = [name.removeprefix(ACCURACY) for name in curve if name.startswith(ACCURACY)]
    reachable = [r for r in radii if 0 < float(r) < ceiling] or radii[-1:]
    places = np.linspace(0, len(reachable) - 1, SHOWN_RADII + 2).round()[1:-1].astype(int)
    return [reachable[place] for place in np.unique(places)]


def model_card(params: Params, summary: dict, curve: pd.DataFrame) -> ModelCard:
    evaluation = data.read_eval(paths.evaluation_images(params.dataset.name))
    radii = shown_radii(curve, ceiling=summary["acr_ceiling"])
    metrics = {"nac": "natural accuracy"} | {f"{ACCURACY}{r}": f"certified at {r}" for r in radii}
    shown = {*params.report.thetas, summary["theta"]}
    rows = curve[curve["theta"].round(9).isin([round(theta, 9) for theta in shown])]
    return ModelCard(
        name=paths.registered_model(params.dataset.name),
        data=f"{params.dataset.name}, {len(evaluation.label):,} test images "
        f"(sha256 {files.digest(paths.evaluation_images(params.dataset.name))[:12]})",
        networks={
            "core": params.core.arch,
            "certification": f"{params.certify.arch}, {params.certify.method}",
        },
        sigma=params.sigma,
        theta=summary["theta"],
        theta_source=summary["theta_source"],
        alpha=params.combine.alpha,
        draws=params.sample.n,
        rule=params.combine.rule,
        rows={
            row["theta"]: {heading: row[name] for name, heading in metrics.items()}
            for _, row in rows.iterrows()
        },
    )


if __name__ == "__main__":
    run_stage("publish", publish_run)
