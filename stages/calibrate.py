"""Choose theta: the largest whose loss of natural accuracy is at most what the user can afford.

On test images that are not evaluated, so that what the report says of this theta is not optimistic.
"""

import dataclasses

import numpy as np

from aces import data, paths, rule, sampling
from aces.files import write_json
from aces.params import Params
from aces.rule.calibration import calibrate as choose
from aces.tracking import StageRun
from stages import draws
from stages.runner import run_stage


def calibrate(params: Params, run: StageRun) -> dict:
    settings = params.calibrate
    if settings.images == 0:
        write_json(paths.CALIBRATION, {"theta": None, "images": 0})
        return {"images": 0}
    images = data.read_eval(paths.calibration_images(params.dataset.name))
    core = draws.core_answers(images)
    natural = natural_answers(params, images, core)
    found = choose(
        core == images.label,
        natural == images.label[:, None],
        thetas=params.combine.thetas,
        loss=settings.loss,
        confidence=settings.confidence,
    )
    write_json(paths.CALIBRATION, _plain(dataclasses.asdict(found)))
    return {"images": len(images.label), "theta": found.theta}


def natural_answers(params: Params, images: data.EvalSet, core: np.ndarray) -> np.ndarray:
    """(N, T) what PREDICT answers at every theta; an abstention is a wrong answer."""
    counts = sampling.sample(
        draws.deployed_network(params),
        images.image,
        draws.draw_plan(params, n=params.calibrate.n),
        num_classes=images.num_classes,
        runtime=draws.sampling_runtime(),
        index=images.index,
        label=images.label,
        select=draws.selection_network(params),
        score=draws.own_score(params),
    )
    settings = params.combine
    return rule.predict(
        counts,
        core,
        alpha=settings.alpha,
        thetas=settings.thetas,
        rule=settings.rule,
        multiplicity=settings.multiplicity,
    )


def _plain(content: dict) -> dict:
    """The same without numpy's types, which JSON does not know."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in content.items()
    }


if __name__ == "__main__":
    run_stage("calibrate", calibrate)
