"""Get the dataset and keep every k-th test image, in the original order."""

from pathlib import Path

from aces import data
from aces.params import Params
from aces.tracking import StageRun
from stages.runner import run_stage


def subsample(params: Params, run: StageRun) -> dict:
    evaluation, training = data.prepare(params.dataset)
    folder = Path("data") / params.dataset.name
    folder.mkdir(parents=True, exist_ok=True)
    data.write_eval(folder / "eval.npz", evaluation)
    data.write_train(folder / "train.npz", training)
    return {
        "images": len(evaluation.label),
        "training_images": len(training.label),
        "classes": len(evaluation.classes),
    }


if __name__ == "__main__":
    run_stage("subsample", subsample)
