"""Published checkpoints, made from their descriptions alone: the exact names and shapes, with
random values.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def batch_norm(name: str, width: int) -> Shapes:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (width,)
    yield f"{name}.num_batches_tracked", ()


def cifar_resnet(depth: int, num_classes: int = 10) -> Shapes:
    """locuslab/smoothing, code/archs/cifar_resnet.py; RuntianZ/macer, model.py has the same
    names."""
    yield "conv1.weight", (16, 3, 3, 3)
    yield from batch_norm("bn1", 16)
    before = 16
    for layer, width in ((1, 16), (2, 32), (3, 64)):
        for block in range((depth - 2) // 6):
            name = f"layer{layer}.{block}"
            yield f"{name}.conv1.weight", (width, before, 3, 3)
            yield from batch_norm(f"{name}.bn1", width)
            yield f"{name}.conv2.weight", (width, width, 3, 3)
            yield from batch_norm(f"{name}.bn2", width)
            if before != width:
                yield f"{name}.downsample.0.weight", (width, before, 1, 1)
                yield from batch_norm(f"{name}.downsample.1", width)
            before = width
    yield "fc.weight", (num_classes, 64)
    yield "fc.bias", (num_classes,)


def resnet50(num_classes: int = 1000) -> Shapes:
    """torchvision/models/resnet.py."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from batch_norm("bn1", 64)
    before = 64
    for layer, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            for number, shape in (
                (1, (width, before, 1, 1)),
                (2, (width, width, 3, 3)),
                (3, (4 * width, width, 1, 1)),
            ):
                yield f"{name}.conv{number}.weight", shape
                yield from batch_norm(f"{name}.bn{number}", shape[0])
            if block == 0:
                yield f"{name}.downsample.0.weight", (4 * width, before, 1, 1)
                yield from batch_norm(f"{name}.downsample.1", 4 * width)
            before = 4 * width
    yield "fc.weight", (num_classes, 2048)
    yield "fc.bias", (num_classes,)


# (operation, state) twice for each of the seven nodes: the list in the README there, decoded by its
# nasnet_set.py
LANET_NODES = (
    ("skip", 0, "skip", 1),
    ("sep3", 1, "skip", 1),
    ("max3", 2, "skip", 1),
    ("sep3", 1, "skip", 0),
    ("skip", 3, "sep5", 4),
    ("skip", 3, "max3", 0),
    ("skip", 3, "sep3", 1),
)


def lanet(width: int = 128, cells: int = 24) -> Shapes:
    """facebookresearch/LaMCTS, LaNAS/LaNet/CIFAR10/model.py and operations.py."""

    def project(name: str, before: int, after: int) -> Shapes:
        yield f"{name}.op.1.weight", (after, before, 1, 1)
        yield from batch_norm(f"{name}.op.2", after)

    def halve(name: str, before: int, after: int) -> Shapes:
        yield f"{name}.conv_1.weight", (after // 2, before, 1, 1)
        yield f"{name}.conv_2.weight", (after // 2, before, 1, 1)
        yield from batch_norm(f"{name}.bn", after)

    def separable(name: str, width: int, size: int) -> Shapes:
        for first in (1, 5):
            yield f"{name}.op.{first}.weight", (width, 1, size, size)
            yield f"{name}.op.{first + 1}.weight", (width, width, 1, 1)
            yield from batch_norm(f"{name}.op.{first + 2}", width)

    yield "stem.0.weight", (3 * width, 3, 3, 3)
    yield from batch_norm("stem.1", 3 * width)
    before = last = 3 * width
    for cell in range(cells):
        reduction, after_reduction = (
            cell in (cells // 3, 2 * cells // 3),
            cell - 1 in (cells // 3, 2 * cells // 3),
        )
        width *= 2 if reduction else 1
        yield from (halve if after_reduction else project)(
            f"cells.{cell}.preprocess0", before, width
        )
        yield from project(f"cells.{cell}.preprocess1", last, width)
        operations = [pair for node in LANET_NODES for pair in (node[:2], node[2:])]
        for number, (operation, state) in enumerate(operations):
            name = f"cells.{cell}._ops.{number}"
            if operation.startswith("sep"):
                yield from separable(name, width, int(operation[3]))
            elif operation == "skip" and reduction and state < 2:
                yield from halve(name, width, width)
        before, last = last, 4 * width
    yield "auxiliary_head.features.2.weight", (128, last, 1, 1)
    yield from batch_norm("auxiliary_head.features.3", 128)
    yield "auxiliary_head.features.5.weight", (768, 128, 2, 2)
    yield from batch_norm("auxiliary_head.features.6", 768)
    yield "auxiliary_head.classifier.weight", (10, 768)
    yield "auxiliary_head.classifier.bias", (10,)
    yield "classifier.weight", (10, last)
    yield "classifier.bias", (10,)


def state_dict(shapes: Shapes, *, prefix: str = "", seed: int = 0) -> dict[str, Tensor]:
    """Random weights of these names and shapes; variances are positive, batch counters are whole
    numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes:
        if name.endswith("num_batches_tracked"):
            state[prefix + name] = torch.tensor(17)
        elif name.endswith("running_var"):
            state[prefix + name] = 0.5 + torch.rand(shape, generator=generator)
        else:
            state[prefix + name] = 0.1 * torch.randn(shape, generator=generator)
    return state


def save(tree, name: str = "checkpoint.pth.tar", **options):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tree, path, **options)
    return path


def cohen(shapes, *, arch: str, prefix: str = "1.", **extra) -> dict:
    return {
        "epoch": 90,
        "arch": arch,
        "state_dict": state_dict(shapes, prefix=prefix),
        "optimizer": {"state": {}, "param_groups": []},
    } | extra


def normalisation(found) -> tuple:
    module = found.module.normalize
    assert found.mean == pytest.approx(module.mean.flatten().tolist())
    assert found.std == pytest.approx(module.std.flatten().tolist())
    return found.normalization, found.mean, found.std
