"""The costly step: noise draws on the evaluation images become counts.

The core network's answers are kept beside the counts, and so is the network that was run: in the
precision of `sample.precision`, which is the one that certificates speak of.
"""

import numpy as np
from torch import nn

from aces import data, paths, sampling
from aces.data import EvalSet
from aces.files import write_json, write_npz
from aces.params import Params
from aces.rule import samples
from aces.rule.counts import Counts, write_counts
from aces.sampling import DrawPlan
from aces.tracking import StageRun
from stages import draws
from stages.runner import run_stage


def sample(params: Params, run: StageRun) -> dict:
    evaluation = data.read_eval(paths.evaluation_images(params.dataset.name))
    network = draws.certification_network(params)
    select = draws.selection_network(params)
    answers = draws.core_answers(evaluation)
    write_npz(paths.CORE, prediction=answers, index=evaluation.index)

    plan = draws.draw_plan(params, n=params.sample.n, n_predict=params.sample.n_predict)
    counts = draw(params, evaluation, network, plan, select=select)
    write_counts(paths.COUNTS, counts)
    draws.write_deployed(counts)
    draw_comparisons(params, evaluation, network, plan, by_entropy=select is not None)
    samples.record(params)
    return {
        "draws": int(counts.draws.sum()),
        "invalid": int(counts.invalid.sum()),
        "mean_draws": float(counts.draws.sum(axis=0).mean()),
    }


def draw_comparisons(
    params: Params, evaluation: EvalSet, network: nn.Module, plan: DrawPlan, *, by_entropy: bool
) -> None:
    """What ACES is compared with, drawn by the same scheme: the certification network at other
    evaluation sigmas, and, where a selection network selects, the entropy in its place.
    """
    folder, sigmas = paths.COMPARISON_COUNTS, params.baseline.sigmas
    write_json(folder / "contents.json", {"sigmas": sigmas, "entropy": by_entropy})
    if by_entropy:
        write_counts(folder / "entropy.npz", draw(params, evaluation, network, plan))
    for sigma in sigmas:
        other = draws.draw_plan(params, n=plan.n, n_predict=plan.n_predict, sigma=sigma)
        write_counts(folder / f"sigma-{sigma:g}.npz", draw(params, evaluation, network, other))


def draw(
    params: Params,
    evaluation: EvalSet,
    network: nn.Module,
    plan: DrawPlan,
    *,
    select: nn.Module | None = None,
) -> Counts:
    return sampling.sample(
        network,
        evaluation.image,
        plan,
        num_classes=evaluation.num_classes,
        runtime=draws.sampling_runtime(),
        index=np.asarray(evaluation.index),
        label=evaluation.label,
        select=select,
        score=draws.own_score(params),
    )


if __name__ == "__main__":
    run_stage("sample", sample)
