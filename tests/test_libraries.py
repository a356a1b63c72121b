"""Networks of other libraries: torchvision and Hugging Face, with their weights and preprocessing."""

import json
import sys
import types

import pytest
import torch
from torch import nn

from aces import networks
from aces.errors import InputError
from aces.networks import libraries

RGB = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


def test_torchvision_by_its_full_name():
    networks.check_arch("torchvision/resnet18", num_classes=5, shape=(3, 32, 32))
    with torch.device("meta"):
        short, full = (
            networks.build(name, num_classes=5, **RGB)
            for name in ("resnet18", "torchvision/resnet18")
        )
    assert short.state_dict().keys() == full.state_dict().keys()


def test_pretrained_weights_come_with_their_normalisation(monkeypatch):
    from aces.vision import torchvision

    weights = torchvision.models.ResNet18_Weights.DEFAULT
    asked = {}

    def get_model(name, weights, **options):
        asked.update(name=name, weights=weights)
        return torchvision.models.resnet18(weights=None)

    monkeypatch.setattr(torchvision.models, "get_model", get_model)
    network = networks.pretrained("torchvision/resnet18", num_classes=1000)
    assert asked == {"name": "resnet18", "weights": weights}
    assert network.recipe["mean"] == (0.485, 0.456, 0.406)
    with pytest.raises(InputError, match="has 1000 outputs, and the dataset 10 classes"):
        networks.pretrained("resnet18", num_classes=10)


def test_weights_that_cannot_be_fetched_are_named_with_their_address(monkeypatch):
    from aces.vision import torchvision

    def get_model(*args, **options):
        raise OSError("no route\nto host")

    monkeypatch.setattr(torchvision.models, "get_model", get_model)
    with pytest.raises(InputError, match="no route.*: get https://.*resnet18.*pth") as caught:
        networks.pretrained("torchvision/resnet18", num_classes=1000)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="arch='tiny' has no pretrained weights"):
        networks.pretrained("tiny", num_classes=10)


def test_a_name_torchvision_does_not_have_is_refused():
    with pytest.raises(InputError, match="arch='torchvision/resnet5' is unknown: see torchvision"):
        libraries.torchvision_pretrained("resnet5")
    with pytest.raises(InputError, match="arch='torchvision/resnet5' has no pretrained weights"):
        networks.pretrained("torchvision/resnet5", num_classes=10)


def fake_timm(about: object, create_model=None) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        __version__="1",
        create_model=create_model,
        is_model=lambda name: name == "net",
        list_models=lambda: ["net"],
        get_pretrained_cfg=lambda name: about,
    )


def about_timm(**changes: object) -> types.SimpleNamespace:
    values = {"url": "", "hf_hub_id": "timm/net.in1k", "has_weights": True, "num_classes": 4}
    values |= {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    return types.SimpleNamespace(**(values | changes))


def test_timm_s_weights_come_with_their_normalisation(monkeypatch):
    made = {}

    def create_model(name, **options):
        made.update(options, name=name)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4))

    monkeypatch.setitem(sys.modules, "timm", fake_timm(about_timm(), create_model))
    network = networks.pretrained("timm/net", num_classes=4)
    assert made == {"name": "net", "pretrained": True, "in_chans": 3}
    assert (network.recipe["mean"], network.recipe["std"]) == ((0.5,) * 3, (0.25,) * 3)
    assert network(torch.rand(2, 3, 2, 2)).shape == (2, 4)


@pytest.mark.parametrize("about", [None, about_timm(has_weights=False)])
def test_timm_networks_without_weights_are_refused(about, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", fake_timm(about))
    with pytest.raises(InputError, match="arch='timm/net' has no published weights: train it, or"):
        networks.pretrained("timm/net", num_classes=4)


@pytest.mark.parametrize(
    "url, where",
    [("https://e.org/a.pth", "https://e.org/a.pth"), ("", "https://huggingface.co/timm/net.in1k")],
)
def test_weights_of_timm_that_cannot_be_fetched_are_named(url, where, monkeypatch):
    def create_model(name, **options):
        raise OSError("no route\nto host")

    monkeypatch.setitem(sys.modules, "timm", fake_timm(about_timm(url=url), create_model))
    said = rf"weights of timm/net cannot be fetched \(no route\): get {where} on a machine"
    with pytest.raises(InputError, match=said) as caught:
        networks.pretrained("timm/net", num_classes=4)
    assert "\n" not in str(caught.value) and "arch timm/net" in str(caught.value)


def test_transformers_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match="pip install transformers"):
        networks.build("hf/some/vit", num_classes=10, **RGB)


def fake_transformers() -> types.SimpleNamespace:
    """As much of transformers as is used, with a model that returns the mean of each channel."""

    class Model(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.scale = config, nn.Parameter(torch.ones(config.num_labels))

        def forward(self, pixel_values):
            mean = pixel_values.mean(dim=(2, 3)).sum(dim=1, keepdim=True)
            return types.SimpleNamespace(logits=mean * self.scale)

    config = types.SimpleNamespace(num_labels=4, num_channels=3)
    config.to_json_string = lambda use_diff: json.dumps({"model_type": "fake", "num_labels": 4})
    return types.SimpleNamespace(
        AutoConfig=types.SimpleNamespace(
            from_pretrained=lambda name: config, for_model=lambda kind, **values: config
        ),
        AutoModelForImageClassification=types.SimpleNamespace(
            from_pretrained=lambda name, **options: Model(config), from_config=Model
        ),
    )


def test_a_hugging_face_classifier_brings_its_preprocessing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", fake_transformers())
    monkeypatch.setattr(
        "aces.networks.huggingface._preprocessing",
        lambda name: {
            "do_resize": True,
            "size": {"shortest_edge": 16},
            "resample": 2,
            "do_center_crop": True,
            "crop_size": {"height": 8, "width": 8},
            "rescale_factor": 1 / 255,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.25, 0.25, 0.25],
        },
    )
    network = networks.pretrained("hf/some/net", num_classes=4)
    x = torch.full((2, 3, 32, 48), 0.75)
    # (0.75 - 0.5) / 0.25 = 1 in each of three channels
    torch.testing.assert_close(network(x), torch.full((2, 4), 3.0))
    networks.save_model("a.safetensors", network, **network.recipe)
    again = networks.load_model("a.safetensors")
    assert torch.equal(again(x), network(x))
    with pytest.raises(InputError, match="has 4 outputs, and the dataset 10 classes"):
        networks.pretrained("hf/some/net", num_classes=10)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A repository some/net of four classes, with its preprocessor_config.json to be changed."""
    library, about = fake_transformers(), tmp_path / "preprocessor_config.json"
    about.write_text("{}")
    utils = types.SimpleNamespace(cached_file=lambda name, file: str(tmp_path / file))
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.setitem(sys.modules, "transformers.utils", utils)
    return types.SimpleNamespace(library=library, about=about)


def fails(*args: object, **options: object) -> None:
    raise ValueError("no such thing\nat all")


@pytest.mark.parametrize("part", ["AutoConfig", "AutoModelForImageClassification"])
def test_a_repository_that_cannot_be_loaded_says_how_to_get_it(part, hub):
    getattr(hub.library, part).from_pretrained = fails
    said = (
        r"^hf/some/net cannot be loaded \(no such thing\): fetch its folder on a machine with "
        "internet .*huggingface-cli download some/net"
    )
    with pytest.raises(InputError, match=said) as caught:
        networks.pretrained("hf/some/net", num_classes=4)
    assert "\n" not in str(caught.value)


def test_a_configuration_of_no_classifier_is_refused(hub):
    hub.library.AutoModelForImageClassification.from_config = fails
    said = r"arch='hf/some/net' cannot be built \(no such thing\): expected an image classifier"
    with pytest.raises(InputError, match=said):
        networks.build("hf/some/net", num_classes=4, **RGB)


@pytest.mark.parametrize("content", [None, "{", "7"], ids=["missing", "no JSON", "a number"])
def test_a_repository_without_preprocessing_is_refused(content, hub):
    hub.about.unlink() if content is None else hub.about.write_text(content)
    said = "^hf/some/net has no preprocessor_config.json that can be read .*: expected an image cl"
    with pytest.raises(InputError, match=said):
        networks.pretrained("hf/some/net", num_classes=4)


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"do_resize": True, "size": {"longest_edge": 8}}, "KeyError: 'height'"),
        ({"do_center_crop": True, "crop_size": "large"}, "ValueError: "),
        ({"image_mean": ["red"]}, "TypeError: |ValueError: "),
        ({"rescale_factor": None}, "TypeError: "),
    ],
)
def test_preprocessing_that_cannot_be_used_is_refused(change, problem, hub):
    hub.about.write_text(json.dumps(change))
    said = rf"^hf/some/net has a preprocessor_config.json that cannot be used \(({problem})"
    with pytest.raises(InputError, match=said) as caught:
        networks.pretrained("hf/some/net", num_classes=4)
    assert "\n" not in str(caught.value)


def test_a_real_vision_transformer(tmp_path):
    """Where transformers is installed: a tiny ViT from a folder, as its library runs it."""
    import aces.vision  # noqa: F401

    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        num_labels=4,
    )
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "vit")
    about = {"do_resize": True, "size": {"height": 16, "width": 16}, "resample": 2}
    about |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(about))
    network = networks.pretrained(f"hf/{tmp_path / 'vit'}", num_classes=4)
    x = torch.rand(2, 3, 16, 16)
    expected = model(pixel_values=(x - 0.5) / 0.5).logits
    torch.testing.assert_close(network(x), expected)
