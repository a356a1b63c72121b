"""A model is saved and loaded: the same certificates, the same bytes."""

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from aces import ACES, networks
from aces.errors import InputError
from small_models import Constant, HalfSpace, digits, digits_model, grey

torch.set_num_threads(1)


def test_the_precision_is_saved_loaded_and_recorded(tmp_path):
    trained = digits_model()
    model = ACES(
        **trained.networks,
        sigma=trained.sigma,
        theta=0.7,
        num_classes=10,
        precision="bfloat16",
        noise="float",
        rule="paper",
    )
    model.save(tmp_path)
    loaded, x = ACES.load(tmp_path), digits().image[:2]
    assert (loaded.precision, loaded.noise, loaded.rule) == ("bfloat16", "float", "paper")
    answers = loaded.certify(x, n=100, seed=0)
    assert answers == model.certify(x, n=100, seed=0)
    assert answers[0].precision == "bfloat16" and "torch" in answers[0].backend
    with pytest.raises(InputError, match="precision='int1'"):
        ACES(**trained.networks, sigma=0.25, theta=0.5, num_classes=10, precision="int1")


def test_a_saved_model_gives_the_same_certificates(tmp_path):
    model, x = digits_model(), digits().image[:3]
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "aces.yaml",
        "certify.safetensors",
        "core.safetensors",
    ]
    loaded = ACES.load(tmp_path / "model")
    assert loaded.certify(x, n=200, seed=2) == model.certify(x, n=200, seed=2)
    assert (loaded.shape, loaded.classes, loaded.sigma, loaded.theta) == (
        model.shape,
        model.classes,
        model.sigma,
        model.theta,
    )


def test_numbers_and_names_of_numpy_are_saved_too(tmp_path):
    model = ACES(
        core=digits_model().networks["core"],
        certify=digits_model().networks["certify"],
        sigma=np.float32(0.25),
        theta=0.5,
        num_classes=np.int64(10),
        classes=np.array(list("0123456789")),
    )
    model.save(tmp_path)
    assert ACES.load(tmp_path).classes == list("0123456789")


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        digits_model().save(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.slow
def test_networks_of_ones_own_class_are_filled_when_loaded(tmp_path):
    model = ACES(
        core=Constant([0.0, 1.0]),
        certify=HalfSpace(threshold=0.25),
        sigma=0.25,
        theta=0.9,
        num_classes=2,
    )
    model.save(tmp_path)
    with pytest.raises(
        InputError, match=r"core is a network of your own class Constant.*core=Constant\("
    ):
        ACES.load(tmp_path)
    loaded = ACES.load(tmp_path, core=Constant([0.0, 0.0]), certify=HalfSpace(threshold=0.9))
    assert loaded.certify(grey(0.4), n=500, seed=0) == model.certify(grey(0.4), n=500, seed=0)
    assert loaded.certify(grey(0.4), n=500)[0].prediction == 1
    with pytest.raises(InputError, match="does not fit the Linear"):
        ACES.load(tmp_path, core=nn.Linear(2, 2), certify=HalfSpace())
    with pytest.raises(InputError, match="no network 'select'"):
        ACES.load(tmp_path, core=Constant([0.0, 0.0]), certify=HalfSpace(), select=HalfSpace())


def test_a_selection_network_is_saved_too(tmp_path):
    torch.manual_seed(0)
    parts = {
        role: networks.build("tiny", num_classes=outputs, mean=[0.3], std=[0.4])
        for role, outputs in (("core", 10), ("certify", 10), ("select", 2))
    }
    model = ACES(**parts, sigma=0.25, theta=0.5, num_classes=10)
    model.save(tmp_path)
    x = digits().image[:2]
    assert ACES.load(tmp_path).certify(x, n=100, seed=0) == model.certify(x, n=100, seed=0)


def test_a_damaged_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="has no aces.yaml"):
        ACES.load(tmp_path)
    digits_model().save(tmp_path)
    description = yaml.safe_load((tmp_path / "aces.yaml").read_text())
    (tmp_path / "core.safetensors").write_bytes((tmp_path / "certify.safetensors").read_bytes())
    with pytest.raises(InputError, match="core.safetensors is not the network"):
        ACES.load(tmp_path)
    (tmp_path / "core.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="core.safetensors"):
        ACES.load(tmp_path)
    (tmp_path / "aces.yaml").write_text(yaml.safe_dump(description | {"format": 99}))
    with pytest.raises(InputError, match="format 99"):
        ACES.load(tmp_path)
    (tmp_path / "aces.yaml").write_text("{")
    with pytest.raises(InputError, match="not YAML"):
        ACES.load(tmp_path)
