"""ACES as a model: certificates of networks whose smoothing is known, inputs of every kind, the
folder it is saved to.
"""

import json
import math
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

import aces
from aces import ACES, networks, rule, sampling
from aces.errors import InputError
from aces.model.certificates import Certificate, Prediction, change
from aces.rule import ABSTAIN, Route
from aces.runtime import Stopped
from sampled import sample
from small_models import CLASSES, Constant, HalfSpace, digits, digits_model, grey, half_space_model

torch.set_num_threads(1)


# ---------------------------------------------------------------- what is certified


def test_radii_are_just_below_the_exact_distance_to_the_boundary():
    levels = [0.3, 0.45, 0.52, 0.55, 0.6]
    certificates = half_space_model().certify(grey(*levels), n=20_000, seed=0)
    for level, certificate in zip(levels, certificates, strict=True):
        exact = 4 * abs(level - 0.5)  # HalfSpace's docstring
        assert certificate.route == Route.CERTIFY and certificate.prediction == int(level > 0.5)
        assert 0.85 * exact - 0.01 < certificate.radius < exact


def test_an_image_on_the_boundary_abstains():
    (certificate,) = half_space_model().certify(grey(0.5), n=2000, seed=0)
    assert (
        certificate.prediction == ABSTAIN
        and certificate.route == Route.ABSTAIN
        and certificate.radius == 0
    )
    assert half_space_model().predict(grey(0.5), n=2000, seed=0) == [ABSTAIN]


def test_an_unsure_certification_network_leaves_it_to_the_core():
    model = ACES(
        core=Constant([0.0, 1.0]),
        certify=Constant([0.1, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    (certificate,) = model.certify(grey(0.2), n=1000)
    assert (certificate.prediction, certificate.radius, certificate.route) == (1, 0.0, Route.CORE)
    assert model.predict(grey(0.2), n=1000) == [1]
    assert model.at(theta=1.0).predict(grey(0.2), n=1000) == [0]


def test_a_selection_network_selects():
    half = dict(
        core=Constant([0.0, 1.0]),
        certify=Constant([9.0, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    to_core, to_certify = (
        ACES(**half, select=Constant(logits)) for logits in ([5.0, 0.0], [0.0, 5.0])
    )
    assert to_core.certify(grey(0.5), n=100)[0].route == Route.CORE
    assert to_certify.certify(grey(0.5), n=100)[0].route == Route.CERTIFY


def test_it_is_the_pipelines_rule_on_the_pipelines_draws():
    model, evaluation = digits_model(), digits()
    certificates = model.certify(evaluation.image, n=300, seed=5)
    counts = sample(
        model.networks["certify"],
        evaluation.image,
        sigma=model.sigma,
        num_classes=10,
        n0=100,
        n=300,
        n_predict=0,
        seed=5,
        progress=False,
    )
    with torch.inference_mode():
        core = model.networks["core"](aces.data.to_tensor(evaluation.image)).argmax(dim=1).numpy()
    outcomes = rule.certify(counts, core, alpha=0.001, thetas=[model.theta], rule=model.rule)
    assert [c.prediction for c in certificates] == outcomes.prediction[:, 0].tolist()
    assert [c.radius for c in certificates] == outcomes.radius[:, 0].tolist()
    assert [c.route for c in certificates] == outcomes.route[:, 0].tolist()
    assert all(
        c.draws == 400 and c.seed == 5 and c.name == CLASSES[c.prediction]
        for c in certificates
        if c.prediction != ABSTAIN
    )


def test_draws_are_fresh_unless_the_seed_says_otherwise():
    model, x = half_space_model(), grey(0.52)
    first, second = model.certify(x, n=500)[0], model.certify(x, n=500)[0]
    assert first.seed != second.seed and first.p_class != second.p_class
    assert model.certify(x, n=500, seed=first.seed)[0] == first
    (again,) = model.predict(x, n=500, seed=7)
    assert again.seed == 7 and model.predict(x, n=500, seed=7) == [again]


def test_invalid_draws_are_counted_and_never_help():
    class Broken(nn.Module):
        def forward(self, x):
            bad = (x.mean(dim=(1, 2, 3)) > 0.5).float()[:, None]
            return torch.tensor([9.0, 0.0]) + torch.log(1 - bad) + 0 * x.flatten(1)[:, :2]

    model = ACES(
        core=Constant([0.0, 1.0]), certify=Broken(), sigma=0.25, theta=0.9, num_classes=2, workers=1
    )
    (certificate,) = model.certify(grey(0.5), n=1000, seed=0)  # half of the draws are infinite
    assert 300 < certificate.invalid < 800 and certificate.route == Route.ABSTAIN


# ---------------------------------------------------------------- early stopping


def test_adaptive_predict_agrees_with_fixed_n_and_draws_little():
    model, evaluation = digits_model(), digits()
    fixed = model.predict(evaluation.image, n=10_000, seed=0)
    early = model.predict(evaluation.image, n=10_000, adaptive=True, seed=1)
    assert all(a == b for a, b in zip(fixed, early, strict=True) if ABSTAIN not in (a, b))
    assert early.count(ABSTAIN) <= fixed.count(ABSTAIN) + 2
    assert np.mean([prediction.draws for prediction in early]) <= 0.05 * 10_000
    assert max(prediction.draws for prediction in early) <= 10_000


def test_a_radius_asked_for_is_certified_where_it_holds_and_never_where_it_does_not():
    inside, outside = grey(0.6, 0.35), grey(0.54, 0.48)  # exact radii 0.4, 0.6 and 0.16, 0.08
    certificates = half_space_model().certify(
        torch.cat([inside, outside]), radius=0.25, adaptive=True, n=10_000, seed=0
    )
    assert [certificate.radius for certificate in certificates] == [0.25, 0.25, 0, 0]
    assert [certificate.prediction for certificate in certificates] == [1, 0, ABSTAIN, ABSTAIN]
    assert all(certificate.draws < 2000 for certificate in certificates)


def test_adaptive_certify_stops_where_nothing_is_to_be_gained():
    model = half_space_model(theta=0.9)
    fixed, early = (
        model.certify(grey(0.9), n=20_000, adaptive=adaptive, seed=0)[0]
        for adaptive in (False, True)
    )
    assert (
        early.prediction == fixed.prediction == 1 and 0.97 * fixed.radius < early.radius < 4 * 0.4
    )
    unsure = ACES(
        core=Constant([0.0, 1.0]),
        certify=Constant([0.1, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    (to_core,) = unsure.certify(grey(0.2), n=20_000, adaptive=True)
    assert to_core.route == Route.CORE and to_core.draws < 2000


def test_a_radius_without_adaptive_is_refused():
    with pytest.raises(InputError, match="adaptive=True"):
        half_space_model().certify(grey(0.6), radius=0.1, n=100)


@pytest.mark.parametrize("radius", [-0.1, 0.0, 9.0, math.nan])
def test_a_radius_out_of_reach_is_refused(radius):
    with pytest.raises(InputError, match="radius="):
        half_space_model().certify(grey(0.6), radius=radius, adaptive=True, n=1000)


def test_the_sampler_answers_by_the_rule_of_the_model_unless_it_is_told_another():
    plan, x = aces.DrawPlan(sigma=0.25, n0=20, n=100, seed=1), grey(0.9)
    ask = dict(core=np.zeros(1, int), theta=0.5, alpha=0.01, num_classes=2)
    ask |= dict(runtime=aces.Runtime(device="cpu", workers=1, progress=False))
    for select in (None, Constant([0.0, 1.0])):
        expected = "confident" if select is None else "paper"
        by_default = sampling.predict(HalfSpace(), x, plan, select=select, **ask)
        assert by_default == sampling.predict(
            HalfSpace(), x, plan, select=select, rule=expected, **ask
        )


# ---------------------------------------------------------------- what goes in


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


@pytest.mark.parametrize("x", [[], [3], "nowhere.png", None, [np.zeros((8, 8, 1), np.uint8)]])
def test_what_is_no_image_is_refused(x):
    with pytest.raises(InputError, match="image"):
        digits_model().certify(x, n=100)


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


# ---------------------------------------------------------------- what comes out


def certificate(**changes) -> Certificate:
    made = dict(prediction=3, radius=0.21739, route=Route.CERTIFY, p_select=0.9, p_class=0.8)
    made |= dict(alpha=0.001, draws=100_100, invalid=0, seed=1, name="cat", values=3072)
    return Certificate(**made | changes)


def test_certificates_read_well():
    assert str(certificate()) == (
        "cat, by the certification network, certified within 0.2173: one value by 55, or all "
        "3,072 by "
        "1.00 grey levels (alpha 0.001, 100,100 draws)"
    )
    assert certificate().grey_levels == pytest.approx(55.43, abs=0.01)
    to_core = certificate(radius=0.0, route=Route.CORE, name="")
    assert str(to_core) == "class 3, by the core network, no radius (alpha 0.001, 100,100 draws)"


def test_an_abstention_claims_nothing():
    said = str(certificate(prediction=ABSTAIN, radius=0.0, route=Route.ABSTAIN, name=""))
    assert said == "abstains (100,100 draws)"
    assert str(Prediction(ABSTAIN, route=Route.ABSTAIN, draws=5)) == "abstains (5 draws)"


def test_a_tiny_alpha_is_not_rounded_to_certainty():
    assert "alpha 2e-08" in str(certificate(alpha=2e-8))


@pytest.mark.parametrize("radius", [1e-5, 0.00399, 0.2173999, 0.9999, 1.0, 3.7])
def test_a_radius_in_grey_levels_is_never_rounded_up(radius):
    allowed = change(radius, values=3072)
    one, every = float(allowed.one_value), float(allowed.all_values)
    assert one <= 255 * radius and np.sqrt(3072) * every <= 255 * radius
    assert one <= 255


def test_a_prediction_is_an_int_that_knows_its_route_and_cannot_be_changed():
    prediction = Prediction(3, route=Route.CORE, alpha=0.001, draws=120, seed=1, name="cat")
    assert prediction == 3 and json.dumps([prediction]) == "[3]"
    assert str(prediction) == "cat, by the core network (alpha 0.001, 120 draws)"
    assert pickle.loads(pickle.dumps(prediction)).route == Route.CORE
    with pytest.raises(AttributeError):
        prediction.route = Route.CERTIFY


def test_answers_record_what_they_depend_on():
    model = half_space_model()
    for answer in (*model.certify(grey(0.6), n=100), *model.predict(grey(0.6), n=100)):
        record = answer.as_dict()
        assert record["sigma"] == 0.25 and record["theta"] == 0.9 and record["alpha"] == 0.001
        assert record["rule"] == model.rule and record["noise"] == model.noise
        assert record["precision"] == "float32" and record["invalid"] == 0
        assert record["backend"] and record["generator"] and json.dumps(record)


def test_a_model_says_what_it_is():
    said = repr(digits_model())
    for part in ("sigma=0.25", "theta=0.6", digits_model().rule, "core: tiny", "certify: tiny"):
        assert part in said, said


def test_importing_aces_does_not_import_torch():
    subprocess.run(
        [sys.executable, "-c", "import aces, sys; assert 'torch' not in sys.modules"], check=True
    )


def test_the_library_needs_neither_mlflow_nor_pandas_nor_dvc():
    code = (
        "import sys\n"
        "for name in ('mlflow', 'pandas', 'dvc', 'matplotlib', 'ray', 'fastapi', 'starlette'):\n"
        "    sys.modules[name] = None\n"
        "import aces.model.composed, aces.model.attack\n"
        "import aces.commands.certify, aces.commands.predict"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- save and load


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


def test_a_selection_network_needs_the_papers_rule():
    half = dict(core=Constant([0.0, 1.0]), certify=HalfSpace(), sigma=0.25, theta=0.5)
    half |= dict(num_classes=2, select=Constant([1.0, 0.0]))
    assert ACES(**half).rule == "paper"
    with pytest.raises(InputError, match="no use for a selection network"):
        ACES(**half, rule="confident")
    with pytest.raises(InputError, match="rule='guess'"):
        ACES(**half, rule="guess")


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


# ---------------------------------------------------------------- calibration


def test_calibrate_sets_the_largest_theta_that_keeps_its_promise():
    """The core is always right, the certification network on half of the images only: what it is
    asked is lost. At theta = 0 it is never asked.
    """
    model = ACES(
        core=HalfSpace(threshold=0.5),
        certify=HalfSpace(threshold=0.3, scale=4.0),
        sigma=0.25,
        theta=0.9,
        num_classes=2,
        workers=1,
    )
    levels = np.repeat([0.2, 0.4, 0.6, 0.8], 50)
    x, labels = grey(*levels.tolist()), (levels > 0.5).astype(int)
    found = model.calibrate(x, labels, loss=0.05, confidence=0.9, n=60, step=0.1, seed=0)
    assert model.theta == found.theta < 1 and found.images == 200 and found.shown
    assert found.measured <= found.bound <= 0.05 and found.losses[-1] > 0.05
    assert model.calibrate(x, labels, loss=0.9, n=60, step=0.1, seed=0).theta == 1


def test_calibrate_says_how_many_images_it_needs():
    model, before = half_space_model(theta=0.8), 0.8
    with pytest.raises(InputError, match="take at least 203"):
        model.calibrate(grey(0.6, 0.4), [1, 0], n=60)
    assert model.theta == before


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": [0]}, "labels of shape"),
        ({"labels": [0, 2]}, "classes 0 to 1"),
        ({"labels": [0.0, 1.0]}, "type float"),
        ({"step": 0.3}, "step=0.3"),
        ({"loss": 0.0}, "loss=0"),
        ({"confidence": 1.0}, "confidence=1"),
        ({"n": 3}, "n=3 is too small"),
    ],
)
def test_wrong_calibrations_are_refused(change, message):
    options = {"labels": [0, 1], "n": 60} | change
    with pytest.raises(InputError, match=message):
        half_space_model().calibrate(grey(0.4, 0.6), **options)
