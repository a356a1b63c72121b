"""What the commands refuse before any work starts: one line with the name and what was expected."""

import os
import resource
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from aces import ACES, cli, params
from aces.bench import results
from aces.bench.precision import measure_precision
from aces.bench.stopping import measure_stopping
from aces.commands import answering, doctor
from aces.commands.table import SETTINGS, AnswerTable
from aces.errors import EXTRAS, InputError
from aces.rule.counts import Round
from made_counts import from_joint
from small_models import Constant, HalfSpace


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing is here but two folders and an image file that is none."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "photos"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos" / "0.png").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["attack", "--images", "0"], "--images=0: expected a whole number of at least 1"),
        (["bench", "dreaming"], "section 'dreaming': expected some of sampler, scaling"),
        (["bench", "rule", "--repeats", "0"], "--repeats 0: expected more than 0 seconds"),
        (["bench", "rule", "--seconds", "nan"], "--seconds nan --repeats 5: expected more"),
        (["bench", "results", "--images", "0"], "--images 0: expected at least 1"),
        (
            ["bench", "rule", "--out", "none/a.json"],
            "the folder none does not exist; make it first",
        ),
        (["import", "a.pth", "--out", "run"], "--out=run is a folder: name the file to write"),
        (["paper", "nowhere"], "nowhere has no data/<dataset>/<method>/noise_<sigma>: give the"),
        (["rules", "run"], "'run': expected NAME=FOLDER with the folder of a finished run"),
        (["rules", "a=none"], "'a=none': expected NAME=FOLDER with the folder of a"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and said.startswith(f"aces {arguments[0]}: ")


def test_an_import_without_a_project_needs_the_name_of_a_dataset(capsys, elsewhere):
    (elsewhere / "a.pth").write_bytes(b"")
    assert cli.main(["import", "a.pth"]) == 2
    said = capsys.readouterr().err
    assert "--dataset is not given, and there is no params.yaml here" in said
    assert "such as --dataset cifar10" in said


def test_completion_says_which_library_it_needs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    said = capsys.readouterr().err
    assert "completion needs shtab, which is not installed: `pip install shtab`" in said


def test_a_defect_keeps_its_traceback(monkeypatch):
    def defect(args):
        raise RuntimeError("a defect")

    monkeypatch.setattr("aces.commands.schema.run", defect)
    with pytest.raises(RuntimeError, match="^a defect$"):
        cli.main(["schema"])


# ---------------------------------------------------------------- files for a model


def shapeless() -> ACES:
    """A model that does not say which images it takes."""
    return ACES(core=Constant([0.0, 1.0]), certify=HalfSpace(), sigma=1, theta=0, num_classes=2)


def test_files_need_a_model_that_says_which_images_it_takes(monkeypatch, capsys):
    with pytest.raises(InputError, match=r"which images it takes: give ACES\(shape=\(C, H, W\)\)"):
        list(answering.answer_files(["photos/0.png"], shapeless(), list, quiet=True))
    monkeypatch.setattr(answering, "load_model", lambda args: (shapeless(), None))
    assert cli.main(["attack", "photos"]) == 2
    assert (
        "the model does not say which images it takes: save it with a shape"
        in capsys.readouterr().err
    )


# ---------------------------------------------------------------- the table of `aces certify --out`

COLUMNS = ["image", *SETTINGS, "sha256", "error"]
ROW = dict.fromkeys(COLUMNS, "") | {"image": "0.png", "seed": "7"}


def written(path, **changes: str) -> AnswerTable:
    """A table of one row."""
    row = ROW | changes
    path.write_text("\n".join([",".join(COLUMNS), ",".join(map(str, row.values())), ""]))
    return AnswerTable(path, COLUMNS)


@pytest.mark.parametrize("content", [b"\xff\xfe not text\n", b"a" * 200_000 + b"\n"])
def test_what_is_no_table_is_refused(content, elsewhere):
    (elsewhere / "photo.png").write_bytes(content)
    with pytest.raises(InputError, match="photo.png cannot be read as a table .*: choose"):
        AnswerTable(elsewhere / "photo.png", COLUMNS)


def test_a_table_whose_seed_is_no_number_is_refused(elsewhere):
    assert written(elsewhere / "table.csv").seed == 7
    for seed in ("seven", "7" * 9999):  # Python reads no whole number of so many digits
        with pytest.raises(InputError, match=f"table.csv has a row of seed={seed[:40]}: expected"):
            _ = written(elsewhere / "table.csv", seed=seed).seed


# ---------------------------------------------------------------- aces bench, on a finished run


@pytest.mark.parametrize(
    "precision, looks, score, said",
    [
        ("float32", {}, "entropy", "sample.precision: float32, select.score: entropy and no early"),
        ("int8", {Round.BOUND: None}, "entropy", "select.score: entropy and some early stopping"),
        ("int8", {}, "network", "sample.precision: int8, select.score: network and no early stop"),
    ],
)
def test_float32_is_compared_with_runs_whose_draws_it_can_repeat(
    monkeypatch, precision, looks, score, said
):
    counts = SimpleNamespace(settings=SimpleNamespace(precision=precision), looks=looks)
    monkeypatch.setattr("aces.rule.samples.read_evaluation", lambda: (counts, None))
    with pytest.raises(InputError, match=f"{said}.*: expected another precision than float32"):
        measure_precision(params.Params(select=params.Select(score=score)))


def test_early_stopping_cannot_be_simulated_from_draws_that_are_all_invalid():
    drawn = dict(images=2, n0=10, n=20, n_predict=0, rng=np.random.default_rng(0))
    counts = from_joint([[0.5, 0.0], [0.0, 0.5]], p_invalid=1.0, guess=(0, 0), **drawn)
    with pytest.raises(InputError, match="images all of whose draws are invalid.* without NaN or"):
        measure_stopping(counts)


def test_a_stage_that_fails_on_the_enlarged_run_is_named(monkeypatch, elsewhere):
    used = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: SimpleNamespace(pid=0))
    monkeypatch.setattr(os, "wait4", lambda pid, options: (pid, 0, used))
    assert results._run("report", elsewhere)["peak_bytes"] > 0
    monkeypatch.setattr(os, "wait4", lambda pid, options: (pid, 2 << 8, used))  # exit status 2
    with pytest.raises(InputError, match="stage report failed for the enlarged run: see the mess"):
        results._run("report", elsewhere)


# ---------------------------------------------------------------- aces doctor


def test_a_package_of_the_pipeline_that_is_missing_is_named(monkeypatch):
    doctor.check_packages()
    monkeypatch.setitem(EXTRAS, "pipeline", ("json", "no_such_module"))
    with pytest.raises(
        InputError, match=r"needs no_such_module, .*`pip install 'aces\[pipeline\]'`"
    ):
        doctor.check_packages()


def test_git_and_its_repository_are_looked_for(monkeypatch, elsewhere):
    answer = SimpleNamespace(returncode=0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: answer)
    doctor.check_git()
    answer.returncode = 128  # of git outside of a repository
    with pytest.raises(InputError, match=f"{elsewhere} is not a git repository, .* run `git init`"):
        doctor.check_git()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="git is not installed: DVC keeps its experiments in git"):
        doctor.check_git()


@pytest.mark.parametrize(
    "found, named", [(None, "no python at all"), ("/bin/python", "/bin/python")]
)
def test_the_stages_must_run_with_this_python(monkeypatch, found, named):
    monkeypatch.setattr(shutil, "which", lambda name: sys.executable)
    doctor.check_environment()
    monkeypatch.setattr(shutil, "which", lambda name: found)
    with pytest.raises(InputError, match=f"the stages would run {named}.*: activate the env"):
        doctor.check_environment()
