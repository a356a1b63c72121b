"""Residual networks of many projects are recognised from their tensors, and compute the same.

An imported file must give exactly the logits of the networks in `reference_residual`.
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
from reference_residual import NETWORKS, VARIANTS, Basic, Pruned, ResNet, trained


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


@pytest.mark.parametrize("norms", [True, False])
def test_without_images_a_plain_network_is_known_by_its_name(norms):
    """distiller's plain20_cifar and plain20_cifar_nobn have the tensors of a ResNet-20."""
    reference = trained(VARIANTS["residual-plain"]())
    if not norms:
        for name, module in list(reference.named_modules()):
            if isinstance(module, nn.BatchNorm2d):
                parent, _, last = name.rpartition(".")
                setattr(reference.get_submodule(parent), last, nn.Identity())
    state = {f"module.{key}": tensor for key, tensor in reference.state_dict().items()}
    path = save({"arch": "plain20_cifar", "state_dict": state, "compression_sched": {}})
    found = networks.import_checkpoint(path, dataset="cifar10", normalization="none")
    assert found.arch == "residual-plain"
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(logits(found.module, x), logits(reference, x))


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


def without(state: dict, *starts: str) -> dict:
    return {name: state[name] for name in state if not name.startswith(starts)}


NO_RESIDUAL = {
    "the first two blocks are missing": lambda state: without(state, "layer1.0.", "layer1.1."),
    "a block is missing": lambda state: without(state, "layer2.1."),
    "no blocks": lambda state: without(state, "layer"),
    "no last layer": lambda state: without(state, "linear"),
    "no first convolution": lambda state: without(state, "conv1"),
    "a layer of another kind": lambda state: state | {"extra.weight": torch.zeros(3, 3, 3)},
    "two first convolutions": lambda state: state | {"conv0.weight": torch.zeros(16, 3, 3, 3)},
    "two last layers": lambda state: state | {"fc2.weight": torch.zeros(10, 64)},
    "a linear layer in a block": lambda state: state | {"layer1.0.fc.weight": torch.zeros(16, 16)},
    "a norm too many": lambda state: state | norm_of("bn9", 5),
    "a norm too many in a block": lambda state: state | norm_of("layer1.0.bn9", 16),
    "a norm too few in a block": lambda state: without(state, "layer1.0.bn2"),
    "a block without norms": lambda state: without(state, "layer1.0.bn"),
    "two projections": lambda state: (
        state | {"layer1.0.shortcut.5.weight": torch.zeros(16, 16, 1, 1)} | shortcut(16, 16)
    ),
    "a block of a projection alone": lambda state: (
        state | {"layer3.3.shortcut.0.weight": torch.zeros(64, 64, 1, 1)}
    ),
    "a projection of other widths": lambda state: state | shortcut(16, 15),
    "a projection of 5x5": lambda state: state | shortcut(16, 16, 5, 5),
    "a projection of 1x3": lambda state: state | shortcut(16, 16, 1, 3),
    "a projection's norm of another width": lambda state: (
        state | shortcut(16, 16) | norm_of("layer1.0.shortcut.1", 7)
    ),
    "a norm of no projection": lambda state: state | norm_of("layer1.0.shortcut.1", 16),
    "a norm of another width": lambda state: state | norm_of("layer1.0.bn1", 7),
    "a convolution of 5x5": lambda state: (
        state | {"layer1.0.conv2.weight": torch.zeros(16, 16, 5, 5)}
    ),
    "a convolution of 1x3": lambda state: (
        state | {"layer1.0.conv2.weight": torch.zeros(16, 16, 1, 3)}
    ),
}


def norm_of(path: str, width: int) -> dict[str, torch.Tensor]:
    leaves = ("weight", "bias", "running_mean", "running_var")
    return {f"{path}.{leaf}": torch.ones(width) for leaf in leaves}


def shortcut(*shape: int) -> dict[str, torch.Tensor]:
    shape = shape if len(shape) == 4 else (*shape, 1, 1)
    return {"layer1.0.shortcut.0.weight": torch.zeros(shape)}


@pytest.mark.parametrize("kind", NO_RESIDUAL)
def test_what_is_no_residual_network_is_not_guessed(kind):
    """A missing block, a layer too many, other kinds of layers."""
    state = ResNet(Basic, (3, 3, 3), 16).state_dict()
    state = {name: state[name] for name in state if not name.endswith(reading.COUNTER)}
    assert read_structure(state, channels=3) is not None
    assert read_structure(NO_RESIDUAL[kind](state), channels=3) is None


def test_what_is_no_residual_network_is_refused():
    state = trained(ResNet(Pruned, (3, 3, 3), 16)).state_dict()
    with pytest.raises(InputError, match="nor another residual network"):
        networks.import_checkpoint(save(without(state, "layer2.1.")), dataset="cifar10")


def convolution(**changes: object) -> dict:
    return {"width": 16, "kernel": 3, "groups": 1, "bias": False} | changes


def block(**changes: object) -> dict:
    parts = {"convolutions": [convolution()], "stride": 1, "projection": None}
    return parts | {"projection_norm": False, "removed": []} | changes


@pytest.mark.parametrize(
    "change",
    [
        {"stem": convolution(width=0)},
        {"stem": convolution(groups=0)},
        {"stem": convolution(kernel=2)},
        {"stem": convolution(kernel=-1)},
        {"stem": 3},
        {"blocks": [{}]},
        {"blocks": [block(convolutions=[])]},
        {"blocks": [block(stride=3)]},
        {"blocks": [block(projection=convolution(kernel=4))]},
        {"norms": ...},
    ],
    ids=str,
)
def test_plans_that_make_no_sense_are_refused(change):
    flags = dict.fromkeys(("preactivated", "norms", "stem_norm", "final_norm"), True)
    plan = {"stem": convolution(), "blocks": [block()], **flags}
    named = {"num_classes": 10, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    networks.build("residual", options=plan, **named)
    changed = {name: value for name, value in (plan | change).items() if value is not ...}
    with pytest.raises(InputError, match="^the structure of the residual network is damaged: impo"):
        networks.build("residual", options=changed, **named)


def test_residual_networks_are_known_from_files_alone():
    named = {"num_classes": 10, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    with pytest.raises(InputError, match="arch='residual-mean-pool' is what `aces import` finds"):
        networks.build("residual-mean-pool", **named)
    with pytest.raises(InputError, match="arch='residual-pool-mean' is unknown"):
        networks.build("residual-pool-mean", **named)  # the choices have one order


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
