"""Train the selection network on labels by noise sampling. Other scores have nothing to train."""

import dataclasses

import safetensors.numpy

from aces import files, paths, runtime
from aces.params import Params
from aces.tracking import StageRun
from stages.runner import run_stage

OUTPUTS = 2  # class 0: the core network answers; class 1: the certification network does


def train_select(params: Params, run: StageRun) -> dict:
    from aces.training import methods
    from stages import networks

    certify, select = params.certify, params.select
    if networks.is_published(select.checkpoint):
        network, summary = networks.take(
            params, select.checkpoint, role="select", arch=certify.arch, num_classes=OUTPUTS
        )
        origin = networks.checkpoint_name(select.checkpoint)
        networks.write_network(params, network, role="select", checkpoint=origin)
        return summary
    labelled = labelled_training_set(params)
    method = methods.resolve(certify, params.sigma)
    networks.use_all_gpus("stages.train_select", run, settings=certify.train, method=method)
    network, summary = networks.train(
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
    networks.write_network(params, network, role="select", eta=select.eta, sigma=params.sigma)
    return summary | {"trained": 1, "certify_share": float(labelled.label.mean())}


def labelled_training_set(params: Params):
    """The training images with the labels of the selection, kept in scratch: they cost many
    draws."""
    import torch

    from aces.networks import load_model
    from aces.training.checkpoint import Checkpoint
    from aces.training.selection import label_training_set
    from stages.networks import read_training

    training, select = read_training(params), params.select
    images = paths.training_images(params.dataset.name)
    what = (files.digest(paths.network("certify")), files.digest(images), params.sigma, params.seed)
    key = files.digest_of(*what, select.draws, select.eta)[:32]
    kept = Checkpoint(paths.scratch() / "training", f"labels-{key}")
    state = kept.read()
    if state is None:
        labelled = label_training_set(
            load_model(paths.network("certify")),
            training,
            sigma=params.sigma,
            draws=select.draws,
            eta=select.eta,
            num_classes=training.num_classes,
            seed=params.seed,
            runtime=runtime.from_environment(scratch=paths.scratch() / "sampling"),
        )
        state = {"label": torch.from_numpy(labelled.label)}
        kept.write(state)
    return dataclasses.replace(training, label=state["label"].numpy())


def write_nothing(params: Params) -> dict | None:
    """The file that says that the score needs no network; None if it needs one.

    This takes a second: neither torch nor MLflow is imported for it.
    """
    if params.select.score == "network":
        return None
    path = paths.network("select")
    data = safetensors.numpy.save({}, metadata={"mechanism": params.select.score})
    files.write_bytes(path, data)
    return {"trained": 0}


if __name__ == "__main__":
    run_stage("train_select", train_select, shortcut=write_nothing)
