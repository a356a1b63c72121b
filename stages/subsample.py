"""Get the dataset, keep every k-th test image, and set other test images aside for calibration."""

from aces import data, paths
from aces.params import Params
from aces.tracking import StageRun
from stages.runner import run_stage


def subsample(params: Params, run: StageRun) -> dict:
    name = params.dataset.name
    prepared = data.prepare(
        params.dataset, calibration=params.calibrate.images, core_size=params.core.size
    )
    data.write_eval(paths.evaluation_images(name), prepared.evaluation)
    data.write_eval(paths.calibration_images(name), prepared.calibration)
    data.write_train(paths.training_images(name), prepared.training)
    return {
        "images": len(prepared.evaluation.label),
        "calibration_images": len(prepared.calibration.label),
        "training_images": len(prepared.training.label),
        "classes": prepared.evaluation.num_classes,
    }


if __name__ == "__main__":
    run_stage("subsample", subsample)
