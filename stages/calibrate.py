"""Choose theta: the largest whose loss of natural accuracy is at most what the user can afford.

On test images that are not evaluated, so that what the report says of this theta is not optimistic.
PREDICT draws at most `calibrate.n` noisy copies of an image, with the looks of `sample.adaptive`,
and stops where more draws could not change the choice.
"""

from dataclasses import asdict, replace
from functools import partial

import numpy as np

from aces import data, paths, rule, sampling
from aces.files import write_json
from aces.params import Params
from aces.rule.choice import Choice
from aces.tracking import StageRun
from stages import draws
from stages.runner import run_stage

CHUNK = 50  # looks are at the ends of chunks, and the first ones come after a few dozen draws


def calibrate(params: Params, run: StageRun) -> dict:
    settings = params.calibrate
    if settings.images == 0:
        write_json(paths.CALIBRATION, {"theta": None, "images": 0})
        return {"images": 0}
    images = data.read_eval(paths.calibration_images(params.dataset.name))
    core = draws.core_answers(images)
    answers = partial(
        rule.predict_from,
        alpha=params.combine.alpha,
        thetas=params.combine.thetas,
        rule=params.combine.rule,
        multiplicity=params.combine.multiplicity,
    )
    choice = Choice(
        answers,
        core,
        images.label,
        thetas=params.combine.thetas,
        loss=settings.loss,
        confidence=settings.confidence,
    )
    plan = draws.draw_plan(params, n=settings.n)
    counts = sampling.sample(
        draws.deployed_network(params),
        images.image,
        replace(plan, adaptive=params.sample.adaptive, chunk=CHUNK),
        num_classes=images.num_classes,
        runtime=draws.sampling_runtime(),
        index=images.index,
        label=images.label,
        select=draws.selection_network(params),
        score=draws.own_score(params),
        enough=choice.settled,
    )
    found = choice.calibration()
    write_json(paths.CALIBRATION, _plain(asdict(found)))
    mean_draws = float(counts.draws.sum(axis=0).mean())
    return {"images": len(images.label), "theta": found.theta, "mean_draws": mean_draws}


def _plain(content: dict) -> dict:
    """The same without numpy's types, which JSON does not know."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in content.items()
    }


if __name__ == "__main__":
    run_stage("calibrate", calibrate)
