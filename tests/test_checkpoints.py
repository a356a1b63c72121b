"""Published checkpoints: every format loads strictly, the normalisation is found, bad files give
one line.
"""

import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import published
from aces import ACES, cli, data, networks, params
from aces.commands import import_
from aces.data import EvalSet
from aces.errors import InputError
from aces.networks import evidence, lanet
from aces.networks.normalization import Classifier, Normalize

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


def save(tree, name: str = "checkpoint.pth.tar", **options):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tree, path, **options)
    return path


def cohen(shapes, *, arch: str, prefix: str = "1.", **extra) -> dict:
    return {
        "epoch": 90,
        "arch": arch,
        "state_dict": published.state_dict(shapes, prefix=prefix),
        "optimizer": {"state": {}, "param_groups": []},
    } | extra


def assert_holds(module: nn.Module, state: dict) -> None:
    """The network has exactly these weights."""
    mine = module.network.state_dict()
    bare = {
        name.removeprefix("1.").removeprefix("module."): tensor for name, tensor in state.items()
    }
    assert mine.keys() == bare.keys()
    assert all(torch.equal(mine[name], bare[name]) for name in mine)


def normalisation(found) -> tuple:
    module = found.module.normalize
    assert found.mean == pytest.approx(module.mean.flatten().tolist())
    assert found.std == pytest.approx(module.std.flatten().tolist())
    return found.normalization, found.mean, found.std


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


# --- normalisation ---


# The folders of the published models; the last of SmoothAdv's as the scripts of eth-sri/ACES name
# them.
@pytest.mark.parametrize(
    "path, expected",
    [
        ("cifar10/resnet110/noise_0.25/checkpoint.pth.tar", "full"),
        (
            "pretrained_models/cifar10/PGD_4steps/eps_64/cifar10/resnet110/noise_0.12/checkpoint.pth.tar",
            "center",
        ),
        (
            "pretrained_models/imagenet/DDN_2steps/eps_512/imagenet/resnet50/noise_0.25/checkpoint.pth.tar",
            "center",
        ),
        (
            "cifar10/finetune_cifar_from_imagenetPGD2steps/PGD_10steps_30epochs_multinoise/eps_64/checkpoint.pth.tar",
            "full",
        ),
        ("cifar10/self_training/PGD_4steps/eps_64/checkpoint.pth.tar", "full"),
        ("imagenet32/PGD_2steps/eps_64/checkpoint.pth.tar", "full"),
        (
            "checkpoint-cifar10-PGD_2steps_multiNoiseSamples-8-multitrain-eps_512-resnet110-noise_050.pth.tar",
            "center",
        ),
        ("imagenet/smoothadv/checkpoint-DDN2-512-025.pth.tar", "center"),
        (
            "cifar10/consistency/cohen/num_2/lbd_20.0/eta_0.5/cifar_resnet110/noise_0.25/checkpoint.pth.tar",
            "full",
        ),
    ],
)
def test_rule_by_path(path, expected):
    path = save(cohen(published.cifar_resnet(20), arch="cifar_resnet20"), path)
    found = networks.import_checkpoint(path, dataset="cifar10")
    assert found.normalization == expected
    assert "not checked" in " ".join(found.notes)


@pytest.mark.parametrize(
    "path, sigma",
    [
        ("noise_0.50/checkpoint.pth.tar", 0.5),
        ("a-noise_025.pth.tar", 0.25),
        ("checkpoint-DDN2-512-025.pth.tar", 0.25),
        ("noise_0.25/noise_1.00/checkpoint.pth.tar", 1.0),
        ("1.00.pth", 1.0),
        ("resnet50-0676ba61.pth", None),
        ("checkpoint.pth.tar", None),
    ],
)
def test_noise_by_path(path, sigma):
    assert evidence.sigma_in(Path(path)) == sigma


@pytest.fixture(scope="module")
def digits() -> EvalSet:
    return data.prepare(params.Dataset(name="digits", stride=1)).evaluation


@pytest.fixture(scope="module")
def centred_state() -> dict:
    """A network trained, as SmoothAdv's, with the mean subtracted and nothing divided."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    info = data.info("digits")
    training = data.prepare(params.Dataset(name="digits", stride=1)).training
    x, y = data.to_tensor(training.image), torch.from_numpy(training.label)
    tiny = networks.build("tiny", num_classes=10, mean=info.mean, std=info.std).network
    network = Classifier(Normalize(info.mean, (1.0,)), tiny)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for batch in torch.randperm(len(y)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()
    return {f"1.{name}": tensor for name, tensor in network.network.state_dict().items()}


def checkpoint_of(state: dict, path: str = "checkpoint.pth.tar"):
    return save({"epoch": 3, "arch": "tiny", "state_dict": state, "optimizer": {}}, path)


def test_accuracy_beats_the_rule(centred_state, digits):
    found = networks.import_checkpoint(
        checkpoint_of(centred_state), dataset="digits", evaluation=digits
    )
    assert found.normalization == "center" and found.std == (1.0,)
    accuracy = {trial.kind: trial.accuracy for trial in found.trials}
    assert accuracy["center"] > 0.9 > accuracy["full"] + 0.1
    assert "clearly the most accurate" in " ".join(found.notes)
    assert "against the rule, full: the usual one" in " ".join(found.notes)
    assert not found.near_chance


def test_accuracy_confirms_the_rule(centred_state, digits):
    path = checkpoint_of(centred_state, "PGD_2steps/checkpoint.pth.tar")
    found = networks.import_checkpoint(path, dataset="digits", evaluation=digits)
    assert found.normalization == "center"
    assert "no other is clearly more accurate" in " ".join(found.notes)


def test_what_is_asked_is_done_and_the_trap_is_named(centred_state, digits):
    path = checkpoint_of(centred_state)
    found = networks.import_checkpoint(
        path, dataset="digits", normalization="full", evaluation=digits
    )
    assert normalisation(found)[0] == "full"
    assert "though center is clearly more accurate" in " ".join(found.notes)


def test_images_of_the_pipeline_decide_by_themselves(centred_state, digits):
    path = checkpoint_of(centred_state)
    assert networks.load_checkpoint(path, dataset="digits").normalize.std.item() != 1.0
    data.write_eval("data/digits/eval.npz", digits)
    assert networks.load_checkpoint(path, dataset="digits").normalize.std.item() == 1.0


def test_accuracy_is_measured_with_the_noise_asked_for(centred_state, digits):
    module = networks.import_checkpoint(
        checkpoint_of(centred_state), dataset="digits", normalization="center"
    ).module
    clean, noisy = (
        evidence.accuracy_of(module, digits),
        evidence.accuracy_of(module, digits, sigma=5.0),
    )
    with torch.inference_mode():
        expected = (module(data.to_tensor(digits.image)).argmax(1).numpy() == digits.label).mean()
    assert clean == pytest.approx(expected) and noisy < 0.5
    assert evidence.accuracy_of(module, digits, sigma=5.0) == noisy


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


# --- the command ---


def test_import_converts_and_says_what_it_found(centred_state, digits, capsys):
    data.write_eval("data/digits/eval.npz", digits)
    path = checkpoint_of(centred_state)
    assert (
        cli.main(["import", str(path), "--dataset", "digits", "--out", "new/tiny.safetensors"]) == 0
    )
    said = capsys.readouterr().out
    for part in ("normalisation: center", "accuracy on all 360 images", "new/tiny.safetensors"):
        assert part in said
    module = networks.load_model("new/tiny.safetensors")
    assert module.normalize.std.item() == 1.0
    assert networks.read_metadata("new/tiny.safetensors")["format"] == "Cohen et al."


def test_import_speaks_json(centred_state, digits, capsys):
    data.write_eval("data/digits/eval.npz", digits)
    assert (
        cli.main(["import", str(checkpoint_of(centred_state)), "--dataset", "digits", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["normalization"] == "center" and found["accuracy"] > 0.9
    module = networks.load_model(found["out"])
    assert networks.fingerprint(module) == found["fingerprint"]
    assert (
        networks.fingerprint(networks.load_checkpoint(found["out"], dataset="digits"))
        == found["fingerprint"]
    )


def test_a_normalisation_that_was_not_checked_is_tried_when_there_are_images(
    centred_state, digits, capsys
):
    """Converted before the pipeline ran, by a rule that is wrong for this network: the pipeline's
    images correct it.
    """
    assert (
        cli.main(
            [
                "import",
                str(checkpoint_of(centred_state)),
                "--dataset",
                "digits",
                "--no-check",
                "--out",
                "a.safetensors",
            ]
        )
        == 0
    )
    assert "normalisation: full (the usual one, not checked" in capsys.readouterr().out
    assert normalisation(networks.import_checkpoint("a.safetensors", dataset="digits"))[0] == "full"
    few = EvalSet(digits.image[:20], digits.label[:20], digits.index[:20], digits.classes)
    assert (
        networks.import_checkpoint("a.safetensors", dataset="digits", evaluation=few).normalization
        == "full"
    )  # 20 say nothing
    assert (
        networks.import_checkpoint(
            "a.safetensors", dataset="digits", evaluation=digits
        ).normalization
        == "center"
    )


def test_import_of_a_network_near_chance_is_a_failed_check(digits, capsys):
    data.write_eval("data/digits/eval.npz", digits)
    module = networks.build("tiny", num_classes=10, mean=(0.3,), std=(0.4,))
    module.network.head.weight.data.zero_()
    assert cli.main(["import", str(save(module.state_dict(), "a.pt")), "--dataset", "digits"]) == 1
    assert "hardly better than chance" in capsys.readouterr().out


def test_import_errors_are_one_line(capsys):
    assert cli.main(["import", "nowhere.pth", "--dataset", "cifar10"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_knows_the_normalisations():
    assert import_.NORMALIZATIONS == evidence.NORMALIZATIONS


def test_an_imported_network_is_saved_and_loaded_with_its_model(tmp_path, digits):
    """Within a composed model it is built again by its name, like a network that was trained
    here."""
    state = networks.build("tiny", num_classes=10, mean=(0.3,), std=(0.4,)).state_dict()
    network = networks.load_checkpoint(save(state, "tiny.pth"), dataset="digits")
    ACES(core=network, certify=network, sigma=0.25, theta=0.5, num_classes=10).save(
        tmp_path / "model"
    )
    assert networks.fingerprint(
        ACES.load(tmp_path / "model").networks["core"]
    ) == networks.fingerprint(network)
