"""Get the dataset, keep every k-th test image, and set other test images aside for calibration."""

from aces import data, paths
from aces.errors import InputError
from aces.params import Params
from aces.rule.calibration import needed_images
from aces.tracking import StageRun
from stages.runner import run_stage


def subsample(params: Params, run: StageRun) -> dict:
    name = params.dataset.name
    prepared = data.prepare(
        params.dataset, calibration=params.calibrate.images, core_size=params.core.size
    )
    check_calibration(params, len(prepared.calibration.label))
    data.write_eval(paths.evaluation_images(name), prepared.evaluation)
    data.write_eval(paths.calibration_images(name), prepared.calibration)
    data.write_train(paths.training_images(name), prepared.training)
    return {
        "images": len(prepared.evaluation.label),
        "calibration_images": len(prepared.calibration.label),
        "training_images": len(prepared.training.label),
        "classes": prepared.evaluation.num_classes,
    }


def check_calibration(params: Params, images: int) -> None:
    """InputError, before anything is trained, if too few test images are left to choose theta."""
    settings = params.calibrate
    needed = needed_images(loss=settings.loss, confidence=settings.confidence)
    if settings.images and images < needed:
        raise InputError(
            f"dataset.stride={params.dataset.stride} leaves {images} test images to choose theta, "
            f"calibrate.loss={settings.loss:g} needs {needed}: raise one of them or add images, or "
            "set calibrate.images to 0 and report.theta to a theta of your own"
        )


if __name__ == "__main__":
    run_stage("subsample", subsample)
