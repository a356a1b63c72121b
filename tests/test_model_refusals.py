"""What a model refuses, wherever it is used: in one line, before anything is drawn."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from mlflow.exceptions import MlflowException

from aces import ACES, networks, params
from aces.errors import InputError
from aces.model import folder as saved
from aces.model import pipeline
from aces.model.attack import attack
from aces.model.plans import Planner
from aces.model.serving import Served, _logged_parameters, log_model
from small_models import grey, half_space_model


def test_every_attacked_image_needs_a_certificate():
    model, images = half_space_model(), grey(0.6, 0.7)
    certificates = model.certify(images, n=100)
    for few in (certificates[:1], certificates * 2):
        with pytest.raises(
            InputError, match="certificates for 2 images: expected one for each, as"
        ):
            attack(model, images, few)


def test_a_score_of_ones_own_is_no_part_of_a_model(tmp_path, monkeypatch):
    """The pipeline knows it by the module that it was named by; a model of it would not."""
    chosen = params.Params(
        select=params.Select(score="own:score"), combine=params.Combine(rule="paper")
    )
    monkeypatch.setattr(params, "load", lambda path: chosen)
    with pytest.raises(InputError, match="select.score='own:score': .* with combine.rule: confid"):
        ACES.from_pipeline(tmp_path)
    confident = chosen.replace(combine=params.Combine(rule="confident"))
    monkeypatch.setattr(params, "load", lambda path: confident)
    monkeypatch.setattr(pipeline, "load_model", lambda path: pytest.fail("it went on"))
    with pytest.raises(BaseException, match="it went on"):
        ACES.from_pipeline(tmp_path)


def test_a_prediction_that_could_never_be_sure_is_refused():
    """Of n draws the half, at most 50, fix the guesses. If all m others agree, their evidence is the
    mean of (2 p)**m over p of Beta(1/2, 1/2) above 1/2, where p is the squared sine of a uniform
    angle. It must reach 2 / alpha.
    """
    double = 2 * np.sin(np.linspace(np.pi / 4, np.pi / 2, 100_001)) ** 2
    assert np.mean(double**12) < 2 / 0.001 < np.mean(double**13)
    planner = Planner(0.25, noise="exact", precision="float32")
    with pytest.raises(InputError, match="n=24 is too small for alpha=0.001: 12 .* at least 25$"):
        planner.predict_early(n=24, alpha=0.001, seed=0)
    plan = planner.predict_early(n=25, alpha=0.001, seed=0)
    assert (plan.n0, plan.n) == (12, 13)
    with pytest.raises(InputError, match="is too small for alpha=1e-300: 50 draws fix .* at least"):
        planner.predict_early(n=1000, alpha=1e-300, seed=0)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [", "not YAML: .*: save the model again"),
        ("a: 1\na: 2", "line 2: the key 'a' is there twice: remove one: save the model again"),
        ("# " + "a" * 200, "longer than any description of a model: save the model again"),
        ("- 1", "has format None: this version reads 1 and 2; save the model again"),
        ("format: true", "has format True: this version reads 1 and 2; save the model again"),
    ],
)
def test_a_description_that_cannot_be_read_is_named_with_its_path(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.setattr(saved, "MOST_CHARACTERS", 100)
    path = tmp_path / "aces.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:? {message}$") as caught:
        ACES.load(tmp_path)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- in MLflow


def test_a_model_that_does_not_say_which_images_it_takes_is_not_logged(tmp_path):
    tiny = networks.build("tiny", num_classes=2, mean=[0.5], std=[0.25])
    ACES(core=tiny, certify=tiny, sigma=0.25, theta=0, num_classes=2).save(tmp_path)
    with pytest.raises(
        InputError, match=r"does not say .*: give ACES\(shape=\(C, H, W\)\), save it"
    ):
        log_model(tmp_path, dataset="digits")


def test_a_wrong_question_is_told_in_the_way_of_mlflow(tmp_path):
    served = Served()
    served._model = half_space_model()
    image = np.full((1, 1, 4, 4), 0.5, dtype=np.float32)
    for images, options, message in (
        (image, {"n": 5}, "n=5 is too small for alpha=0.001"),
        (2 * image[..., :3], {"n": 50}, r"\(N, C, H, W\) = \(N, 1, 4, 4\)"),
    ):
        with pytest.raises(MlflowException, match=message) as caught:
            served.predict(None, images, {"n0": 10, "alpha": 0.001} | options)
        assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    answer = served.predict(None, image, {"n0": 10, "n": 50, "alpha": 0.001})
    assert len(answer) == 1
    context = SimpleNamespace(artifacts={"aces": str(tmp_path)})
    with pytest.raises(InputError, match="is not part of a model that MLflow logged: log it again"):
        _logged_parameters(context)
