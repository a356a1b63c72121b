"""Train the accurate core network without noise, or take a published one."""

from aces.networks import check_arch
from aces.params import Params
from aces.tracking import StageRun
from aces.training import standard
from stages import networks
from stages.runner import run_stage


def train_core(params: Params, run: StageRun) -> dict:
    core = params.core
    if networks.is_published(core.checkpoint):
        network, summary = networks.take(params, core.checkpoint, role="core", arch=core.arch)
        origin = networks.checkpoint_name(core.checkpoint)
        networks.write_network(params, network, role="core", checkpoint=origin)
        return summary
    training = networks.read_training(params)
    classes = training.num_classes
    if not networks.is_published(params.certify.checkpoint):
        # An architecture that cannot work is refused before this training, not after it.
        check_arch(params.certify.arch, num_classes=classes, shape=training.shape)
    networks.use_all_gpus("stages.train_core", run, settings=core.train, method=standard.method())
    network, summary = networks.train(
        params,
        run,
        role="core",
        arch=core.arch,
        settings=core.train,
        sigma=0.0,
        method=standard.method(),
        training=training,
        num_classes=classes,
    )
    networks.write_network(params, network, role="core")
    return summary


if __name__ == "__main__":
    run_stage("train_core", train_core)
