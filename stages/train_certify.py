"""Train the certification network at sigma, or take a published one."""

from aces.params import Params
from aces.tracking import StageRun
from aces.training import methods
from stages import networks
from stages.runner import run_stage


def train_certify(params: Params, run: StageRun) -> dict:
    certify = params.certify
    if networks.is_published(certify.checkpoint):
        return networks.take(params, certify.checkpoint, role="certify", arch=certify.arch)
    training, method = networks.read_training(params), methods.resolve(certify, params.sigma)
    networks.use_all_gpus("stages.train_certify", run, settings=certify.train, method=method)
    network, summary = networks.train(
        params,
        run,
        role="certify",
        arch=certify.arch,
        settings=certify.train,
        sigma=params.sigma,
        method=method,
        training=training,
        num_classes=training.num_classes,
    )
    networks.write_network(
        params,
        network,
        training,
        role="certify",
        arch=certify.arch,
        num_classes=training.num_classes,
        method=certify.method,
        sigma=params.sigma,
    )
    return summary


if __name__ == "__main__":
    run_stage("train_certify", train_certify)
