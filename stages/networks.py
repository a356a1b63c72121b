"""What the training stages share: a network is trained, or taken from a published checkpoint."""

import os
import sys
import zlib
from pathlib import Path

import torch
from torch import nn

from aces import data, networks, paths, runtime
from aces.console import console, warn
from aces.networks.checkpoints import evaluation_images, import_checkpoint
from aces.params import NONE, Params, Train
from aces.tracking import StageRun
from aces.training import Method, train_network


def train(
    params: Params,
    run: StageRun,
    *,
    role: str,
    arch: str,
    settings: Train,
    method: Method,
    sigma: float,
    training: data.TrainSet,
    num_classes: int,
) -> tuple[nn.Module, dict]:
    """A freshly trained network and its summary; every epoch is tracked."""
    torch.manual_seed(zlib.crc32(f"{params.seed} {role}".encode()))
    mean, std = training.mean, training.std
    network = networks.build(arch, num_classes=num_classes, mean=mean, std=std)
    history: list[dict] = []

    def on_epoch(epoch: int, metrics: dict) -> None:
        history.append(metrics)
        run.log_metrics(metrics, step=epoch)

    network = train_network(
        network,
        training,
        settings=settings,
        method=method,
        sigma=sigma,
        seed=params.seed,
        runtime=runtime.from_environment(scratch=paths.scratch() / "training"),
        title=role,
        on_epoch=on_epoch,
    )
    if int(os.environ.get("RANK", 0)) > 0:
        sys.exit(0)  # the main process has the same network and writes it
    return network, {"parameters": _count(network)} | {
        f"final_{name}": value for name, value in (history[-1] if history else {}).items()
    }


def use_all_gpus(stage: str, run: StageRun, *, settings: Train, method: Method) -> None:
    """Start `stage` again under torchrun, one process a GPU, where there are several and none was
    chosen.

    Each step's images are shared equally, so of seven GPUs a batch of 256 uses four.
    """
    images, gpus = settings.batch // method.split, torch.cuda.device_count()
    processes = max((count for count in range(1, gpus + 1) if images % count == 0), default=1)
    if (
        processes > 1
        and "RANK" not in os.environ
        and runtime.from_environment().device in ("auto", "cuda")
    ):
        if processes < gpus:
            console.print(
                f"training on {processes} of {gpus} GPUs, which {images} images a step can be shared by"
            )
        run.discard()  # the main process of the new ones has a run of its own
        os.execv(
            sys.executable,
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={processes}",
                "-m",
                stage,
            ],
        )


def take(
    params: Params, checkpoint: str, *, role: str, arch: str, num_classes: int | None = None
) -> dict:
    """A published network in place of a trained one, and its summary; what was found in the file is
    said.
    """
    dataset = params.dataset.name
    found = import_checkpoint(
        checkpoint,
        dataset=dataset,
        arch=arch,
        num_classes=num_classes,
        sigma=None if role == "core" else params.sigma,
        evaluation=evaluation_images(dataset),
    )
    for note in found.notes:
        console.print(f"{role}: {note}", markup=False)
    if found.near_chance:
        warn(
            f"{role}: warning: hardly better than chance on the evaluation images; are the dataset, the network and "
            "the normalisation right? `aces import` lets you choose",
        )
    _write(
        params,
        found.module,
        role=role,
        arch=found.arch,
        num_classes=found.num_classes,
        mean=found.mean,
        std=found.std,
        checkpoint=Path(checkpoint).name,
    )
    return {"parameters": _count(found.module)}


def write_network(
    params: Params,
    network: nn.Module,
    training: data.TrainSet,
    *,
    role: str,
    arch: str,
    num_classes: int,
    **metadata,
) -> None:
    _write(
        params,
        network,
        role=role,
        arch=arch,
        num_classes=num_classes,
        mean=training.mean,
        std=training.std,
        **metadata,
    )


def is_published(checkpoint: str) -> bool:
    return checkpoint != NONE


def read_training(params: Params) -> data.TrainSet:
    return data.read_train(paths.training_images(params.dataset.name))


def _write(params: Params, network: nn.Module, *, role: str, **metadata) -> None:
    networks.save_model(paths.network(role), network, dataset=params.dataset.name, **metadata)


def _count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())
