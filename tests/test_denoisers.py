"""Denoised smoothing: a denoiser before a classifier, as one network that is saved and trained."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

from aces import cli, data, networks, params
from aces.errors import InputError
from aces.networks import denoisers
from aces.networks.denoise import OneStepDiffusion
from aces.runtime import Runtime
from aces.training import denoiser as training
from stages import train_certify

pytestmark = pytest.mark.slow

PROFILES = Path(__file__).parent.parent / "profiles"
RGB = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}


@pytest.fixture(autouse=True)
def one_thread(tmp_path, monkeypatch):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def classifier() -> nn.Module:
    return networks.build("tiny", num_classes=4, **RGB).eval()


def ffdnet_state(channels: int, width: int, depth: int) -> dict[str, torch.Tensor]:
    """The names and shapes of a published FFDNet: convolutions at every other place."""
    widths = [4 * channels + 1, *[width] * (depth - 1), 4 * channels]
    state = {}
    for place in range(depth):
        state[f"model.{2 * place}.weight"] = torch.randn(widths[place + 1], widths[place], 3, 3) / 9
        state[f"model.{2 * place}.bias"] = torch.zeros(widths[place + 1])
    return state


def slow_ffdnet(state: dict, z: torch.Tensor, sigma: float) -> torch.Tensor:
    """Four half-size images, a channel of sigma, the convolutions, and the images put together."""
    parts = [z[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    x = torch.stack(parts, dim=2).flatten(1, 2)
    x = torch.cat((x, torch.full_like(x[:, :1], sigma)), dim=1)
    depth = len(state) // 2
    for place in range(depth):
        name = f"model.{2 * place}"
        x = F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=1)
        x = x.relu() if place < depth - 1 else x
    image = torch.zeros_like(z)
    for place, (i, j) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        image[:, :, i::2, j::2] = x[:, place::4]
    return image


@pytest.mark.parametrize("channels, width, depth", [(3, 8, 4), (1, 4, 3)])
def test_ffdnet_is_its_definition(channels, width, depth):
    state = ffdnet_state(channels, width, depth)
    torch.save({"epoch": 1, "state_dict": {f"module.{k}": v for k, v in state.items()}}, "a.pth")
    denoiser = networks.load_denoiser("a.pth", channels=channels)
    z = torch.randn(2, channels, 6, 8)
    torch.testing.assert_close(denoiser(z, torch.tensor(0.3)), slow_ffdnet(state, z, 0.3))


def dncnn(channels: int, depth: int, *, norm: bool, biases: tuple[bool, bool, bool]):
    """Zhang et al. (2017): cszn/KAIR without batch norm, cszn/DnCNN and SaoYan/DnCNN-PyTorch with."""
    first, middle, last = biases
    layers = [torch.nn.Conv2d(channels, 6, 3, padding=1, bias=first), torch.nn.ReLU()]
    for _ in range(depth - 2):
        layers.append(torch.nn.Conv2d(6, 6, 3, padding=1, bias=middle))
        layers += [torch.nn.BatchNorm2d(6, eps=1e-4 if first else 1e-5)] if norm else []
        layers.append(torch.nn.ReLU())
    layers.append(torch.nn.Conv2d(6, channels, 3, padding=1, bias=last))
    network = torch.nn.Sequential(*layers)
    for name, tensor in network.state_dict().items():
        if "running" in name:
            tensor.uniform_(0.01, 0.5)
    return network.eval()


@pytest.mark.parametrize(
    "prefix, norm, biases",
    [
        ("model.", False, (True, True, True)),
        ("module.dncnn.", True, (False, False, False)),
        ("dncnn.", True, (True, False, False)),
    ],
)
@pytest.mark.parametrize("channels, depth", [(3, 20), (1, 17), (1, 4)])
def test_dncnn_is_its_definition(channels, depth, prefix, norm, biases):
    network = dncnn(channels, depth, norm=norm, biases=biases)
    torch.save({prefix + k: v for k, v in network.state_dict().items()}, "a.pth")
    denoiser = networks.load_denoiser("a.pth", channels=channels)
    assert denoiser.recipe["arch"] == "dncnn"
    z = torch.randn(2, channels, 7, 9)
    with torch.inference_mode():
        torch.testing.assert_close(denoiser(z, torch.tensor(0.1)), z - network(z))
    networks.save_denoiser("d.safetensors", denoiser)
    again = networks.load_denoiser("d.safetensors")
    assert networks.fingerprint(again) == networks.fingerprint(denoiser)


def test_denoisers_that_are_not_known_are_refused_in_a_line():
    """KAIR's FDnCNN: the image and sigma at full resolution."""
    torch.save(
        {"a.0.weight": torch.ones(8, 4, 3, 3), "a.2.weight": torch.ones(3, 8, 3, 3)}, "a.pth"
    )
    with pytest.raises(InputError, match="no linear layer, and is no FFDNet, DnCNN or IRCNN"):
        networks.import_checkpoint("a.pth", dataset="cifar10")


def test_ircnn_is_its_definition():
    """cszn/KAIR: seven dilated convolutions; 25 networks in a file, for as many noise levels."""
    layers: list[nn.Module] = []
    for place, reach in enumerate((1, 2, 3, 4, 3, 2, 1)):
        before, after = 3 if place == 0 else 6, 3 if place == 6 else 6
        layers.append(nn.Conv2d(before, after, 3, padding=reach, dilation=reach))
        layers += [nn.ReLU()] if place < 6 else []
    network = nn.Sequential(*layers)
    state = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
    torch.save({str(level): state for level in range(25)}, "all.pth")
    with pytest.raises(InputError, match=r"holds 25 networks \(0 to 24\): save the one"):
        networks.load_denoiser("all.pth")
    torch.save(torch.load("all.pth")["0"], "one.pth")
    denoiser = networks.load_denoiser("one.pth", channels=3)
    z = torch.randn(2, 3, 12, 9)
    with torch.inference_mode():
        torch.testing.assert_close(denoiser(z, torch.tensor(0.1)), z - network(z))
    networks.save_denoiser("d.safetensors", denoiser)
    again = networks.load_denoiser("d.safetensors")
    assert torch.equal(again(z, torch.tensor(0.1)), denoiser(z, torch.tensor(0.1)))


def test_a_denoiser_of_grey_images_denoises_each_channel_of_colour_images(classifier):
    """As if each channel were an image of its own; and the same from its own file."""
    state = ffdnet_state(1, 4, 3)
    torch.save(state, "grey.pth")
    denoiser = networks.load_denoiser("grey.pth", channels=3)
    z = torch.randn(2, 3, 6, 8)
    expected = torch.stack(
        [slow_ffdnet(state, z[:, [channel]], 0.3)[:, 0] for channel in range(3)], dim=1
    )
    torch.testing.assert_close(denoiser(z, torch.tensor(0.3)), expected)

    networks.save_denoiser("d.safetensors", denoiser)
    again = networks.load_denoiser("d.safetensors", channels=3)
    assert again.recipe == denoiser.recipe
    assert networks.fingerprint(again) == networks.fingerprint(denoiser)

    network = networks.before(again, classifier, sigma=0.3)
    networks.save_model("n.safetensors", network, **network.recipe)
    same = networks.load_model("n.safetensors")
    assert networks.fingerprint(same) == networks.fingerprint(network)
    with pytest.raises(InputError, match="a denoiser for 3 channels; the images have 1"):
        networks.load_denoiser("d.safetensors", channels=1)


@pytest.mark.parametrize("arch", ["ffdnet", "small-denoiser"])
def test_odd_sizes_keep_their_shape(arch):
    denoiser = networks.build_denoiser(arch, channels=3, options={"width": 4, "depth": 3}).eval()
    z = torch.randn(2, 3, 7, 9)
    assert denoiser(z, torch.tensor(0.1)).shape == z.shape


def test_the_published_ffdnet_has_852108_parameters():
    """The figure is of the published colour network."""
    denoiser = networks.build_denoiser("ffdnet", channels=3)
    assert sum(weight.numel() for weight in denoiser.parameters()) == 852_108


def test_saved_and_loaded_as_one_network(classifier):
    denoiser = networks.build_denoiser("small-denoiser", channels=3, options={"width": 4}).eval()
    network = networks.before(denoiser, classifier, sigma=0.12)
    networks.save_model("a.safetensors", network, **network.recipe)
    again = networks.load_model("a.safetensors")
    z = torch.randn(2, 3, 8, 8)
    expected = classifier(denoiser(z, torch.tensor(0.12)))
    assert torch.equal(again(z), network(z)) and torch.equal(network(z), expected)
    assert networks.fingerprint(again) == networks.fingerprint(network)
    assert networks.identity(again) == networks.identity(network)
    other = networks.before(denoiser, classifier, sigma=0.25)
    assert networks.fingerprint(other) != networks.fingerprint(network)


def test_exported_to_onnx_it_gives_the_same_logits(classifier):
    denoiser = networks.build_denoiser("ffdnet", channels=3, options={"width": 4, "depth": 3})
    network = networks.before(denoiser.eval(), classifier, sigma=0.12)
    z = torch.randn(3, 3, 8, 8)
    program = torch.onnx.export(
        network, (z,), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (logits,) = session.run(None, {session.get_inputs()[0].name: z[:2].numpy()})
    np.testing.assert_allclose(logits, network(z[:2]).detach().numpy(), atol=1e-4)


def test_own_classes_are_composed_but_not_saved_by_name():
    class Own(nn.Module):
        def forward(self, z, sigma):
            return z - sigma

    network = networks.before(Own(), nn.Flatten(), sigma=0.5)
    assert network.recipe is None
    assert torch.equal(network(torch.ones(1, 1, 2, 2)), torch.full((1, 4), 0.5))
    with pytest.raises(InputError, match="sigma=0: expected the noise"):
        networks.before(Own(), nn.Flatten(), sigma=0)


# --- one-step diffusion ---


class Oracle(nn.Module):
    """Predicts the noise exactly, since it knows the image, in [-1, 1]."""

    def __init__(self, image: torch.Tensor, alphas: torch.Tensor):
        super().__init__()
        self.image, self.alphas = image, alphas
        self.steps: list[torch.Tensor] = []

    def forward(self, x, step):
        self.steps.append(step)
        alpha = self.alphas[step][:, None, None, None]
        noise = (x - alpha.sqrt() * self.image) / (1 - alpha).sqrt()
        return torch.cat((noise, torch.full_like(noise, 7)), dim=1)  # and a variance


def test_one_step_diffusion_with_an_oracle_restores_the_image():
    alphas = torch.linspace(0.999, 0.01, 200)
    image = torch.rand(2, 3, 8, 8)
    oracle = Oracle(2 * image - 1, alphas)
    denoiser = OneStepDiffusion(oracle, alphas)
    sigma = 0.25
    z = image + sigma * torch.randn_like(image)
    torch.testing.assert_close(denoiser(z, torch.tensor(sigma)), image, atol=1e-5, rtol=0)
    # The time step whose noise is that of sigma: (1 - a) / a = (2 sigma)^2, so a = 0.8.
    (steps,) = oracle.steps
    assert steps.tolist() == [int((alphas - 0.8).abs().argmin())] * 2


def test_alphas_outside_0_1_are_refused():
    with pytest.raises(
        InputError, match=r"alphas_cumprod of shape \(2,\): expected a list of numbers"
    ):
        OneStepDiffusion(nn.Identity(), [0.5, 1.5])


def test_a_denoiser_of_ones_own_is_built_saved_and_loaded(monkeypatch, tmp_path, classifier):
    (tmp_path / "my_diffusion.py").write_text(
        "import torch\n"
        "from aces.networks.denoise import OneStepDiffusion\n"
        "class Noise(torch.nn.Module):\n"
        "    def __init__(self, channels):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Conv2d(channels, channels, 3, padding=1)\n"
        "    def forward(self, x, step):\n"
        "        return self.layer(x)\n"
        "def build(channels):\n"
        "    return OneStepDiffusion(Noise(channels), torch.linspace(0.99, 0.1, 50))\n"
        "def nothing(channels):\n"
        "    return channels\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    denoiser = networks.build_denoiser("my_diffusion:build", channels=3)
    network = networks.before(denoiser, classifier, sigma=0.25)
    networks.save_model("own.safetensors", network, **network.recipe)
    z = torch.rand(2, 3, 8, 8)
    assert torch.equal(networks.load_model("own.safetensors")(z), network(z))
    with pytest.raises(InputError, match="returned a int: expected a torch module"):
        networks.build_denoiser("my_diffusion:nothing", channels=3)
    sys.modules.pop("my_diffusion")


# --- files ---


def test_a_denoiser_comes_back_from_its_file():
    denoiser = networks.build_denoiser("small-denoiser", channels=1, options={"width": 4}).eval()
    networks.save_denoiser("d.safetensors", denoiser, sigma=0.25)
    again = networks.load_denoiser("d.safetensors", channels=1)
    z = torch.rand(1, 1, 8, 8)
    assert torch.equal(again(z, torch.tensor(0.25)), denoiser(z, torch.tensor(0.25)))


def test_what_is_no_denoiser_is_refused(classifier):
    networks.save_model("c.safetensors", classifier, **classifier.recipe)
    with pytest.raises(InputError, match="holds the network tiny, not a denoiser"):
        networks.load_denoiser("c.safetensors")
    torch.save(classifier.state_dict(), "c.pth")
    with pytest.raises(InputError, match="no denoiser that is known"):
        networks.load_denoiser("c.pth")
    with pytest.raises(InputError, match="denoiser.arch='fdnet' is unknown"):
        networks.build_denoiser("fdnet", channels=3)


@pytest.mark.parametrize("options", ['{"width": 4000, "depth": 900}', "[1]", "}", '{"width": "x"}'])
def test_a_forged_header_takes_no_memory(options):
    header = '{"kind": "denoiser", "arch": "ffdnet", "channels": "3", "options": %s}'
    metadata = {"aces": header % __import__("json").dumps(options)}
    safetensors.torch.save_file({"a": torch.zeros(1)}, "d.safetensors", metadata=metadata)
    with pytest.raises(InputError, match="does not fit the denoiser of this version"):
        networks.load_denoiser("d.safetensors")


def test_import_takes_a_denoiser(capsys):
    digits = data.prepare(params.Dataset(name="digits", stride=1)).evaluation
    data.write_eval("data/digits/eval.npz", digits)
    torch.save(ffdnet_state(1, 4, 3), "gray.pth")
    assert cli.main(["import", "gray.pth", "--dataset", "digits", "--out", "d.safetensors"]) == 0
    said = capsys.readouterr().out
    assert "denoiser: ffdnet" in said and "certify.denoiser.checkpoint" in said and "dB" in said
    assert networks.load_denoiser("d.safetensors").recipe["options"] == {"width": 4, "depth": 3}


def test_the_pipeline_refuses_a_denoiser_for_other_channels():
    digits = data.prepare(params.Dataset(name="digits", stride=1)).evaluation
    data.write_eval("data/digits/eval.npz", digits)
    torch.save(ffdnet_state(3, 4, 3), "colour.pth")
    profile = params.load(PROFILES / "digits.yaml")
    denoiser = params.Denoiser(arch="ffdnet", checkpoint="colour.pth")
    certify = profile.certify.model_copy(update={"denoiser": denoiser})
    asked = profile.model_copy(update={"certify": certify})
    with pytest.raises(InputError, match="a denoiser for 3 channels; the images have 1"):
        train_certify.denoiser(asked, run=None, classifier=nn.Identity())


# --- training ---


@pytest.fixture(scope="module")
def digits() -> data.TrainSet:
    return data.prepare(params.Dataset(name="digits", stride=1)).training


def test_the_default_settings_train_a_denoiser():
    """With the default of the other networks the noise stays (here), or the loss is NaN (CIFAR-10)."""
    coarse = np.random.default_rng(0).integers(0, 256, (200, 2, 2, 3), dtype=np.uint8)
    image = coarse.repeat(8, axis=1).repeat(8, axis=2)
    images = data.TrainSet(image=image, label=np.zeros(200, dtype=np.int64))
    classifier = networks.build("tiny", num_classes=10, mean=(0.5,) * 3, std=(0.3,) * 3).eval()
    settings = params.Denoiser().train.model_copy(update={"epochs": 15, "batch": 20})
    losses: list[float] = []
    training.train_denoiser(
        networks.build_denoiser("small-denoiser", channels=3),
        classifier,
        images,
        settings=settings,
        sigma=0.25,
        seed=0,
        on_epoch=lambda epoch, metrics: losses.append(metrics["loss"]),
    )
    assert losses[-1] < 0.8  # 1 is the noise as it was


@pytest.mark.parametrize("objective", ["mse", "stability"])
def test_training_improves_the_denoiser_and_nothing_else(digits, objective, tmp_path):
    classifier = networks.build("tiny", num_classes=10, mean=digits.mean, std=digits.std).eval()
    before = networks.fingerprint(classifier)
    denoiser = networks.build_denoiser("small-denoiser", channels=1, options={"width": 16})
    history: list[dict] = []
    trained = training.train_denoiser(
        denoiser,
        classifier,
        digits,
        settings=params.Train(epochs=6, batch=32, lr=0.1),
        sigma=0.5,
        seed=0,
        objective=objective,
        runtime=Runtime(scratch=tmp_path, progress=False),
        on_epoch=lambda epoch, metrics: history.append(metrics),
    )
    assert trained is denoiser and not denoiser.training
    assert networks.fingerprint(classifier) == before
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    if objective == "mse":
        some = dataclasses.replace(digits, image=digits.image[:200], label=digits.label[:200])
        quality = denoisers.quality(denoiser, some, sigma=0.5)
        assert quality.denoised > quality.noisy + 3  # decibels


def test_an_unknown_objective_is_refused():
    with pytest.raises(InputError, match="objective='psnr': expected one of mse, stability"):
        training.method("psnr")
