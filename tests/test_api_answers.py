"""What comes out of a model: certificates and predictions that read well and claim no more than they
should.
"""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from aces.model.certificates import Certificate, Prediction, change
from aces.networks import fingerprint
from aces.rule import ABSTAIN, Route
from small_models import digits_model, grey, half_space_model

torch.set_num_threads(1)


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
        assert record["backend"] and record["generator"].startswith("ChaCha8, rounded Gaussian")
        assert record["model"] == fingerprint(model.networks["certify"])
        assert record["core"] == fingerprint(model.networks["core"])
        assert record["n0"] + record["n"] == record["draws"] and 0 < record["tv"] < 1e-12
        assert record["rounding"] == 0 and json.dumps(record)


def test_an_answer_about_a_float_image_says_how_far_its_lattice_point_is():
    off = grey(153 / 255 + 1e-4)
    model = half_space_model()
    for ask in (dict(n=100), dict(n=200, adaptive=True)):
        assert model.predict(off, **ask)[0].rounding == pytest.approx(4e-4, rel=1e-3)


def test_a_model_says_what_it_is():
    said = repr(digits_model())
    for part in ("sigma=0.25", "theta=0.6", digits_model().rule, "core: tiny", "certify: tiny"):
        assert part in said, said


def test_importing_aces_does_not_import_torch():
    subprocess.run(
        [sys.executable, "-c", "import aces, sys; assert 'torch' not in sys.modules"], check=True
    )


@pytest.mark.slow
def test_the_library_needs_neither_mlflow_nor_pandas_nor_dvc():
    code = (
        "import sys\n"
        "for name in ('mlflow', 'pandas', 'dvc', 'matplotlib', 'ray', 'fastapi', 'starlette'):\n"
        "    sys.modules[name] = None\n"
        "import aces.model.composed, aces.model.attack\n"
        "import aces.commands.certify, aces.commands.predict"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
