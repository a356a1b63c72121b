"""What goes into a model: images of every kind, networks and options, and what is refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from aces import ACES, cli, data, networks
from aces.data.images import read_image
from aces.errors import InputError
from aces.model.requests import read_request
from aces.runtime import Stopped
from small_models import Constant, HalfSpace, digits, digits_model, grey, half_space_model

torch.set_num_threads(1)


def test_uint8_in_either_order_and_floats_are_the_same_images():
    model = digits_model()
    nhwc = digits().image[:4]
    nchw = nhwc.transpose(0, 3, 1, 2)
    floats = torch.from_numpy(nchw.copy()).float() / 255
    flipped = nhwc[..., ::-1]  # of one channel: the same image, in a view that torch does not take
    answers = [
        model.certify(x, n=200, seed=1)
        for x in (nhwc, nchw, flipped, torch.from_numpy(nhwc), floats, floats.numpy())
    ]
    assert all(answer == answers[0] for answer in answers)


def test_the_rounding_of_float_images_is_subtracted_and_stated():
    model = half_space_model()
    on, off = torch.full((1, 1, 4, 4), 153 / 255), torch.full((1, 1, 4, 4), 153 / 255 + 1e-4)
    (exact,), (rounded,) = (model.certify(x, n=500, seed=0) for x in (on, off))
    assert exact.rounding == 0 and rounded.rounding == pytest.approx(4e-4, rel=1e-3)
    assert rounded.p_class == exact.p_class  # the same lattice point, so the same draws
    assert rounded.radius == pytest.approx(exact.radius - rounded.rounding, abs=1e-12)
    asked = dict(radius=0.3, adaptive=True, n=10_000, seed=0)
    assert [model.certify(x, **asked)[0].radius for x in (on, off)] == [0.3, 0.3]
    coarse = ACES(
        core=Constant([0.0, 1.0]),
        certify=HalfSpace(),
        sigma=0.25,
        theta=0.9,
        num_classes=2,
        noise="float",
    )
    assert coarse.certify(off, n=500)[0].rounding == 0
    later = model.at(theta=model.theta)  # a copy: other tests share the model
    later.noise, later.sigma = "float", 0.01  # what was drawn is what counts
    assert later.certify(off, n=500, seed=0) == [rounded]


class Stripes(nn.Module):
    """Class 1 if pixels differ from their neighbours on the right; coarse images have lost that."""

    def forward(self, x):
        differ = (x[..., 1:] - x[..., :-1]).abs().mean(dim=(1, 2, 3))
        return torch.stack((torch.full_like(differ, 0.2), differ), dim=1)


def striped_file(path):
    """16 x 16 pixels in stripes, which are grey at 4 x 4."""
    stripes = np.tile(np.uint8([60, 200]), (16, 8))
    Image.fromarray(stripes).save(path)
    return path, stripes[None, :, :, None], read_image(path, shape=(1, 4, 4))[None]


def test_a_core_network_with_its_own_size_sees_files_at_that_size(tmp_path):
    """Arrays it enlarges. The certificate is of the small image, either way."""
    file, _, small = striped_file(tmp_path / "a.png")
    model = ACES(
        core=networks.at_size(Stripes(), 16),
        certify=networks.build("tiny", num_classes=2, mean=[0.5], std=[0.25]).eval(),
        sigma=0.25,
        theta=0.0,
        num_classes=2,
        shape=(1, 4, 4),
    )
    for source, expected in ((file, 1), (Image.open(file), 1), ([str(file)], 1), (small, 0)):
        (certificate,) = model.certify(source, n=50, seed=0)
        assert (certificate.prediction, certificate.radius) == (expected, 0)
        for adaptive in (False, True):
            assert model.predict(source, n=50, adaptive=adaptive, seed=0) == [expected]
    body = file.read_bytes()
    asked = read_request(body, "image/png", {"n": "50"}, model=model, defaults={"n0": 100})
    assert model.certify(asked.images, **asked.options)[0].prediction == 1 and asked.draws == 150
    certificates = [model.at(theta=1).certify(source, n=50, seed=0) for source in (file, small)]
    assert certificates[0] == certificates[1]


def test_so_does_the_command(tmp_path, capsys):
    """The last bias is such that the core tells the file from its small image, enlarged."""
    file, large, small = striped_file(tmp_path / "a.png")
    core = networks.at_size(networks.build("tiny", num_classes=2, mean=[0.5], std=[0.25]), 16)
    certify = networks.build("tiny", num_classes=2, mean=[0.5], std=[0.25])
    with torch.inference_mode():
        logits = torch.cat([core(data.to_tensor(image)) for image in (large, small)])
        margins = logits[:, 1] - logits[:, 0]
        core.network.network.network.head.bias[1] -= margins.mean()
    model = ACES(core=core, certify=certify, sigma=0.25, theta=0, num_classes=2, shape=(1, 4, 4))
    model.save(tmp_path / "model")
    files = [str(file), str(tmp_path / "none.png")]
    for command in ("certify", "predict"):
        options = ["--model", str(tmp_path / "model"), "--n", "50", "--json"]
        assert cli.main([command, *files, *options]) == 1  # one file is missing
        found = json.loads(capsys.readouterr().out)
        assert found[0]["prediction"] == int(margins[0] > margins[1])
        assert "does not exist" in found[1]["error"] or "no such" in found[1]["error"].lower()


def test_files_and_pil_images_are_the_arrays_in_them(tmp_path):
    model, images = digits_model(), digits().image[:2]
    files = []
    for number, image in enumerate(images):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(image[:, :, 0]).save(files[-1])
    expected = model.certify(images, n=200, seed=1)
    opened = [Image.open(file) for file in files]
    assert model.certify(files, n=200, seed=1) == expected
    assert model.certify(opened, n=200, seed=1) == expected
    assert model.certify(str(files[0]), n=200, seed=1) == expected[:1]
    assert model.certify(opened[0].resize((80, 40)), n=200)[0].draws == 300


@pytest.mark.parametrize(
    "x, message",
    [
        ([], "images: an empty list: expected an array"),
        ([3], "images: a int: expected an array"),
        (None, "images: a NoneType: expected an array"),
        ([np.zeros((8, 8, 1), np.uint8)], "images: a ndarray: expected an array"),
        ("nowhere.png", "image nowhere.png does not exist"),
        (Image.new("L", (0, 4)), "image from memory has no pixels"),
    ],
)
def test_what_is_no_image_is_refused(x, message):
    with pytest.raises(InputError, match=message):
        half_space_model().certify(x, n=100)


def test_files_need_a_shape():
    model = ACES(
        core=Constant([0.0, 1.0]), certify=HalfSpace(), sigma=0.25, theta=0.9, num_classes=2
    )
    with pytest.raises(InputError, match=r"shape=\(C, H, W\)"):
        model.certify("photo.png", n=100)


def test_an_index_fixes_the_draws_of_an_image():
    model, x = half_space_model(), grey(0.52, 0.53)
    both = model.certify(x, n=500, seed=3, index=[7, 9])
    assert model.certify(x[1:], n=500, seed=3, index=[9]) == both[1:]
    assert model.certify(x[1:], n=500, seed=3, index=[8])[0].p_class != both[1].p_class


def test_work_ends_when_it_is_asked_to_stop():
    model = half_space_model()
    asked = []
    stopping = model.running(
        replace(model.runtime, stop=lambda: asked.append(1) or len(asked) == 3)
    )
    for ask in (
        lambda: stopping.certify(grey(0.6), n=100_000),
        lambda: stopping.predict(grey(0.5), n=100_000, adaptive=True),
    ):
        asked.clear()
        with pytest.raises(Stopped):
            ask()
        assert len(asked) == 3


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.rand(1, 4, 4), "shape"),
        (torch.rand(0, 1, 4, 4), "shape"),
        (torch.rand(1, 1, 5, 5), r"takes \(C, H, W\) = \(1, 4, 4\)"),
        (torch.ones(1, 1, 4, 4, dtype=torch.int64), "type"),
        (np.zeros((1, 1, 4, 4), dtype=bool), "type"),
        (255 * torch.ones(1, 1, 4, 4), "divide by 255"),
        (-0.1 * torch.ones(1, 1, 4, 4), "0, 1"),
        (torch.full((1, 1, 4, 4), math.nan), "0, 1"),
    ],
)
def test_wrong_images_are_refused(x, message):
    for answer in (half_space_model().certify, half_space_model().predict):
        with pytest.raises(InputError, match=message):
            answer(x, n=100)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"theta": 0.12345}, "theta"),
        ({"theta": 1.5}, "theta"),
        ({"sigma": -1.0}, "sigma"),
        ({"classes": ["one"]}, "classes"),
        ({"core": lambda x: x}, "core is a function"),
        ({"shape": (1, 4)}, r"shape=\(1, 4\): expected \(C, H, W\), three whole numbers from 1"),
        ({"shape": (1, 0, 4)}, r"shape=\(1, 0, 4\): expected \(C, H, W\)"),
        ({"shape": (1, 4.5, 4)}, r"shape=\(1, 4.5, 4\): expected \(C, H, W\)"),
        ({"shape": (1, None, 4)}, r"shape=\(1, None, 4\): expected \(C, H, W\)"),
        ({"shape": 4}, r"shape=4: expected \(C, H, W\)"),
        ({"resize": -3}, "resize=-3: expected a whole number from 1, or None"),
        ({"resize": 2.5}, "resize=2.5: expected a whole number from 1, or None"),
        ({"num_classes": 3}, "core network gives shape"),
        ({"certify": Constant([0.0, 1.0, 2.0])}, "network gives shape"),
        (
            {"core": nn.Linear(3, 2)},
            r"core network cannot run images of shape \(1, 4, 4\): mat1 and mat2",
        ),
        ({"core": nn.LSTM(4, 4)}, "core network cannot run"),
    ],
)
def test_wrong_models_are_refused(change, message):
    good = {
        "core": Constant([0.0, 1.0]),
        "certify": HalfSpace(),
        "sigma": 0.25,
        "theta": 0.5,
        "num_classes": 2,
    }
    with pytest.raises(InputError, match=message):
        ACES(**good | change).certify(grey(0.5), n=100)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 2.0}, "alpha"),
        ({"n": 5}, "n=5 is too small for alpha=0.001.*12"),
        ({"n0": 0}, "n0"),
        ({"seed": -1}, "seed"),
        ({"multiplicity": "none"}, "multiplicity"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        half_space_model().certify(grey(0.5), **{"n": 100} | options)


def test_a_core_that_gives_nan_is_refused():
    model = ACES(
        core=Constant([math.nan, 1.0]), certify=HalfSpace(), sigma=0.25, theta=0.5, num_classes=2
    )
    with pytest.raises(InputError, match="core network gives NaN"):
        model.certify(grey(0.5), n=100)


def test_networks_in_training_mode_are_used_in_evaluation_mode():
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 2))

    model, fresh = (
        ACES(
            core=network().train(mode),
            certify=network().train(mode),
            sigma=0.25,
            theta=0.9,
            num_classes=2,
        )
        for mode in (True, False)
    )
    assert model.certify(grey(0.1, 0.9), n=200, seed=0) == fresh.certify(
        grey(0.1, 0.9), n=200, seed=0
    )


def test_a_selection_network_needs_the_papers_rule():
    half = dict(core=Constant([0.0, 1.0]), certify=HalfSpace(), sigma=0.25, theta=0.5)
    half |= dict(num_classes=2, select=Constant([1.0, 0.0]))
    assert ACES(**half).rule == "paper"
    with pytest.raises(InputError, match="no use for a selection network"):
        ACES(**half, rule="confident")
    with pytest.raises(InputError, match="rule='guess'"):
        ACES(**half, rule="guess")
