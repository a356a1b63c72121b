"""Residual networks of many projects are recognised from their tensors, and compute the same.

The networks here are written once more, from the papers and with the names of the projects, and
independently of `aces.networks`. An imported file must give exactly their logits.
"""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aces import data, networks
from aces.errors import InputError
from aces.networks import reading
from aces.networks.structure import read_structure
from published import save


def conv(width_in, width_out, kernel=3, stride=1, **options):
    options = {"bias": False} | options
    return nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, **options)


class Basic(nn.Module):
    """Two convolutions, batch norm after each (kuangliu/pytorch-cifar, resnet.py)."""

    expansion = 1

    def __init__(self, width_in, width, stride, shortcut, inner=None):
        super().__init__()
        inner = inner or width
        self.conv1, self.bn1 = conv(width_in, inner, stride=stride), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = conv(inner, width), nn.BatchNorm2d(width)
        self.shortcut = shortcut(width_in, width, stride)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 (kuangliu/pytorch-cifar, resnet.py)."""

    expansion = 4

    def __init__(self, width_in, width, stride, shortcut, early=False):
        super().__init__()
        first, second = (stride, 1) if early else (1, stride)
        self.conv1, self.bn1 = conv(width_in, width, 1, first), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, second), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.shortcut = shortcut(width_in, 4 * width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + self.shortcut(x))


class Before(nn.Module):
    """Batch norm before two convolutions (kuangliu's preact_resnet.py; raw: wide-resnet.pytorch)."""

    expansion = 1

    def __init__(self, width_in, width, stride, shortcut, raw=False):
        super().__init__()
        self.raw, self.changes = raw, stride > 1 or width_in != width
        self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, stride=stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width)
        if self.changes:
            self.shortcut = nn.Sequential(conv(width_in, width, 1, stride))

    def forward(self, x):
        active = F.relu(self.bn1(x))
        around = self.shortcut(x if self.raw else active) if self.changes else x
        return self.conv2(F.relu(self.bn2(self.conv1(active)))) + around


class BeforeBottleneck(nn.Module):
    """Batch norm before 1x1, 3x3, 1x1 (kuangliu/pytorch-cifar, preact_resnet.py)."""

    expansion = 4

    def __init__(self, width_in, width, stride, shortcut):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width, 3, stride)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), conv(width, 4 * width, 1)
        if stride > 1 or width_in != 4 * width:
            self.shortcut = nn.Sequential(conv(width_in, 4 * width, 1, stride))

    def forward(self, x):
        active = F.relu(self.bn1(x))
        y = self.conv2(F.relu(self.bn2(self.conv1(active))))
        around = self.shortcut(active) if hasattr(self, "shortcut") else x
        return self.conv3(F.relu(self.bn3(y))) + around


def projected(width_in, width, stride):
    if stride == 1 and width_in == width:
        return nn.Sequential()
    return nn.Sequential(conv(width_in, width, 1, stride), nn.BatchNorm2d(width))


def pooled(width_in, width, stride):
    """As in ResNet-D: a mean before the projection."""
    if stride == 1 and width_in == width:
        return nn.Sequential()
    return nn.Sequential(nn.AvgPool2d(stride), conv(width_in, width, 1), nn.BatchNorm2d(width))


class Padded(nn.Module):
    def __init__(self, zeros, stride, mean):
        super().__init__()
        self.zeros, self.stride, self.mean = zeros, stride, mean

    def forward(self, x):
        step = self.stride
        x = F.avg_pool2d(x, step) if self.mean else x[:, :, ::step, ::step]
        return F.pad(x, (0, 0, 0, 0, *self.zeros))


def padded(*, end, mean):
    def shortcut(width_in, width, stride):
        zeros = width - width_in
        if zeros == 0:
            return nn.Sequential()
        return Padded((0, zeros) if end else (zeros // 2, zeros // 2), stride, mean)

    return shortcut


class ResNet(nn.Module):
    def __init__(self, block, blocks, width, shortcut=projected, *, last="linear", pool=False):
        super().__init__()
        self.before = issubclass(block, (Before, BeforeBottleneck))
        self.pool, self.last, self.stages = pool, last, len(blocks)
        self.conv1 = conv(3, width)
        if not self.before:
            self.bn1 = nn.BatchNorm2d(width)
        width_in = width
        for stage, count in enumerate(blocks):
            parts = []
            for place in range(count):
                stride = 2 if stage and not place else 1
                parts.append(block(width_in, width * 2**stage, stride, shortcut))
                width_in = width * 2**stage * parts[0].expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*parts))
        self.add_module(last, nn.Linear(width_in, 10))

    def forward(self, x):
        x = self.conv1(x)
        x = x if self.before else F.relu(self.bn1(x))
        x = F.max_pool2d(x, 3, 2, 1) if self.pool else x
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return self.get_submodule(self.last)(x.mean((2, 3)))


class Raw(Before):
    def __init__(self, *arguments):
        super().__init__(*arguments, raw=True)


class Early(Bottleneck):
    def __init__(self, *arguments):
        super().__init__(*arguments, early=True)


class Pruned(Basic):
    """A block that lost some of its inner channels."""

    def __init__(self, width_in, width, stride, shortcut):
        super().__init__(width_in, width, stride, shortcut, inner=width - 3)


class Wide(nn.Module):
    """xternalz/WideResNet-pytorch: `block1.layer.0.convShortcut`, batch norm at the end."""

    class Block(nn.Module):
        def __init__(self, width_in, width, stride):
            super().__init__()
            self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, stride=stride)
            self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width)
            same = width_in == width
            self.convShortcut = None if same else conv(width_in, width, 1, stride)

        def forward(self, x):
            active = F.relu(self.bn1(x))
            y = self.conv2(F.relu(self.bn2(self.conv1(active))))
            return y + (x if self.convShortcut is None else self.convShortcut(active))

    class Stage(nn.Module):
        def __init__(self, count, width_in, width, stride):
            super().__init__()
            first = Wide.Block(width_in, width, stride)
            rest = (Wide.Block(width, width, 1) for _ in range(count - 1))
            self.layer = nn.Sequential(first, *rest)

    def __init__(self, depth, factor, *, unused=False):
        super().__init__()
        count, widths = (depth - 4) // 6, [16, 16 * factor, 32 * factor, 64 * factor]
        self.conv1 = conv(3, 16)
        for stage in range(3):
            part = Wide.Stage(count, widths[stage], widths[stage + 1], 1 if stage == 0 else 2)
            self.add_module(f"block{stage + 1}", part)
            if unused and stage == 0:
                self.sub_block1 = Wide.Stage(count, widths[0], widths[1], 1)
        self.bn1, self.fc = nn.BatchNorm2d(widths[3]), nn.Linear(widths[3], 10)

    def forward(self, x):
        x = self.conv1(x)
        for stage in range(3):
            x = self.get_submodule(f"block{stage + 1}").layer(x)
        return self.fc(F.relu(self.bn1(x)).mean((2, 3)))


class Weiaicunzai(nn.Module):
    """weiaicunzai/pytorch-cifar100: `conv2_x.0.residual_function.0`, `conv1.0`."""

    class Block(nn.Module):
        def __init__(self, width_in, width, stride):
            super().__init__()
            self.residual_function = nn.Sequential(
                conv(width_in, width, stride=stride),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                conv(width, width),
                nn.BatchNorm2d(width),
            )
            self.shortcut = projected(width_in, width, stride)

        def forward(self, x):
            return F.relu(self.residual_function(x) + self.shortcut(x))

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU())
        self.conv2_x = nn.Sequential(self.Block(6, 6, 1), self.Block(6, 6, 1), self.Block(6, 6, 1))
        self.conv3_x = nn.Sequential(self.Block(6, 10, 2), self.Block(10, 10, 1))
        self.fc = nn.Linear(10, 10)

    def forward(self, x):
        return self.fc(self.conv3_x(self.conv2_x(self.conv1(x))).mean((2, 3)))


def trained(network: nn.Module) -> nn.Module:
    """Random values everywhere, as if it were trained; answers differ between images."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
        elif tensor.ndim == 1:
            tensor.copy_(0.5 + 0.5 * torch.randn(tensor.shape, generator=generator))
        elif tensor.ndim == 4:
            spread = (2 / tensor[0].numel()) ** 0.5
            tensor.copy_(spread * torch.randn(tensor.shape, generator=generator))
    return network.eval()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


def images(count: int) -> np.ndarray:
    """Coarse coloured patterns (N, 32, 32, 3) uint8, on which networks differ."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return coarse.repeat(8, axis=1).repeat(8, axis=2)


def logits(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return network(x)


NETWORKS = {
    "wide": lambda: Wide(16, 2),
    "wide, three blocks a stage": lambda: Wide(22, 1),
    "wide, with an unused block": lambda: Wide(10, 2, unused=True),
    "pre-activation": lambda: ResNet(Before, (2, 2, 2, 2), 8),
    "pre-activation bottleneck": lambda: ResNet(BeforeBottleneck, (2, 2, 2, 2), 4),
    "bottleneck": lambda: ResNet(Bottleneck, (3, 4, 6, 3), 4),
    "pruned": lambda: ResNet(Pruned, (3, 3, 3), 16),
    "odd width": lambda: ResNet(Basic, (2, 1, 3), 11, last="classifier"),
    "mean before a projection": lambda: ResNet(Basic, (2, 2, 2), 8, pooled),
    "weiaicunzai": Weiaicunzai,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("prefix, container", [("", None), ("module.", "net"), ("1.", "model")])
def test_recognised_and_the_same(name, prefix, container):
    reference = trained(NETWORKS[name]())
    state = {prefix + key: tensor for key, tensor in reference.state_dict().items()}
    path = save({container: state, "acc": 95.0} if container else state)
    found = networks.import_checkpoint(path, dataset="cifar10", normalization="none")
    assert found.arch.startswith("residual")
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(logits(found.module, x), logits(reference, x))


@pytest.mark.parametrize("name", ["wide", "bottleneck", "pruned"])
def test_saved_named_in_params_and_loaded_again(name):
    reference = trained(NETWORKS[name]())
    found = networks.import_checkpoint(save(reference.state_dict()), dataset="cifar10")
    networks.save_model("a.safetensors", found.module, **found.module.recipe)
    again = networks.load_model("a.safetensors")
    assert networks.identity(again) == networks.identity(found.module)
    # As the stages do with `core.checkpoint: a.safetensors`, `core.arch: residual`:
    taken = networks.import_checkpoint("a.safetensors", dataset="cifar10", arch=found.arch)
    assert networks.fingerprint(taken.module) == networks.fingerprint(found.module)
    with pytest.raises(InputError, match=f"holds {found.arch}, not arch='small'"):
        networks.import_checkpoint(save(reference.state_dict()), dataset="cifar10", arch="small")


VARIANTS = {
    "cifar_resnet20-a": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=False, mean=False)),
    "cifar_resnet20-a-end": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=True, mean=False)),
    "residual-mean": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=False, mean=True)),
    "residual-end-mean": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=True, mean=True)),
    "cifar_resnet18-w8": lambda: ResNet(Basic, (2, 2, 2, 2), 8),
    "residual-pool": lambda: ResNet(Basic, (2, 2, 2, 2), 8, pool=True),
    "residual": lambda: ResNet(Before, (2, 2, 2), 8),
    "residual-raw": lambda: ResNet(Raw, (2, 2, 2), 8),
    "residual-early": lambda: ResNet(Early, (2, 2, 2), 8),
}


@pytest.mark.parametrize("arch", VARIANTS)
def test_images_decide_what_the_tensors_do_not_tell(arch):
    """The labels are the network's own answers, so that it alone is right on all images."""
    reference = trained(VARIANTS[arch]())
    pictures = images(100)
    info = data.info("cifar10")
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (info.mean, info.std))
    x = (data.to_tensor(pictures) - mean) / std
    reference.linear.bias.data -= logits(reference, x).mean(0)  # so that the answers differ
    evaluation = data.EvalSet(
        image=pictures,
        label=logits(reference, x).argmax(1).numpy(),
        index=np.arange(100),
        classes=info.classes,
        mean=info.mean,
        std=info.std,
        name="cifar10",
    )
    assert len(set(evaluation.label.tolist())) > 2
    found = networks.import_checkpoint(
        save(reference.state_dict()), dataset="cifar10", evaluation=evaluation
    )
    assert (found.arch, found.normalization, found.accuracy) == (arch, "full", 1.0)


def test_layers_that_distiller_removed_are_left_out():
    """Their weights are zero, and its networks skip them: batch norm would add its bias."""
    reference = trained(ResNet(Basic, (2, 2, 2), 16))
    state = reference.state_dict()
    state["layer1.1.conv1.weight"].zero_()
    state["layer1.1.conv2.weight"].zero_()
    block = reference.layer1[1]
    block.forward = lambda x: F.relu(x + x)  # both gates closed: the input and the shortcut
    found = read_structure(
        {name: state[name] for name in state if not name.endswith(reading.COUNTER)}, channels=3
    )
    assert found is not None and "residual-removed" in found.names
    network = networks.build(
        "residual-removed",
        num_classes=10,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
        options=found.plan.as_options(),
    )
    network.network.load_state_dict(network.network.state_dict() | found.state)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(logits(network.eval(), x), logits(reference, x))


def test_what_is_no_residual_network_is_refused():
    """A missing block, a layer too many, other kinds of layers: better refused than guessed."""
    state = trained(ResNet(Pruned, (3, 3, 3), 16)).state_dict()
    cut = {name: state[name] for name in state if not name.startswith("layer2.1.")}
    more = state | {"extra.weight": torch.zeros(3, 3, 3)}
    wider = state | {"layer1.0.bn1.weight": torch.zeros(7)}
    for damaged in (cut, more, wider):
        with pytest.raises(InputError, match="nor another residual network"):
            networks.import_checkpoint(save(damaged), dataset="cifar10")


def test_damaged_structures_are_one_line():
    reference = trained(NETWORKS["wide"]())
    found = networks.import_checkpoint(save(reference.state_dict()), dataset="cifar10")
    recipe = found.module.recipe
    for options in ({}, {"stem": 3}, recipe["options"] | {"blocks": [{}]}):
        broken = recipe | {"options": options}
        with pytest.raises(InputError, match="import|checkpoint"):
            networks.build(**broken)
    huge = json.loads(json.dumps(recipe["options"]))
    huge["stem"]["width"] = 10**9
    networks.save_model("a.safetensors", found.module, **(recipe | {"options": huge}))
    for load in (
        networks.load_model,
        lambda path: networks.load_checkpoint(path, dataset="cifar10"),
    ):
        with pytest.raises(InputError) as caught:
            load("a.safetensors")
        assert "\n" not in str(caught.value)
