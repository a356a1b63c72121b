"""The costly step: noise draws on the evaluation images become counts; and the core network's
answers.
"""

from pathlib import Path

import numpy as np
import torch

from aces import data, networks, paths, runtime, sampling
from aces.files import write_json
from aces.params import Params
from aces.rule.counts import Counts, write_counts
from aces.tracking import StageRun
from stages.runner import run_stage

SAMPLES = Path("samples")
COMPARISON = SAMPLES / "comparison"


def sample(params: Params, run: StageRun) -> dict:
    evaluation = data.read_eval(Path("data") / params.dataset.name / "eval.npz")
    certify = networks.load_model("models/certify.safetensors")
    select = (
        networks.load_model("models/select.safetensors")
        if params.select.score == "network"
        else None
    )

    SAMPLES.mkdir(exist_ok=True)
    core_network = networks.load_model("models/core.safetensors").to(
        runtime.devices(runtime.from_environment().device)[0]
    )
    core = sampling.classes_of(core_network, evaluation.image, num_classes=len(evaluation.classes))
    np.savez_compressed(SAMPLES / "core.npz", prediction=core, index=evaluation.index)

    counts = draw_counts(
        params, evaluation, certify, sigma=params.sigma, select=select, adaptive=True
    )
    write_counts(SAMPLES / "counts.npz", counts)

    write_json(
        COMPARISON / "contents.json",
        {"sigmas": params.baseline.sigmas, "entropy": select is not None},
    )
    if select is not None:
        write_counts(
            COMPARISON / "entropy.npz", draw_counts(params, evaluation, certify, sigma=params.sigma)
        )
    for sigma in params.baseline.sigmas:
        write_counts(
            COMPARISON / f"sigma-{sigma:g}.npz",
            draw_counts(params, evaluation, certify, sigma=sigma),
        )
    return {
        "draws": int(counts.draws.sum()),
        "invalid": int(counts.invalid.sum()),
        "mean_draws": float(counts.draws.sum(axis=0).mean()),
    }


def draw_counts(
    params: Params,
    evaluation: data.EvalSet,
    certify: torch.nn.Module,
    *,
    sigma: float,
    select: torch.nn.Module | None = None,
    adaptive: bool = False,
) -> Counts:
    settings = params.sample
    plan = sampling.DrawPlan(
        sigma=sigma,
        n0=settings.n0,
        n=settings.n,
        n_predict=settings.n_predict,
        seed=params.seed,
        chunk=settings.chunk,
        precision=settings.precision,
        adaptive=settings.adaptive if adaptive and settings.adaptive.enabled else None,
    )
    return sampling.sample(
        certify,
        evaluation.image,
        plan,
        num_classes=len(evaluation.classes),
        runtime=runtime.from_environment(scratch=paths.scratch() / "sampling"),
        index=evaluation.index,
        label=evaluation.label,
        select=select,
    )


if __name__ == "__main__":
    run_stage("sample", sample)
