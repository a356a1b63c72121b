"""Train the accurate core network without noise, or take a published one."""

from aces import data
from aces.params import Params
from aces.tracking import StageRun
from aces.training import methods
from stages import networks
from stages.runner import run_stage


def train_core(params: Params, run: StageRun) -> dict:
    core, classes = params.core, data.info(params.dataset.name).num_classes
    if networks.published(core.checkpoint):
        return networks.take(params, run, core.checkpoint, role="core", arch=core.arch, num_classes=classes)
    networks.use_all_gpus("stages.train_core")
    network, summary = networks.train(params, run, role="core", arch=core.arch, settings=core.train, sigma=0.0,
                                      method=methods.standard(), training=networks.read_training(params), num_classes=classes)
    networks.write_network(params, run, network, role="core", arch=core.arch, num_classes=classes)
    return summary


if __name__ == "__main__":
    run_stage("train_core", train_core)
