"""Published checkpoints: every format loads strictly, bad files give one line."""

import argparse
import collections
import pickle
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import published
from aces import networks
from aces.errors import InputError
from aces.networks import lanet
from published import cohen, normalisation, save

CIFAR_MEAN, CIFAR_STD = (
    (0.4914, 0.4822, 0.4465),
    (0.2023, 0.1994, 0.2010),
)  # locuslab/smoothing, datasets.py
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ONES, ZEROS = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No evaluation images lie about, unless a test puts them there."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


def assert_holds(module: nn.Module, state: dict) -> None:
    """The network has exactly these weights."""
    mine = module.network.state_dict()
    bare = {
        name.removeprefix("1.").removeprefix("module."): tensor for name, tensor in state.items()
    }
    assert mine.keys() == bare.keys()
    assert all(torch.equal(mine[name], bare[name]) for name in mine)


# --- formats ---


@pytest.mark.parametrize("depth", [20, 110])
def test_cohen_on_cifar(depth):
    tree = cohen(published.cifar_resnet(depth), arch=f"cifar_resnet{depth}")
    found = networks.import_checkpoint(save(tree), dataset="cifar10")
    assert_holds(found.module, tree["state_dict"])
    assert (found.format, found.arch, found.num_classes) == (
        "Cohen et al.",
        f"cifar_resnet{depth}",
        10,
    )
    assert normalisation(found) == ("full", CIFAR_MEAN, CIFAR_STD)
    assert not found.module.training


def test_cohen_on_imagenet_through_data_parallel():
    tree = cohen(published.resnet50(), arch="resnet50", prefix="1.module.")
    found = networks.import_checkpoint(save(tree), dataset="imagenet")
    assert_holds(found.module, tree["state_dict"])
    assert normalisation(found) == ("full", IMAGENET_MEAN, IMAGENET_STD)


def test_old_file_without_zip_and_batch_counters():
    tree = cohen(published.cifar_resnet(20), arch="cifar_resnet20")
    tree["state_dict"] = {
        name: tensor for name, tensor in tree["state_dict"].items() if "num_batches" not in name
    }
    module = networks.load_checkpoint(
        save(tree, _use_new_zipfile_serialization=False), dataset="cifar10"
    )
    assert torch.equal(module.network.conv1.weight, tree["state_dict"]["1.conv1.weight"])


def test_macer_takes_raw_pixels():
    tree = {"net": published.state_dict(published.cifar_resnet(110)), "epoch": 440}
    found = networks.import_checkpoint(save(tree, "macer/noise_0.25/0.25.pth"), dataset="cifar10")
    assert_holds(found.module, tree["net"])
    assert (found.format, found.arch, found.sigma) == ("MACER", "cifar_resnet110", 0.25)
    assert normalisation(found) == ("none", ZEROS, ONES)


def test_selection_network_of_aces_has_two_outputs():
    tree = cohen(published.cifar_resnet(110, num_classes=2), arch="cifar_resnet110_binary")
    path = save(tree, "selection_model_gaussian_025_binary_050/checkpoint.pth.tar")
    found = networks.import_checkpoint(path, dataset="cifar10")
    assert_holds(found.module, tree["state_dict"])
    assert (found.arch, found.num_classes, found.normalization) == ("cifar_resnet110", 2, "full")
    with pytest.raises(InputError, match="has 2 outputs, expected 10"):
        networks.import_checkpoint(path, dataset="cifar10", num_classes=10)


def test_lanet(monkeypatch):
    monkeypatch.setattr(lanet, "WIDTH", 4)  # names and shapes at full width: test_models.py
    tree = {
        "epoch": 1,
        "model_state_dict": published.state_dict(published.lanet(width=4)),
        "optimizer_state_dict": {},
    }
    found = networks.import_checkpoint(save(tree, "lanas_128_99.03/top1.pt"), dataset="cifar10")
    assert_holds(found.module, tree["model_state_dict"])
    assert (found.format, found.arch) == ("LaNet", "lanet")
    assert normalisation(found) == (
        "full",
        (0.49139968, 0.48215827, 0.44653124),
        (0.24703233, 0.24348505, 0.26158768),
    )


@pytest.mark.parametrize(
    "name, prefix", [("resnet50-0676ba61.pth", ""), ("renamed.pth", "module.")]
)
def test_torchvision_and_plain_state_dicts(name, prefix):
    state = published.state_dict(published.resnet50(), prefix=prefix)
    found = networks.import_checkpoint(save(state, name), dataset="imagenet")
    assert_holds(found.module, state)
    assert (found.format, found.arch, found.normalization) == ("state dict", "resnet50", "full")


def test_second_heads_of_torchvision_files_are_left_out():
    from aces.vision import torchvision

    state = torchvision.models.googlenet(
        weights=None, aux_logits=True, init_weights=False
    ).state_dict()
    found = networks.import_checkpoint(save(state, "googlenet-1378be20.pth"), dataset="imagenet")
    assert found.arch == "googlenet"
    assert torch.equal(found.module.network.fc.weight, state["fc.weight"])
    assert found.module.network.transform_input  # as torchvision runs its published weights


def test_own_files_keep_their_normalisation_and_fingerprint():
    module = networks.build("tiny", num_classes=10, mean=(0.1,), std=(0.7,)).eval()
    module.network.head.bias.data.fill_(0.5)
    networks.save_model(
        "own.safetensors", module, arch="tiny", num_classes=10, mean=(0.1,), std=(0.7,)
    )
    found = networks.import_checkpoint("own.safetensors", dataset="digits")
    assert (found.format, found.normalization) == ("ACES safetensors", "recorded")
    assert (found.mean, found.std) == ((0.1,), (0.7,))
    assert networks.fingerprint(found.module) == networks.fingerprint(module)
    plain = networks.import_checkpoint(save(module.state_dict(), "plain.pt"), dataset="digits")
    assert (plain.arch, plain.normalization) == ("tiny", "recorded")
    assert networks.fingerprint(plain.module) == networks.fingerprint(module)


# --- refusals ---


class Command:
    """Unpickled, it would write a file."""

    def __reduce__(self):
        return (exec, ("open('executed', 'w').close()",))


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, zipped):
    tree = cohen(published.cifar_resnet(20), arch="cifar_resnet20", extra=Command())
    path = save(tree, _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        InputError, match="refused, since it holds more than tensors; nothing of it was run"
    ):
        networks.load_checkpoint(path, dataset="cifar10")
    assert not (tmp_path / "executed").exists()
    torch.load(path, weights_only=False)  # the trap is real
    assert (tmp_path / "executed").exists()


def test_bare_pickle_with_code_is_refused_and_not_run(tmp_path):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Command(), protocol=2))
    with pytest.raises(InputError, match="refused"):
        networks.load_checkpoint("evil.pth", dataset="cifar10")
    assert not (tmp_path / "executed").exists()


def trap(tmp_path, name: str) -> None:
    """A module that leaves a file behind when it is imported."""
    (tmp_path / f"{name}.py").write_text("open('executed', 'w').close()\n")


def test_the_name_of_a_network_in_a_file_runs_nothing(tmp_path):
    """`arch` in a foreign file may look like package.module:function: only the user's may."""
    trap(tmp_path, "trap_a")
    tree = cohen(published.cifar_resnet(20), arch="trap_a:build")
    found = networks.import_checkpoint(save(tree), dataset="cifar10")
    assert found.arch == "cifar_resnet20"
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("nested", [False, True])
def test_the_header_of_a_safetensors_file_runs_nothing(tmp_path, nested):
    trap(tmp_path, "trap_b")
    module = networks.build("tiny", num_classes=10, mean=(0.1,) * 3, std=(0.7,) * 3)
    recipe = module.recipe | {"arch": "trap_b:build", "options": {"source": "x"}}
    if nested:
        recipe = recipe | {"arch": "resized", "options": {"size": 8, "network": recipe}}
    networks.save_model("own.safetensors", module, **recipe)
    with pytest.raises(InputError, match="is of the function trap_b:build.*if you trust it, name"):
        networks.load_checkpoint("own.safetensors", dataset="cifar10")
    assert not (tmp_path / "executed").exists()


def test_the_header_of_a_denoiser_runs_nothing(tmp_path):
    trap(tmp_path, "trap_c")
    denoiser = networks.build_denoiser("small-denoiser", channels=3)
    denoiser.recipe["arch"] = "trap_c:build"
    networks.save_denoiser("d.safetensors", denoiser)
    with pytest.raises(InputError, match="is of the function trap_c:build.*if you trust it, name"):
        networks.load_denoiser("d.safetensors", channels=3)
    assert not (tmp_path / "executed").exists()


ThinningRecipe = collections.namedtuple("ThinningRecipe", ["modules", "parameters"])


def test_what_scripts_save_beside_the_weights_does_not_matter(monkeypatch):
    """Options, numbers of numpy, distiller's list of what it pruned: placeholders stand for them."""
    distiller = types.ModuleType("distiller.thinning")
    distiller.ThinningRecipe = ThinningRecipe
    monkeypatch.setitem(sys.modules, "distiller", types.ModuleType("distiller"))
    monkeypatch.setitem(sys.modules, "distiller.thinning", distiller)
    monkeypatch.setattr(ThinningRecipe, "__module__", "distiller.thinning")
    tree = cohen(
        published.cifar_resnet(20),
        arch="resnet20_cifar",
        args=argparse.Namespace(lr=0.1, data=Path("data")),
        best_acc=np.float64(91.2),
        curve=np.arange(3.0),
        thinning_recipes=[ThinningRecipe({"conv1": {"out_channels": 12}}, {"conv1.weight": []})],
    )
    found = networks.import_checkpoint(save(tree), dataset="cifar10")
    assert_holds(found.module, tree["state_dict"])


def random_weights(seed: int) -> dict:
    return published.state_dict(published.cifar_resnet(20), seed=seed)


def wrapped(state: dict) -> dict:
    """As torch.optim.swa_utils.AveragedModel saves a network."""
    return {"n_averaged": torch.tensor(7)} | {f"module.{name}": it for name, it in state.items()}


LAST, AVERAGED = random_weights(1), random_weights(2)
PARAMETERS = {name: it for name, it in AVERAGED.items() if "running" not in name}


@pytest.mark.parametrize(
    "tree, expected",
    [
        ({"model": LAST, "model_ema": AVERAGED, "args": argparse.Namespace()}, AVERAGED),
        ({"state_dict": LAST, "ema": {"module": AVERAGED, "decay": 0.999}}, AVERAGED),
        ({"model": LAST, "ema_model": wrapped(AVERAGED)}, AVERAGED),
        (wrapped(AVERAGED), AVERAGED),
        ({"model": LAST, "ema": PARAMETERS}, LAST),  # without the statistics of batch norm
        ({"best_model": LAST, "best": torch.tensor(0.9)}, LAST),
    ],
)
def test_averaged_weights_are_preferred_if_they_are_complete(tree, expected):
    found = networks.import_checkpoint(save(tree), dataset="cifar10")
    assert found.arch == "cifar_resnet20"
    assert_holds(found.module, expected)


def test_whole_networks_are_refused():
    with pytest.raises(InputError, match="save its state dict alone"):
        networks.load_checkpoint(save(nn.Linear(2, 2)), dataset="cifar10")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.999])
def test_truncated(zipped, share):
    path = save(
        cohen(published.cifar_resnet(20), arch="cifar_resnet20"),
        _use_new_zipfile_serialization=zipped,
    )
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        InputError, match=f"^checkpoint {path} is damaged or truncated.*get it again$"
    ):
        networks.load_checkpoint(path, dataset="cifar10")


def test_truncated_safetensors(tmp_path):
    module = networks.build("tiny", num_classes=10, mean=(0.1,), std=(0.7,))
    networks.save_model(
        "own.safetensors", module, arch="tiny", num_classes=10, mean=(0.1,), std=(0.7,)
    )
    (tmp_path / "own.safetensors").write_bytes((tmp_path / "own.safetensors").read_bytes()[:-50])
    with pytest.raises(InputError, match="damaged or truncated"):
        networks.load_checkpoint("own.safetensors", dataset="digits")


def without(tree: dict, pattern: str) -> dict:
    kept = {
        name: tensor for name, tensor in tree["state_dict"].items() if not re.search(pattern, name)
    }
    return tree | {"state_dict": kept}


RESNET20 = published.state_dict(published.cifar_resnet(20))


@pytest.mark.parametrize(
    "tree, message",
    [
        (
            without(cohen(published.cifar_resnet(20), arch="cifar_resnet20"), "layer3"),
            r"does not fit cifar_resnet20, keys: 35 are missing "
            r"\(layer3.0.conv1.weight, layer3.0.bn1.weight, ...\)",
        ),
        (
            cohen(published.cifar_resnet(20, num_classes=100), arch="cifar_resnet20"),
            "has 100 outputs, expected 10",
        ),
        (
            {"net": published.state_dict(published.cifar_resnet(110, num_classes=100))},
            "has 100 outputs, expected 10",
        ),
        (
            RESNET20 | {"conv1.weight": torch.zeros(16, 3, 5, 5)},
            "does not say which network it holds",
        ),
        ({"weights": [1, 2]}, "of no known format"),
        ({}, "of no known format"),
        ([1, 2], "holds a list: expected a state dict"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tree, message):
    with pytest.raises(InputError, match=message) as caught:
        networks.load_checkpoint(save(tree), dataset="cifar10")
    assert "\n" not in str(caught.value)


def test_other_refusals():
    with pytest.raises(InputError, match="checkpoint nowhere.pth does not exist"):
        networks.load_checkpoint("nowhere.pth", dataset="cifar10")
    path = save(cohen(published.cifar_resnet(20), arch="cifar_resnet20"))
    with pytest.raises(
        InputError, match="holds cifar_resnet20, not arch='small': set the arch to cifar_resnet20"
    ):
        networks.load_checkpoint(path, dataset="cifar10", arch="small")
    with pytest.raises(
        InputError, match="normalization='third': expected one of auto, full, center, none"
    ):
        networks.load_checkpoint(path, dataset="cifar10", normalization="third")
    path = save(RESNET20 | {"conv1.weight": torch.zeros(16, 3, 5, 5)})
    with pytest.raises(InputError, match=r"keys: 1 have another shape \(conv1.weight\)"):
        networks.load_checkpoint(path, dataset="cifar10", arch="cifar_resnet20")
