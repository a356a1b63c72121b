"""Architectures by name: CIFAR ResNets of any depth, a function of one's own."""

import sys
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import published
from aces import networks
from aces.errors import InputError
from aces.networks import cifar_resnet, registry

RGB = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


# --- CIFAR ResNets ---


@pytest.mark.parametrize(
    "name, parameters",
    [  # He et al. (2016), table 6, and akamaster's README: shortcuts without parameters
        ("cifar_resnet20-a", 269_722),
        ("cifar_resnet32-a", 464_154),
        ("cifar_resnet44-a", 658_586),
        ("cifar_resnet56-a", 853_018),
        ("cifar_resnet110-a", 1_727_962),
        ("cifar_resnet1202-a", 19_421_274),
        ("cifar_resnet18", 11_173_962),  # kuangliu/pytorch-cifar, ResNet18
    ],
)
def test_published_parameter_counts(name, parameters):
    with torch.device("meta"):
        network = networks.build(name, num_classes=10, **RGB)
    assert sum(weight.numel() for weight in network.parameters()) == parameters


@pytest.mark.parametrize(
    "name", ["cifar_resnet21", "cifar_resnet2", "cifar_resnet20-b", "cifar_resnet20-w0"]
)
def test_depths_that_do_not_exist_are_unknown(name):
    assert cifar_resnet.design(name) is None
    with pytest.raises(InputError, match="is unknown"):
        networks.build(name, num_classes=10, **RGB)


@pytest.mark.parametrize("name", ["cifar_resnet20", "cifar_resnet56-a", "cifar_resnet34-a-end-w8"])
def test_a_design_has_the_name_it_was_made_by(name):
    assert cifar_resnet.design(name).name == name


def slow_padded(state: dict, x: torch.Tensor, *, blocks: int, at_end: bool) -> torch.Tensor:
    def norm(name, x):
        parts = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(state[f"{name}.{part}"] for part in parts))

    x = norm("bn1", F.conv2d(x, state["conv1.weight"], padding=1)).relu()
    for layer in (1, 2, 3):
        for block in range(blocks):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(norm(f"{name}.bn1", y).relu(), state[f"{name}.conv2.weight"], padding=1)
            if stride == 2:
                small, zeros = x[:, :, ::2, ::2], torch.zeros_like(x[:, :, ::2, ::2])
                half = zeros[:, : zeros.shape[1] // 2]
                x = torch.cat((small, zeros) if at_end else (half, small, half), dim=1)
            x = (x + norm(f"{name}.bn2", y)).relu()
    return F.linear(x.mean(dim=(2, 3)), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize("name", ["cifar_resnet20-a", "cifar_resnet20-a-end"])
def test_shortcuts_without_parameters_are_their_definition(name):
    network = networks.build(name, num_classes=10, **RGB).network.eval()
    state = published.state_dict(
        (key, tuple(tensor.shape)) for key, tensor in network.state_dict().items()
    )
    network.load_state_dict(state)
    x = torch.randn(2, 3, 16, 16)
    expected = slow_padded(state, x, blocks=3, at_end=name.endswith("end"))
    torch.testing.assert_close(network(x), expected, atol=1e-4, rtol=1e-4)


def padded_state(depth: int) -> dict[str, torch.Tensor]:
    """The state dict of a network with shortcuts that have no parameters."""
    shapes = (
        (name, shape) for name, shape in published.cifar_resnet(depth) if "downsample" not in name
    )
    return published.state_dict(shapes)


def renamed(state: dict, **names: str) -> dict:
    found = {}
    for name, tensor in state.items():
        for old, new in names.items():
            name = name.replace(old, new)
        found[name] = tensor
    return found


WRAPPERS = {
    "akamaster": lambda state: {
        "best_prec1": 93.0,
        "state_dict": {f"module.{k}": v for k, v in renamed(state, fc="linear").items()},
    },
    "plain": lambda state: state,
    "lightning": lambda state: {
        "state_dict": {f"model.net.{k}": v for k, v in state.items()},
        "pytorch-lightning_version": "2.0",
    },
    "lightning with a loss and a metric": lambda state: {
        "state_dict": {f"model.{k}": v for k, v in state.items()}
        | {"criterion.weight": torch.ones(10), "val_accuracy.confmat": torch.zeros(10, 10)},
        "pytorch-lightning_version": "2.0",
    },
    "compiled": lambda state: {"model": {f"_orig_mod.module.{k}": v for k, v in state.items()}},
    "an arch of its own": lambda state: {"arch": "resnet_cifar", "epoch": 3, "state_dict": state},
    "under a name nobody knows": lambda state: {"epoch": 3, "my_weights": state},
    "other names": lambda state: renamed(
        state, layer1="stage_1", layer2="stage_2", layer3="stage_3", conv1="conv_a", bn2="bn_b"
    ),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("depth, padded", [(20, True), (32, False), (44, True)])
def test_any_depth_in_any_wrapper_is_found(depth, padded, wrapper):
    state = padded_state(depth) if padded else published.state_dict(published.cifar_resnet(depth))
    torch.save(WRAPPERS[wrapper](state), "a.pth")
    found = networks.import_checkpoint("a.pth", dataset="cifar10")
    assert found.arch == f"cifar_resnet{depth}" + ("-a" if padded else "")
    mine = found.module.network.state_dict()
    weights = [name for name in state if not name.endswith("num_batches_tracked")]
    assert all(torch.equal(mine[name], state[name]) for name in weights)


def test_hyperparameters_of_lightning_are_not_needed():
    """Its files hold them in a class of its own, which need not be installed."""
    names = ["lightning_fabric", "lightning_fabric.utilities", "lightning_fabric.utilities.data"]
    state = {f"net.{k}": v for k, v in published.state_dict(published.cifar_resnet(20)).items()}
    with pytest.MonkeyPatch.context() as installed:
        for name in names:
            installed.setitem(sys.modules, name, types.ModuleType(name))
        kind = type("AttributeDict", (dict,), {"__module__": names[-1]})
        installed.setattr(sys.modules[names[-1]], "AttributeDict", kind, raising=False)
        hyper = kind(lr=0.1, net="resnet20")
        torch.save({"state_dict": state, "hyper_parameters": hyper}, "a.ckpt")
    assert networks.import_checkpoint("a.ckpt", dataset="cifar10").arch == "cifar_resnet20"


def test_quantised_networks_are_refused_in_a_line_that_says_so():
    """distiller's networks after quantisation: whole numbers, with scales beside them."""
    state = published.state_dict(published.cifar_resnet(20))
    state |= {"conv1.weight_zero_point": torch.zeros(1), "conv1.weight_scale": torch.ones(1)}
    torch.save({"arch": "resnet20_cifar", "state_dict": state}, "a.pth")
    with pytest.raises(InputError, match="holds a quantised network: take the file from before"):
        networks.import_checkpoint("a.pth", dataset="cifar10")


def test_shortcuts_by_another_name_and_in_safetensors():
    """safetensors has no order of its own: here the names must tell."""
    import safetensors.torch

    state = published.state_dict(published.cifar_resnet(20))
    changed = renamed(state, downsample="shortcut", fc="linear")
    safetensors.torch.save_file(changed, "a.safetensors")
    found = networks.import_checkpoint("a.safetensors", dataset="cifar10")
    assert found.arch == "cifar_resnet20"
    assert torch.equal(found.module.network.fc.weight, state["fc.weight"])


def test_what_the_file_says_and_the_user_asks_is_compared_with_what_it_holds():
    state = published.state_dict(published.cifar_resnet(20))
    torch.save({"arch": "cifar_resnet110", "state_dict": state}, "a.pth")
    found = networks.import_checkpoint("a.pth", dataset="cifar10")
    assert found.arch == "cifar_resnet20"
    assert "the file calls it cifar_resnet110" in " ".join(found.notes)
    with pytest.raises(InputError, match="holds cifar_resnet20, not arch='cifar_resnet56'"):
        networks.import_checkpoint("a.pth", dataset="cifar10", arch="cifar_resnet56")


def test_a_normalisation_in_the_file_is_taken():
    state = published.state_dict(published.cifar_resnet(20), prefix="model.")
    extra = {
        "normalizer.mean": torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1),
        "normalizer.std": torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1),
    }
    torch.save(extra | state, "a.pth")
    found = networks.import_checkpoint("a.pth", dataset="cifar10")
    assert found.normalization == "recorded"
    assert found.mean == pytest.approx((0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    "mean, std, expected",
    [
        ([0.5], None, ((0.5,) * 3, (1.0,) * 3)),
        ([0.1, 0.2, 0.3], [0.4], ((0.1, 0.2, 0.3), (0.4,) * 3)),
    ],
)
def test_mean_and_std_are_taken_as_given(mean, std, expected):
    torch.save(padded_state(20), "a.pth")
    found = networks.import_checkpoint("a.pth", dataset="cifar10", mean=mean, std=std)
    assert (found.normalization, found.mean, found.std) == ("given", *expected)
    assert found.checked


@pytest.mark.parametrize(
    "mean, std", [([0.1, 0.2], None), (None, [0.0]), ([float("nan")], None), (None, [-1.0])]
)
def test_impossible_mean_and_std_are_refused(mean, std):
    torch.save(padded_state(20), "a.pth")
    with pytest.raises(InputError, match="expected one finite number or 3"):
        networks.import_checkpoint("a.pth", dataset="cifar10", mean=mean, std=std)


# --- a function of one's own ---

OWN = """
import torch
def build(num_classes, channels):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(channels * 64, num_classes))
def fails(num_classes, channels):
    raise RuntimeError("no such thing\\nat all")
def nothing(num_classes, channels):
    return 7
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "my_networks.py"
    sys.modules.pop("my_networks", None)


def test_an_own_architecture_is_built_saved_and_loaded(own, capsys):
    network = networks.build("my_networks:build", num_classes=4, mean=(0.5,), std=(0.2,)).eval()
    networks.save_model("a.safetensors", network, **network.recipe)
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(networks.load_model("a.safetensors")(x), network(x))
    networks.check_arch("my_networks:build", num_classes=4, shape=(1, 8, 8))
    assert "has changed" not in capsys.readouterr().err
    own.write_text(OWN + "\n# a comment\n")
    networks.load_model("a.safetensors")
    said = " ".join(capsys.readouterr().err.split())
    assert "the source of my_networks:build has changed since its weights were saved" in said


@pytest.mark.parametrize(
    "name, message",
    [
        ("my_networks:fails", "failed .RuntimeError: no such thing.: expected a function"),
        ("my_networks:nothing", "returned a int: expected a torch module"),
        ("my_networks:absent", "has no function 'absent'"),
        ("nowhere:build", "cannot be imported"),
    ],
)
def test_own_architectures_that_do_not_work_are_one_line(own, name, message):
    with pytest.raises(InputError, match=message) as caught:
        networks.build(name, num_classes=4, mean=(0.5,), std=(0.2,))
    assert "\n" not in str(caught.value)


def test_the_example_is_an_architecture(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    networks.check_arch("examples.own_architecture:build", num_classes=10, shape=(3, 32, 32))


# --- a core at its own size ---


def test_a_core_sees_images_at_its_own_size():
    network = networks.build("tiny", num_classes=4, **RGB).eval()
    core = networks.at_size(network, 16)
    large = torch.rand(2, 3, 16, 16)
    assert torch.equal(core(large), network(large))
    small = torch.rand(2, 3, 8, 12)
    enlarged = F.interpolate(small, size=(16, 16), mode="bilinear", antialias=True)
    torch.testing.assert_close(core(small), network(enlarged))
    networks.save_model("a.safetensors", core, **core.recipe)
    again = networks.load_model("a.safetensors")
    assert torch.equal(again(small), core(small))
    assert networks.identity(again) == networks.identity(core)
    with pytest.raises(InputError, match="size=0: expected a side"):
        networks.at_size(network, 0)


def test_names_that_a_file_may_give():
    """What would run code or ask a server is not among them."""
    assert all(
        registry.is_harmless(name)
        for name in ("tiny", "cifar_resnet44-a", "resnet50", "torchvision/resnet50")
    )
    assert not any(
        registry.is_harmless(name)
        for name in ("resnet20_cifar", "cifar_resnet21", "a.b:c", "hf/somebody/network")
    )
