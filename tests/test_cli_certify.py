"""`aces certify` and `aces predict` on image files, with the pipeline's networks and with a saved
model.
"""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from aces.cli import main
from small_models import digits, digits_model, write_project

torch.set_num_threads(1)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a finished pipeline on the digits, and two images of them."""
    write_project(tmp_path)
    for number in range(2):
        Image.fromarray(digits().image[number, :, :, 0]).save(tmp_path / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def certify(capsys, *arguments: str, status: int = 0) -> list[dict]:
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_the_pipelines_networks_answer_by_default(project, capsys):
    records = certify(
        capsys, "certify", "0.png", "1.png", "--n0", "100", "--n", "500", "--seed", "3"
    )
    model = digits_model().at(theta=0.5)
    expected = model.certify(digits().image[:2], n=500, seed=3)
    assert [record["image"] for record in records] == ["0.png", "1.png"]
    for record, certificate in zip(records, expected):
        assert (
            record["prediction"] == certificate.prediction and record["class"] == certificate.name
        )
        assert (
            record["radius"] == certificate.radius
            and record["route"] == certificate.route.name.lower()
        )
        assert record["grey_levels"] == 255 * certificate.radius
        assert record["draws"] == 600 and record["confidence"] == 0.999 and record["theta"] == 0.5


def test_a_saved_model_answers_with_its_theta_or_another(project, capsys):
    digits_model().save("saved")
    assert (
        certify(capsys, "certify", "0.png", "--model", "saved", "--n", "200")[0]["theta"]
        == digits_model().theta
    )
    (record,) = certify(
        capsys, "certify", "0.png", "--model", "saved", "--n", "200", "--theta", "0"
    )
    assert record["theta"] == 0 and record["route"] == "core" and record["radius"] == 0


def test_images_of_any_size_are_taken(project, capsys):
    Image.fromarray(digits().image[0, :, :, 0]).resize((320, 200)).convert("RGBA").save(
        "large.webp"
    )
    (record,) = certify(capsys, "certify", "large.webp", "--n", "200")
    assert record["prediction"] in range(-1, 10)


def test_the_table_shows_class_radius_route_confidence_and_draws(project, capsys):
    assert (
        main(["certify", "0.png", "--n0", "100", "--n", "500", "--seed", "3", "--theta", "0.8"])
        == 0
    )
    shown = capsys.readouterr().out
    (certificate,) = digits_model().at(theta=0.8).certify(digits().image[:1], n=500, seed=3)
    assert certificate.radius > 0
    down = np.floor(certificate.radius * 1e4) / 1e4
    for text in (
        "0.png",
        certificate.name,
        f"{down:.4f}",
        "certify",
        "99.9 %",
        "600",
        "sigma 0.25, theta 0.8",
    ):
        assert text in shown, shown


def test_radius_asks_whether_all_images_are_certified_within_it(project, capsys):
    options = ["--theta", "1", "--n", "2000", "--no-adaptive", "--seed", "0"]
    radius = certify(capsys, "certify", "0.png", *options)[0]["radius"]
    assert radius > 0.05
    certify(capsys, "certify", "0.png", *options, "--radius", str(radius), status=0)
    certify(capsys, "certify", "0.png", *options, "--radius", str(radius + 0.01), status=1)


def test_an_abstention_and_a_name_that_looks_like_markup_are_shown(project, capsys):
    Image.fromarray(digits().image[3, :, :, 0]).save("[red]0.png")  # not clear enough for 12 draws
    assert (
        main(
            ["predict", "[red]0.png", "--no-adaptive", "--n", "12", "--seed", "0", "--theta", "0.4"]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "[red]0.png" in shown and "abstains" in shown


def test_by_default_a_radius_is_tested_and_a_class_predicted_with_few_draws(project, capsys):
    (asked,) = certify(
        capsys, "certify", "0.png", "--theta", "1", "--radius", "0.1", "--n", "10000"
    )
    assert asked["radius"] == 0.1 and asked["draws"] < 2000
    (predicted,) = certify(capsys, "predict", "0.png", "--n", "10000")
    assert predicted["prediction"] == digits().label[0] and predicted["draws"] < 2000


def test_predict_answers_with_the_class(project, capsys):
    records = certify(
        capsys, "predict", "0.png", "1.png", "--seed", "1", "--no-adaptive", "--n", "400"
    )
    expected = digits_model().at(theta=0.5).predict(digits().image[:2], n=400, seed=1)
    assert [record["prediction"] for record in records] == expected
    assert all(record["draws"] == 400 for record in records)
    assert main(["predict", "0.png", "--seed", "1", "--no-adaptive", "--n", "400"]) == 0
    assert expected[0].name in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["certify", "missing.png"], "missing.png does not exist"),
        (["certify", "params.yaml"], "params.yaml is in no format"),
        (["certify", "0.png", "--theta", "2"], "theta=2"),
        (["certify", "0.png", "--n", "3"], "n=3 is too small"),
        (["certify", "0.png", "--alpha", "7"], "alpha=7"),
        (["certify", "0.png", "--model", "nowhere"], "nowhere has no aces.yaml"),
        (["certify", "0.png", "--radius", "-1"], "--radius=-1"),
        (["predict", "0.png", "--n", "3"], "n=3 is too small"),
    ],
)
def test_bad_use_is_one_line_and_status_2(project, capsys, arguments, message):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert (
        message in captured.err
        and captured.err.count("\n") == 1
        and "Traceback" not in captured.err
    )


def test_without_a_finished_pipeline_it_says_what_to_do(project, capsys):
    (project / "models" / "certify.safetensors").unlink()
    assert main(["certify", "0.png"]) == 2
    assert "dvc repro" in capsys.readouterr().err
    (project / "params.yaml").unlink()
    assert main(["certify", "0.png"]) == 2
    assert "aces profile use" in capsys.readouterr().err
