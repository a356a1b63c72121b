"""Train the accurate core network without noise, or take a published one."""

from aces import data, networks
from aces.params import Params
from aces.tracking import StageRun
from aces.training import methods
from stages import shared
from stages.runner import run_stage


def train_core(params: Params, run: StageRun) -> dict:
    info = data.info(params.dataset.name)
    core, classes = params.core, info.num_classes
    networks.check_arch(
        params.certify.arch, num_classes=classes, shape=info.shape
    )  # before this training, not after it
    if shared.published(core.checkpoint):
        return shared.take(
            params, core.checkpoint, role="core", arch=core.arch, num_classes=classes
        )
    shared.use_all_gpus("stages.train_core", run, settings=core.train, method=methods.standard())
    network, summary = shared.train(
        params,
        run,
        role="core",
        arch=core.arch,
        settings=core.train,
        sigma=0.0,
        method=methods.standard(),
        training=shared.read_training(params),
        num_classes=classes,
    )
    shared.write_network(params, network, role="core", arch=core.arch, num_classes=classes)
    return summary


if __name__ == "__main__":
    run_stage("train_core", train_core)
