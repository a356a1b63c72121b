"""`aces import`: the normalisation of a checkpoint is found, by rule and by evidence, and said."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import published
from aces import ACES, cli, data, networks, params
from aces.commands import import_
from aces.data import EvalSet
from aces.networks import evidence
from aces.networks.normalization import Classifier, Normalize
from published import cohen, normalisation, save


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No evaluation images lie about, unless a test puts them there."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


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


def test_networks_that_the_images_cannot_tell_apart_are_named(capsys):
    """Both shortcuts without parameters: here equally accurate, and a third network at chance."""
    correct = np.arange(100) < 90
    trials = [
        evidence.Trial("cifar_resnet20-a", "full", (0.5,), (0.25,), correct),
        evidence.Trial("residual-mean", "half", (0.5,), (0.5,), np.roll(correct, 1)),
        evidence.Trial("residual-mean", "none", (0.0,), (1.0,), correct[:25] & False, False),
        evidence.Trial("residual-plain", "full", (0.5,), (0.25,), correct[:25] & False, False),
        evidence.Trial("residual-plain", "half", (0.5,), (0.5,), correct[:25] & False, False),
    ]
    found = networks.Imported(
        module=networks.build("tiny", num_classes=10, mean=[0.5], std=[0.25]),
        format="state dict",
        arch="cifar_resnet20-a",
        num_classes=10,
        normalization="full",
        mean=(0.5,),
        std=(0.25,),
        sigma=None,
        notes=[],
        checked=True,
        trials=trials,
    )
    (remark,) = import_._rivals(found)
    assert "residual-mean has them too and is as accurate on these images (90.0%)" in remark
    import_._show_trials(found)
    shown = capsys.readouterr().out
    assert "> " in shown and shown.count("residual-plain") == 1 and "2 others were no b" in shown
    clear = dataclasses.replace(found, trials=[trials[0], trials[1]._replace(correct=~correct)])
    assert import_._rivals(clear) == []


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
