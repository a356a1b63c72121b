"""Train the selection network on labels by noise sampling; the entropy mechanism has nothing to
train.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import safetensors.numpy

from aces import data, networks, paths, runtime
from aces.params import Params
from aces.tracking import StageRun, digest
from aces.training import methods
from aces.training.selection import label_training_set
from stages import shared
from stages.runner import run_stage

SELECT = Path("models/select.safetensors")
OUTPUTS = 2  # class 0: the core answers, class 1: the certification network does


def train_select(params: Params, run: StageRun) -> dict:
    if params.select.score == "entropy":
        SELECT.parent.mkdir(exist_ok=True)
        safetensors.numpy.save_file({}, SELECT, metadata={"mechanism": "entropy"})
        return {"trained": 0}
    certify = params.certify
    if shared.published(params.select.checkpoint):
        return shared.take(
            params, params.select.checkpoint, role="select", arch=certify.arch, num_classes=OUTPUTS
        )
    labelled = labelled_training_set(params)
    method = methods.resolve(certify, params.sigma)
    shared.use_all_gpus("stages.train_select", run, settings=certify.train, method=method)
    network, summary = shared.train(
        params,
        run,
        role="select",
        arch=certify.arch,
        settings=certify.train,
        sigma=params.sigma,
        method=method,
        training=labelled,
        num_classes=OUTPUTS,
    )
    shared.write_network(
        params,
        network,
        role="select",
        arch=certify.arch,
        num_classes=OUTPUTS,
        eta=params.select.eta,
        sigma=params.sigma,
    )
    return summary | {"trained": 1, "certify_share": float(labelled.label.mean())}


def labelled_training_set(params: Params) -> data.TrainSet:
    """The training images with the labels of the selection, kept in scratch: they cost many draws."""
    training, select = shared.read_training(params), params.select
    sources = (Path("models/certify.safetensors"), Path("data") / params.dataset.name / "train.npz")
    key = "-".join(digest(path)[:16] for path in sources)
    kept = (
        paths.scratch()
        / "training"
        / f"labels-{key}-{params.sigma:g}-{select.draws}-{select.eta:g}-{params.seed}.npy"
    )
    if not kept.exists():
        labelled = label_training_set(
            networks.load_model("models/certify.safetensors"),
            training,
            sigma=params.sigma,
            draws=select.draws,
            eta=select.eta,
            num_classes=data.info(params.dataset.name).num_classes,
            seed=params.seed,
            runtime=runtime.from_environment(scratch=paths.scratch() / "sampling"),
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_name(f".{kept.name}.{os.getpid()}.npy")
        np.save(unfinished, labelled.label)
        os.replace(unfinished, kept)
    return dataclasses.replace(training, label=np.load(kept))


if __name__ == "__main__":
    run_stage("train_select", train_select)
