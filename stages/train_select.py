"""Train the selection network on labels by noise sampling; the entropy mechanism has nothing to train."""

from pathlib import Path

import safetensors.numpy

from aces import data, models, runtime
from aces.params import Params
from aces.tracking import StageRun
from aces.training import methods
from aces.training.selection import label_training_set
from stages import networks
from stages.runner import run_stage

SELECT = Path("models/select.safetensors")
OUTPUTS = 2  # class 0: the core answers, class 1: the certification network does


def train_select(params: Params, run: StageRun) -> dict:
    if params.select.mechanism == "entropy":
        SELECT.parent.mkdir(exist_ok=True)
        safetensors.numpy.save_file({}, SELECT, metadata={"mechanism": "entropy"})
        return {"trained": 0}
    if networks.published(params.select.checkpoint):
        return networks.take(params, run, params.select.checkpoint, role="select", arch=params.certify.arch)
    environment = runtime.from_environment()
    training = networks.read_training(params)
    labelled = label_training_set(
        models.load_model("models/certify.safetensors"), training, sigma=params.sigma, draws=params.select.draws,
        eta=params.select.eta, num_classes=data.info(params.dataset.name).num_classes, seed=params.seed,
        device=environment.device, workers=environment.workers, scratch=runtime.scratch() / "sampling")
    certify = params.certify
    network, summary = networks.train(
        params, run, role="select", arch=certify.arch, settings=certify.train, sigma=params.sigma,
        method=methods.resolve(certify, params.sigma), training=labelled, num_classes=OUTPUTS)
    networks.write_network(params, run, network, role="select", arch=certify.arch, num_classes=OUTPUTS,
                           eta=params.select.eta, sigma=params.sigma)
    return summary | {"trained": 1, "certify_share": float(labelled.label.mean())}


if __name__ == "__main__":
    run_stage("train_select", train_select)
