"""What the training stages share: a network is trained, or taken from a published checkpoint."""

import dataclasses
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aces import files, networks, paths, runtime
from aces.console import say, warn
from aces.data.sets import TrainSet, read_eval, read_train
from aces.networks.checkpoints import import_checkpoint
from aces.params import NONE, Params, Train
from aces.tracking import StageRun
from aces.training.concerns import network_concerns, settings_concerns
from aces.training.curve import CurveFile
from aces.training.loop import train_network
from aces.training.method import Method


def train(
    params: Params,
    run: StageRun,
    *,
    role: str,
    arch: str,
    settings: Train,
    method: Method,
    sigma: float,
    training: TrainSet,
    num_classes: int,
) -> tuple[nn.Module, dict]:
    """A freshly trained network and its summary. Every epoch is tracked and written to a file."""
    concerns = settings_concerns(settings, method, images=len(training.label))
    _warn(role, concerns)
    torch.manual_seed(zlib.crc32(f"{params.seed} {role}".encode()))
    network: nn.Module = networks.build(
        arch, num_classes=num_classes, mean=training.mean, std=training.std
    )
    write_row = CurveFile(paths.training_curve(role))
    history: list[dict] = []

    def on_epoch(epoch: int, metrics: dict) -> None:
        history.append(metrics)
        write_row(epoch, metrics)
        run.log_metrics(metrics, step=epoch)

    network = train_network(
        network,
        training,
        settings=settings,
        method=method,
        sigma=sigma,
        seed=params.seed,
        runtime=training_runtime(),
        title=role,
        on_epoch=on_epoch,
    )
    if int(os.environ.get("RANK", 0)) > 0:
        sys.exit(0)  # the main process has the same network and writes it
    learned = network_concerns(
        network, training, sigma=sigma, num_classes=num_classes, seed=params.seed
    )
    _warn(role, learned)
    last = {f"final_{name}": value for name, value in (history[-1] if history else {}).items()}
    found = [f"{role} network: {concern}" for concern in (*concerns, *learned)]
    concerned = {"concerns": found} if found else {}
    return network, {"parameters": count(network), **last, **concerned}


def use_all_gpus(stage: str, run: StageRun, *, settings: Train, method: Method) -> None:
    """Start `stage` again under torchrun, with one process per GPU, if there are several GPUs and
    the user did not choose one.

    Each step's images are shared equally, so of seven GPUs a batch of 256 uses four.
    """
    images, gpus = settings.batch // method.split, torch.cuda.device_count()
    processes = max((count for count in range(1, gpus + 1) if images % count == 0), default=1)
    chosen = runtime.from_environment().device
    if processes == 1 or "RANK" in os.environ or chosen not in ("auto", "cuda"):
        return
    if processes < gpus:
        say(
            f"training on {processes} of {gpus} GPUs, which {images} images a step can be shared by"
        )
    run.discard()  # the main process of the new ones has a run of its own
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [sys.executable, *launcher, "-m", stage])


def take(
    params: Params, checkpoint: str, *, role: str, arch: str | None, num_classes: int | None = None
) -> tuple[nn.Module, dict]:
    """A published network in place of a trained one, and its summary. What was found is said."""
    evaluation = read_eval(paths.evaluation_images(params.dataset.name))
    if role == "core":  # which may see the images at a size of its own
        evaluation = dataclasses.replace(evaluation, image=evaluation.for_core, core_image=None)
    found = import_checkpoint(
        checkpoint,
        dataset=evaluation.info,
        arch=arch,
        num_classes=num_classes,
        sigma=noise_of(params, role),
        evaluation=evaluation,
    )
    for note in found.notes:
        say(f"{role}: {note}")
    concerns = []
    if found.near_chance:
        concerns.append(
            f"{role} network: hardly better than chance on the evaluation images; are the "
            "dataset, the network and the normalisation right? `aces import` lets you choose"
        )
        warn(concerns[0])
    files.write_text(paths.training_curve(role), "epoch\n")  # nothing was trained
    concerned = {"concerns": concerns} if concerns else {}
    return found.module, {"parameters": count(found.module), **concerned}


def noise_of(params: Params, role: str) -> float | None:
    """The noise under which a network is used: none for the core, and none behind a denoiser."""
    denoised = role == "certify" and params.certify.denoiser.arch != "none"
    return None if role == "core" or denoised else params.sigma


def take_pretrained(params: Params, *, role: str, arch: str) -> tuple[nn.Module, dict]:
    """The network with the weights its library publishes, and its summary."""
    info = read_eval(paths.evaluation_images(params.dataset.name)).info
    network = networks.pretrained(arch, num_classes=info.num_classes, channels=info.shape[0])
    say(f"{role}: the pretrained weights of {arch}")
    files.write_text(paths.training_curve(role), "epoch\n")  # nothing was trained
    return network, {"parameters": count(network)}


def write_network(params: Params, network: nn.Module, *, role: str, **metadata: Any) -> None:
    """Write a network, and how to build it again. The same network gives the same bytes."""
    recipe: dict[str, Any] = network.recipe  # type: ignore[assignment]
    path = paths.network(role)
    networks.save_model(path, network, **recipe, dataset=params.dataset.name, **metadata)


def is_published(checkpoint: str) -> bool:
    return checkpoint != NONE


def read_training(params: Params) -> TrainSet:
    return read_train(paths.training_images(params.dataset.name))


def training_runtime() -> runtime.Runtime:
    return runtime.from_environment(scratch=paths.scratch() / "training")


def checkpoint_name(checkpoint: str) -> str:
    """What the header of a network says of its origin: the same on every machine."""
    return Path(checkpoint).name


def _warn(role: str, concerns: list[str]) -> None:
    for concern in concerns:
        warn(f"{role}: {concern}")


def count(network: nn.Module) -> int:
    """How many weights a network has."""
    return sum(weight.numel() for weight in network.parameters())
