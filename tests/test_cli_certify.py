"""`aces certify` and `aces predict` on image files, with the pipeline's networks and with a saved
model.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from PIL import Image

from aces import ACES
from aces.cli import main
from aces.commands.answering import number_of
from aces.model.certificates import change
from aces.rule import ABSTAIN, Route
from aces.rule.statistics import floor_digits
from small_models import digits, digits_model, write_project

pytestmark = pytest.mark.slow

torch.set_num_threads(1)

THETA = 0.7  # the working point that `write_project` writes


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a finished pipeline on the digits, and two images of them."""
    write_project(tmp_path)
    for number in range(2):
        Image.fromarray(digits().image[number, :, :, 0]).save(tmp_path / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def project_model() -> ACES:
    """The pipeline's model in the current folder."""
    return ACES.from_pipeline()


def certify(capsys, *arguments: str, status: int = 0) -> list[dict]:
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_the_pipelines_precision_is_that_of_its_answers(project, capsys):
    settings = project / "params.yaml"
    text = settings.read_text()
    assert "precision: float32" in text
    settings.write_text(text.replace("precision: float32", "precision: bfloat16"))
    (record,) = certify(capsys, "certify", "0.png", "--n0", "50", "--n", "100")
    assert record["precision"] == project_model().precision == "bfloat16"


def test_the_pipelines_networks_answer_by_default(project, capsys):
    records = certify(
        capsys, "certify", "0.png", "1.png", "--n0", "100", "--n", "500", "--seed", "3"
    )
    expected = project_model().certify(
        digits().image[:2], n=500, seed=3, index=[number_of("0.png"), number_of("1.png")]
    )
    assert [record["image"] for record in records] == ["0.png", "1.png"]
    for record, certificate in zip(records, expected, strict=True):
        assert (
            record["prediction"] == certificate.prediction and record["class"] == certificate.name
        )
        assert (
            record["radius"] == certificate.radius
            and record["route"] == certificate.route.name.lower()
        )
        assert record["grey_levels"] == 255 * certificate.radius
        assert record["draws"] == 600 and record["alpha"] == 0.001
        assert record["theta"] == THETA and record["seed"] == 3 and record["sigma"] == 0.25
        assert {"rule", "noise", "precision", "backend", "generator", "invalid"} <= set(record)


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


def test_the_table_shows_class_radius_route_alpha_and_draws(project, capsys):
    arguments = ["--n0", "100", "--n", "500", "--seed", "3", "--theta", "0.8"]
    (record,) = certify(capsys, "certify", "0.png", *arguments)
    assert record["radius"] > 0
    assert main(["certify", "0.png", *arguments]) == 0
    shown = capsys.readouterr().out
    allowed = change(record["radius"], values=64)
    for text in (
        "0.png",
        record["class"],
        floor_digits(record["radius"], 4),
        allowed.one_value,
        allowed.all_values,
        "all 64",
        "certify",
        "600",
        "sigma 0.25, theta 0.8",
        "alpha 0.001",
    ):
        assert text in shown, shown
    assert "confidence" not in shown


def test_a_long_name_is_neither_wrapped_nor_cut(project, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = "a name " * 15 + "of a file.png"
    (project / name).write_bytes((project / "0.png").read_bytes())
    assert main(["certify", name, "--n", "100", "--theta", "0.8"]) == 0
    assert name in capsys.readouterr().out


def test_radius_asks_whether_all_images_are_certified_within_it(project, capsys):
    options = ["--theta", "1", "--n", "2000", "--no-adaptive", "--seed", "0"]
    radius = certify(capsys, "certify", "0.png", *options)[0]["radius"]
    assert radius > 0.05
    certify(capsys, "certify", "0.png", *options, "--radius", str(radius), status=0)
    certify(capsys, "certify", "0.png", *options, "--radius", str(radius + 0.01), status=1)


def test_an_abstention_and_a_name_that_looks_like_markup_are_shown(project, capsys, monkeypatch):
    Image.fromarray(digits().image[0, :, :, 0]).save("[red]0.png")
    answer = ACES.certify

    def abstain(self, x, **options):
        nothing = {"prediction": ABSTAIN, "radius": 0.0, "route": Route.ABSTAIN, "name": ""}
        return [replace(it, **nothing) for it in answer(self, x, **options)]

    monkeypatch.setattr(ACES, "certify", abstain)
    assert main(["certify", "[red]0.png", "--n", "100"]) == 0
    shown = capsys.readouterr().out
    assert "[red]0.png" in shown and "abstains" in shown and "confidence" not in shown


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
    index = [number_of("0.png"), number_of("1.png")]
    expected = project_model().predict(digits().image[:2], n=400, seed=1, index=index)
    assert [record["route"] for record in records] == [it.route.name.lower() for it in expected]
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


def test_without_a_working_point_it_says_what_to_do(project, capsys):
    (project / "results" / "calibration.json").unlink()
    assert main(["certify", "0.png"]) == 2
    assert "report.theta" in capsys.readouterr().err
    assert main(["certify", "0.png", "--n", "100", "--theta", "0.5"]) == 0


@pytest.mark.parametrize(
    "text", ['{"theta": "high"}', '{"theta": 0.12345}', "{", '{"theta": true}']
)
def test_a_damaged_calibration_is_one_line(project, capsys, text):
    (project / "results" / "calibration.json").write_text(text)
    assert main(["certify", "0.png"]) == 2
    captured = capsys.readouterr().err
    assert "calibration.json" in captured and captured.count("\n") == 1


# ---------------------------------------------------------------- mistyped words, completion


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (["certfy", "0.png"], "did you mean certify?"),
        (["certify", "0.png", "--thta", "0.3"], "did you mean --theta?"),
        (["predict", "0.png", "--sed", "3"], "did you mean --seed?"),
        (["zzz"], "invalid choice"),
    ],
)
def test_a_mistyped_word_is_answered_with_what_may_have_been_meant(capsys, arguments, hint):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and hint in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_knows_commands_and_options(capsys, shell):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "certify" in script and "theta" in script


# ---------------------------------------------------------------- many files


def write_folder(project, count: int) -> None:
    """`count` files, three of which are broken."""
    (project / "photos").mkdir()
    for number in range(count):
        image = Image.fromarray(digits().image[number % len(digits().image), :, :, 0])
        image.save(project / "photos" / f"{number:03}.png")
    (project / "photos" / "003.png").write_bytes(b"not an image")
    (project / "photos" / "004.png").write_bytes(b"")
    whole = (project / "photos" / "005.png").read_bytes()
    (project / "photos" / "005.png").write_bytes(whole[: len(whole) // 2])
    (project / "photos" / "notes.txt").write_text("no image, and not meant as one")


OPTIONS = ["--n0", "20", "--n", "60", "--seed", "5", "--theta", "0.8"]


def test_three_broken_files_do_not_stop_the_other_47(project, capsys):
    write_folder(project, 50)
    assert main(["certify", "photos", *OPTIONS]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("photos/") == 47
    for number in (3, 4, 5):
        assert f"photos/00{number}.png" in captured.err
    assert "3 of 50 files could not be read" in captured.err
    records = certify(capsys, "predict", "photos", "--n", "60", "--theta", "0.8", status=1)
    assert sum("error" in record for record in records) == 3 and len(records) == 50


def test_a_table_of_200_files_is_the_same_after_a_kill(project, capsys):
    write_folder(project, 200)
    command = [sys.executable, "-m", "aces.cli", "certify", "photos", *OPTIONS]
    assert main(["certify", "photos", *OPTIONS, "--out", "whole.csv"]) == 1
    whole = (project / "whole.csv").read_bytes()
    process = subprocess.Popen(
        [*command, "--out", "killed.csv"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    killed = project / "killed.csv"
    while process.poll() is None and not (killed.exists() and killed.stat().st_size > 4000):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    partial = killed.read_bytes()
    assert 0 < partial.count(b"\n") < whole.count(b"\n") and whole.startswith(partial[:4000])
    killed.write_bytes(partial[:-7])  # half a row, as a kill may leave it
    capsys.readouterr()
    assert main(["certify", "photos", *OPTIONS, "--out", "killed.csv"]) == 1
    assert killed.read_bytes() == whole
    assert "from before" in capsys.readouterr().out
    rows = list(csv.DictReader(whole.decode().splitlines()))
    assert len(rows) == 200 and sum(bool(row["error"]) for row in rows) == 3


def test_a_table_goes_on_with_its_seed_and_refuses_other_settings(project, capsys):
    options = ["--n0", "20", "--n", "60", "--theta", "0.8"]
    assert main(["certify", "0.png", *options, "--out", "t.csv"]) == 0
    (first,) = csv.DictReader((project / "t.csv").read_text().splitlines())
    assert main(["certify", "0.png", "1.png", *options, "--out", "t.csv"]) == 0
    again = list(csv.DictReader((project / "t.csv").read_text().splitlines()))
    assert again[0] == first and again[1]["seed"] == first["seed"]
    capsys.readouterr()
    for change_ in (["--theta", "0.9"], ["--n", "80"], ["--seed", "1"], ["--alpha", "0.01"]):
        assert main(["certify", "0.png", *options, *change_, "--out", "t.csv"]) == 2
        assert "t.csv has rows of" in capsys.readouterr().err
    assert main(["certify", "0.png", *options, "--out", "params.yaml"]) == 2
    assert "not a table of this command" in capsys.readouterr().err


def test_a_file_that_has_changed_is_answered_anew(project, capsys):
    """The row of what stood in the file before would be a certificate for another image."""
    options = ["--n0", "20", "--n", "60", "--theta", "0.8", "--seed", "5"]
    assert main(["certify", "0.png", "1.png", *options, "--out", "t.csv"]) == 0
    (project / "0.png").write_bytes((project / "1.png").read_bytes())
    capsys.readouterr()
    assert main(["certify", "0.png", "1.png", *options, "--out", "t.csv"]) == 0
    assert "1 from before" in capsys.readouterr().out
    assert main(["certify", "0.png", "1.png", *options, "--out", "fresh.csv"]) == 0
    assert (project / "t.csv").read_bytes() == (project / "fresh.csv").read_bytes()


def test_a_file_that_was_repaired_gets_its_row(project, capsys):
    options = ["--n0", "20", "--n", "60", "--theta", "0.8", "--out", "t.csv"]
    (project / "a.png").write_bytes(b"broken")
    assert main(["certify", "a.png", "0.png", *options]) == 1
    (project / "a.png").write_bytes((project / "0.png").read_bytes())
    assert main(["certify", "a.png", "0.png", *options]) == 0
    rows = list(csv.DictReader((project / "t.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == ["a.png", "0.png"] and not rows[0]["error"]


def test_an_empty_folder_is_named(project, capsys):
    (project / "empty").mkdir()
    assert main(["certify", "empty"]) == 2
    assert "empty has no image files" in capsys.readouterr().err
