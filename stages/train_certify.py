"""Train the certification network at sigma, or take a published one."""

from pathlib import Path

from aces import data
from aces.files import write_json
from aces.params import Params
from aces.tracking import StageRun, digest
from aces.training import methods
from stages import shared
from stages.runner import run_stage

TEACHER = Path("models/teacher")


def train_certify(params: Params, run: StageRun) -> dict:
    certify, classes = params.certify, data.info(params.dataset.name).num_classes
    if shared.published(certify.checkpoint):
        summary = shared.take(
            params, certify.checkpoint, role="certify", arch=certify.arch, num_classes=classes
        )
    else:
        method = methods.resolve(certify, params.sigma)
        shared.use_all_gpus("stages.train_certify", run, settings=certify.train, method=method)
        network, summary = shared.train(
            params,
            run,
            role="certify",
            arch=certify.arch,
            settings=certify.train,
            sigma=params.sigma,
            method=method,
            training=shared.read_training(params),
            num_classes=classes,
        )
        shared.write_network(
            params,
            network,
            role="certify",
            arch=certify.arch,
            num_classes=classes,
            method=certify.method,
            sigma=params.sigma,
        )
    write_teacher(params)
    return summary


def write_teacher(params: Params) -> None:
    """What train_select depends on, one file a mechanism.

    The entropy needs no teacher, and its file never changes: so train_select does not run when
    sigma changes. A selection network is taught by this certification network: its file changes
    with it.
    """
    write_json(TEACHER / "entropy", {"teacher": None})
    write_json(
        TEACHER / "network",
        {
            "teacher": digest(Path("models/certify.safetensors")),
            "sigma": params.sigma,
            "certify": params.certify.model_dump(),
        },
    )


if __name__ == "__main__":
    run_stage("train_certify", train_certify)
