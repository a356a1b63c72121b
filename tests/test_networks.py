"""Networks: parameter counts, forward passes against their definitions, files, fingerprints."""

import subprocess
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import published
from aces import networks
from aces.errors import InputError
from aces.networks import lanet
from aces.networks.normalization import Normalize
from aces.networks.registry import ARCHITECTURES

RGB = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


@pytest.fixture(autouse=True)
def one_thread():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.mark.slow
def test_torchvision_imports_beside_this_torch_in_a_fresh_process():
    code = (
        "from aces.vision import torchvision; import torch; "
        "print(torchvision.models.resnet18(num_classes=7)(torch.zeros(2, 3, 32, 32)).shape[1])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "7"


@pytest.mark.parametrize(
    "arch, num_classes, parameters",
    [
        (
            "cifar_resnet20",
            10,
            272_474,
        ),  # He et al. (2016), table 6: 0.27 M, plus the two 1x1 shortcuts
        (
            "cifar_resnet110",
            10,
            1_730_714,
        ),  # He et al. (2016), table 6: 1.7 M, plus the two 1x1 shortcuts
        ("resnet50", 1000, 25_557_032),  # torchvision's documentation
        ("efficientnet_b7", 1000, 66_347_960),  # torchvision's documentation
        ("lanet", 10, 45_256_340),  # 44,591,498 and an auxiliary head of 664,842
    ],
)
def test_parameter_counts(arch, num_classes, parameters):
    with torch.device("meta"):
        network = networks.build(arch, num_classes=num_classes, **RGB)
    assert sum(weight.numel() for weight in network.parameters()) == parameters


@pytest.mark.parametrize("arch", [name for name in ARCHITECTURES if name != "lanet"])
@pytest.mark.parametrize("channels, size", [(3, 32), (1, 8)])
def test_own_networks_take_any_channels_and_sizes(arch, channels, size):
    network = networks.build(
        arch, num_classes=4, mean=(0.5,) * channels, std=(0.25,) * channels
    ).eval()
    with torch.inference_mode():
        logits = network(torch.rand(3, channels, size, size))
    assert logits.shape == (3, 4) and logits.isfinite().all()


def test_normalisation_is_inside():
    network = networks.build("tiny", num_classes=3, **RGB).eval()
    x = torch.rand(2, 3, 8, 8)
    mean, std = (torch.tensor(RGB[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    torch.testing.assert_close(network(x), network.network((x - mean) / std))


def test_each_draw_is_treated_on_its_own():
    network = networks.build("small", num_classes=3, **RGB).eval()
    x = torch.rand(5, 3, 32, 32)
    torch.testing.assert_close(network(x)[2:3], network(x[2:3]), atol=1e-5, rtol=1e-5)


# --- forward passes against slow versions, written from the definitions over a state dict ---


def norm(state: dict, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(
        x,
        state[f"{name}.running_mean"],
        state[f"{name}.running_var"],
        state[f"{name}.weight"],
        state[f"{name}.bias"],
    )


def slow_cifar_resnet(state: dict, x: torch.Tensor, blocks: int) -> torch.Tensor:
    x = norm(state, "bn1", F.conv2d(x, state["conv1.weight"], padding=1)).relu()
    for layer in (1, 2, 3):
        for block in range(blocks):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = norm(
                state,
                f"{name}.bn1",
                F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1),
            ).relu()
            y = norm(state, f"{name}.bn2", F.conv2d(y, state[f"{name}.conv2.weight"], padding=1))
            if stride == 2:
                x = norm(
                    state,
                    f"{name}.downsample.1",
                    F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=2),
                )
            x = (x + y).relu()
    return F.linear(F.avg_pool2d(x, 8).flatten(1), state["fc.weight"], state["fc.bias"])


def test_cifar_resnet_is_its_definition():
    state = published.state_dict(published.cifar_resnet(20))
    network = networks.build("cifar_resnet20", num_classes=10, **RGB).network.eval()
    network.load_state_dict(state)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(
        network(x), slow_cifar_resnet(state, x, blocks=3), atol=1e-4, rtol=1e-4
    )


def slow_lanet(state: dict, x: torch.Tensor, cells: int) -> torch.Tensor:
    def standardised(name, x):
        filters = state[f"{name}.weight"].flatten(1)
        filters = (filters - filters.mean(1, keepdim=True)) / (filters.std(1, keepdim=True) + 1e-5)
        return F.conv2d(x, filters[:, :, None, None])

    def project(name, x):
        return norm(state, f"{name}.op.2", standardised(f"{name}.op.1", x.relu()))

    def halve(name, x):
        x = x.relu()
        left, right = x[:, :, ::2, ::2], x[:, :, 1::2, 1::2]
        halves = [
            F.conv2d(left, state[f"{name}.conv_1.weight"]),
            F.conv2d(right, state[f"{name}.conv_2.weight"]),
        ]
        return norm(state, f"{name}.bn", torch.cat(halves, dim=1))

    def operate(operation, name, x, stride):
        if operation == "skip":
            return x if stride == 1 else halve(name, x)
        if operation == "max3":
            return F.max_pool2d(x, 3, stride, padding=1)
        size = int(operation[3])
        for first, step in ((1, stride), (5, 1)):
            depthwise = state[f"{name}.op.{first}.weight"]
            x = F.conv2d(x.relu(), depthwise, stride=step, padding=size // 2, groups=x.shape[1])
            x = norm(state, f"{name}.op.{first + 2}", standardised(f"{name}.op.{first + 1}", x))
        return x

    before = last = norm(state, "stem.1", F.conv2d(x, state["stem.0.weight"], padding=1))
    for cell in range(cells):
        reductions = (cells // 3, 2 * cells // 3)
        first = (halve if cell - 1 in reductions else project)(f"cells.{cell}.preprocess0", before)
        states = [first, project(f"cells.{cell}.preprocess1", last)]
        for node, (left, i, right, j) in enumerate(published.LANET_NODES):
            results = [
                operate(
                    operation,
                    f"cells.{cell}._ops.{2 * node + side}",
                    states[state],
                    2 if cell in reductions and state < 2 else 1,
                )
                for side, (operation, state) in enumerate(((left, i), (right, j)))
            ]
            states.append(results[0] + results[1])
        before, last = last, torch.cat(states[5:9], dim=1)
    return F.linear(last.mean(dim=(2, 3)), state["classifier.weight"], state["classifier.bias"])


def test_lanet_is_its_definition(monkeypatch):
    monkeypatch.setattr(lanet, "WIDTH", 4)
    network = lanet.lanet(10, 3).double()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        # Without statistics of its batches, 24 standardised cells overflow.
        network.train()(torch.randn(8, 3, 32, 32, dtype=torch.double))
        network.eval()
        x = torch.randn(2, 3, 32, 32, dtype=torch.double)
        torch.testing.assert_close(network(x), slow_lanet(network.state_dict(), x, cells=24))


def test_lanet_has_the_published_names_and_shapes():
    with torch.device("meta"):
        state = networks.build("lanet", num_classes=10, **RGB).network.state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == dict(published.lanet())


# --- networks of other libraries ---


def test_torchvision_network_by_name_gives_logits_in_training_too():
    network = networks.build("inception_v3", num_classes=6, **RGB)
    assert network.train()(torch.rand(2, 3, 96, 96)).shape == (2, 6)


def test_timm_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"aces\[timm\]"):
        networks.build("timm/vit_tiny_patch16_224", num_classes=10, **RGB)


def test_timm_network_by_name(monkeypatch):
    made = {}

    def create_model(name, **options):
        made.update(options, name=name)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, options["num_classes"]))

    fake = types.SimpleNamespace(
        __version__="1",
        create_model=create_model,
        is_model=lambda name: name == "some_net",
        list_models=lambda: ["some_net"],
    )
    monkeypatch.setitem(sys.modules, "timm", fake)
    assert networks.build("timm/some_net", num_classes=5, **RGB)(torch.rand(1, 3, 2, 2)).shape == (
        1,
        5,
    )
    assert made == {"name": "some_net", "num_classes": 5, "in_chans": 3}
    with pytest.raises(InputError, match="did you mean timm/some_net"):
        networks.build("timm/some_nte", num_classes=5, **RGB)


@pytest.mark.parametrize(
    "arch, mean, message",
    [
        ("resnet5", (0.5,) * 3, "did you mean resnet50"),
        ("fasterrcnn_resnet50_fpn", (0.5,) * 3, "is unknown"),
        ("resnet50", (0.5,), "for 3 channels; the images have 1"),
    ],
)
def test_impossible_networks_are_refused(arch, mean, message):
    with pytest.raises(InputError, match=message):
        networks.build(arch, num_classes=10, mean=mean, std=(0.2,) * len(mean))


# --- files ---


@pytest.fixture
def network():
    return networks.build("tiny", num_classes=10, mean=(0.3,), std=(0.4,)).eval()


def save(path, network, **metadata):
    networks.save_model(
        path, network, arch="tiny", num_classes=10, mean=(0.3,), std=(0.4,), **metadata
    )


def test_saved_network_comes_back(tmp_path, network):
    save(tmp_path / "deep" / "a.safetensors", network, sigma=0.25, method="gaussian")
    again = networks.load_model(tmp_path / "deep" / "a.safetensors")
    x = torch.rand(2, 1, 8, 8)
    assert not again.training
    assert torch.equal(again(x), network(x))
    assert networks.fingerprint(again) == networks.fingerprint(network)
    assert networks.read_metadata(tmp_path / "deep" / "a.safetensors") == {
        "arch": "tiny",
        "num_classes": "10",
        "mean": "[0.3]",
        "std": "[0.4]",
        "sigma": "0.25",
        "method": "gaussian",
    }
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.safetensors"]


def test_same_network_gives_the_same_bytes(tmp_path, network):
    save(tmp_path / "a", network, sigma=0.25, method="gaussian", seed=0)
    save(
        tmp_path / "b",
        network.to(memory_format=torch.channels_last),
        seed=0,
        method="gaussian",
        sigma=0.25,
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_fingerprint_depends_on_all_that_is_computed():
    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(
            Normalize((0.3,), (0.4,)),
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 10),
        )

    def changed(change) -> nn.Sequential:
        network = make()
        change(network)
        return network

    mark = networks.fingerprint(make())
    assert networks.fingerprint(make().to(memory_format=torch.channels_last)) == mark
    others = [
        changed(lambda network: network[4].bias.data[0].add_(1e-6)),
        changed(lambda network: network.__setitem__(0, Normalize((0.3,), (0.5,)))),
        changed(lambda network: network.__setitem__(2, nn.GELU())),
        make().double(),
    ]
    assert len({mark, *map(networks.fingerprint, others)}) == 5


def test_bad_model_files_are_refused(tmp_path, network):
    with pytest.raises(InputError, match="does not exist"):
        networks.load_model(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="not a safetensors file"):
        networks.load_model(tmp_path / "text")
    save(tmp_path / "whole", network)
    (tmp_path / "part").write_bytes((tmp_path / "whole").read_bytes()[:-100])
    with pytest.raises(InputError, match="not a safetensors file"):
        networks.load_model(tmp_path / "part")
    networks.save_model(
        tmp_path / "other", network, arch="small", num_classes=10, mean=(0.3,), std=(0.4,)
    )
    with pytest.raises(InputError, match="does not fit the network 'small'"):
        networks.load_model(tmp_path / "other")
