"""The whole pipeline on the digits, as a user runs it: `dvc repro`, `dvc exp run`, the queue, and
what can go wrong.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import yaml

from aces.files import digest
from aces.reporting.browser import find_browser
from projects import STAGES, Project

pytestmark = pytest.mark.slow

AFTER_DRAWS = {"calibrate", "combine", "report", "publish"}


# ---------------------------------------------------------------- the pipeline


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = Project(tmp_path_factory.mktemp("project"))
    output = project("dvc", "repro")
    assert project.stages_run(output) == set(STAGES)
    return project


def test_repro_writes_every_result(project):
    curve = project.curve()
    assert list(curve.columns[:5]) == ["theta", "nac", "acr", "abstention", "core_rate"]
    assert curve["theta"].iloc[0] == 0 and curve["theta"].iloc[-1] == 1
    assert curve["acr"].iloc[0] == 0 < curve["acr"].iloc[-1]
    assert curve["nac"].iloc[0] > 0.8  # the core network has learnt the digits
    outcomes = pd.read_parquet(project.folder / "results/outcomes.parquet")
    assert list(outcomes.columns) == [
        "index",
        "label",
        "theta",
        "prediction",
        "radius",
        "route",
        "natural_prediction",
        "selected",
        "selection_radius",
        "p_select",
        "p_class",
    ]
    metrics = json.loads((project.folder / "results/metrics.json").read_text())
    assert list(metrics)[:3] == ["theta", "nac", "acr"]
    calibration = json.loads((project.folder / "results/calibration.json").read_text())
    assert metrics["theta"] == calibration["theta"]
    row = curve[curve["theta"].round(9) == round(metrics["theta"], 9)].iloc[0]
    assert metrics["nac"] == row["nac"] and metrics["acr"] == row["acr"]
    assert (project.folder / "reports/index.html").exists()


def test_repro_leaves_nothing_untracked_and_a_second_one_does_nothing(project):
    changed = project("git", "status", "--porcelain").splitlines()
    results = ("dvc.lock", "reports/", "results/", "metrics/")
    assert all(line[3:].startswith(results) for line in changed), changed
    output = project("dvc", "repro")
    assert "up to date" in output and not project.stages_run(output)


def test_the_parent_run_has_it_all(project):
    run = project.runs()[-1]
    assert run["params"]["dataset.name"] == "digits"
    assert {"nac", "acr", "train_core/final_loss", "sample/draws", "theta"} <= set(run["metrics"])
    assert {"aces.model.core", "aces.model.certify"} <= set(run["tags"])
    (artifacts,) = (project.folder / "mlruns").glob("*/artifacts/report")
    pictures = ["screenshot.png"] if find_browser() else []
    assert {"index.html", "figures", "tables", *pictures} <= {
        path.name for path in artifacts.iterdir()
    }
    assert (artifacts.parent / "results/curve.csv").read_bytes() == (
        project.folder / "results/curve.csv"
    ).read_bytes()


def test_the_composed_model_is_registered(project):
    program = (
        "import mlflow, numpy as np; mlflow.set_tracking_uri('sqlite:///mlflow.db');"
        "model = mlflow.pyfunc.load_model('models:/aces-digits/latest');"
        "print(list(model.predict(np.zeros((2, 1, 8, 8), np.float32))['route']))"
    )
    assert re.search(r"\['\w+', '\w+'\]", project(sys.executable, "-c", program))


def test_metrics_plots_and_params_are_wired(project):
    shown = project("dvc", "metrics", "show")
    assert "certify_nac" in shown and "abstention" in shown
    assert "file://" in project("dvc", "plots", "show")
    assert "up to date" in project("dvc", "status")


def test_a_larger_evaluation_is_measured_beside_the_run(project):
    before = digest(project.folder / "samples/counts.npz")
    output = project("aces", "bench", "results", "--images", "50", "--json")
    found = json.loads(output[output.index("{") :])["results"]
    assert (found["images"], found["thetas"]) == (50, 1001)
    assert all(one["peak_bytes"] > 1e7 for one in found["stages"].values())
    assert digest(project.folder / "samples/counts.npz") == before


def test_the_same_inputs_give_the_same_bytes(project):
    """Trained, sampled and combined anew, without what was kept of the first time."""
    before, again = (
        (project.folder / "dvc.lock").read_text(),
        ("train_core", "train_certify", "sample", "calibrate", "combine"),
    )
    for kept in ("sampling", "training"):
        shutil.rmtree(project.folder / "scratch" / kept, ignore_errors=True)
    assert project.stages_run(project("dvc", "repro", "-f", "-s", *again)) == set(again)
    assert (project.folder / "dvc.lock").read_text() == before


def test_experiments_run_what_changed_and_nothing_else(project):
    project.commit()
    output = project("dvc", "exp", "run", "-S", "sigma=0.5")
    assert project.stages_run(output) == {
        "train_certify",
        "train_select",
        "sample",
        *AFTER_DRAWS,
    }
    newest = project.runs()[0]
    assert newest["params"]["sigma"] == "0.5"
    # A stage that DVC skipped has its metrics here all the same, and the run that computed them is
    # named.
    assert (
        "train_core/final_loss" in newest["metrics"] and "aces.cached.train_core" in newest["tags"]
    )
    assert "aces.model.core" in newest["tags"]

    output = project(
        "dvc", "exp", "run", "-S", "combine.alpha=0.01", "-S", "combine.theta_step=0.05"
    )
    assert project.stages_run(output) == AFTER_DRAWS
    assert len(project.curve()) == 21
    assert "combine.alpha" in project("dvc", "params", "diff")
    shown = pd.read_csv(io.StringIO(project("dvc", "exp", "show", "--csv")))
    assert (
        shown["typ"].str.startswith("branch").sum() == 2
    )  # beside the workspace and the commit they start from


def test_queued_experiments_without_a_store(project):
    """Two at once from a state with no mlflow.db: both succeed, under parents of their own. One
    trains a selection network.
    """
    project("git", "checkout", "-q", "--", ".")
    (project.folder / "mlflow.db").unlink()
    shutil.rmtree(project.folder / "mlruns")
    project("dvc", "exp", "run", "--queue", "-S", "sigma=0.4")
    project(
        "dvc",
        "exp",
        "run",
        "--queue",
        "-S",
        "select.score=network",
        "-S",
        "baseline.sigmas=[0.5]",
    )
    project("dvc", "queue", "start", "-j", "2")
    for _ in range(300):
        status = project("dvc", "queue", "status")
        ended = status.count("Success") + status.count("Failed")
        if ended == 2 and "Worker status: 0 active" in status:
            break
        time.sleep(4)  # to ask takes a second of a processor that the experiments could use
    assert status.count("Success") == 2, status
    runs = {run["params"]["select.score"]: run for run in project.runs()}
    assert (
        runs["entropy"]["params"]["sigma"] == "0.4"
        and runs["network"]["metrics"]["train_select/trained"] == 1
    )
    # The run with a selection network is compared with the entropy, and with its certification
    # network at another sigma.
    compared = [
        pd.read_csv(path)["series"]
        for path in (project.folder / "mlruns").glob("*/artifacts/results/comparison.csv")
    ]
    assert sorted(map(sorted, map(set, compared))) == [["entropy", "paper", "sigma"], ["paper"]]


def test_own_code_without_a_fork(project):
    """A dataset, an architecture, a method and a score of one's own: only params.yaml changes."""
    project("git", "checkout", "-q", "--", ".")
    path = project.folder / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["dataset"] |= {
        "name": "examples.own_dataset:load",
        "code": "examples/own_dataset.py",
        "stride": 2,
        "settings": {"images": 240, "side": 16},
    }
    tree["core"] |= {"arch": "examples.own_architecture:build", "code": "examples"}
    tree["certify"] |= {
        "arch": "examples.own_architecture:build",
        "method": "examples.own_method:loss",
        "settings": {"draws": 2},
        "code": "examples",
    }
    tree["select"] |= {"score": "examples.own_score:score", "code": "examples/own_score.py"}
    tree["calibrate"] |= {"images": 40, "loss": 0.2}
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    assert project.stages_run(project("dvc", "repro")) == set(STAGES)
    results = ("dvc.lock", "params.yaml", "reports/", "results/", "metrics/")
    changed = project("git", "status", "--porcelain").splitlines()
    assert all(line[3:].startswith(results) for line in changed), changed
    assert project.runs()[0]["params"]["certify.method"] == "examples.own_method:loss"
    with np.load(project.folder / "data/examples.own_dataset:load/eval.npz") as images:
        assert images["classes"].tolist() == ["disc", "square", "ring"]
    assert (project.folder / "reports/index.html").exists()

    # A change of the method's file trains the certification network again, and not the core.
    method = project.folder / "examples/own_method.py"
    method.write_text(method.read_text() + "# changed\n")
    status = project("dvc", "status")
    assert "train_certify" in status and "subsample" not in status

    tree["dataset"]["code"] = "checkpoints/none"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    output = project("dvc", "repro", fails=True)
    assert "set dataset.code to that file" in output and "Traceback" not in output
    project("git", "checkout", "-q", "--", ".")


# ---------------------------------------------------------------- what can go wrong: one clear
# message each


def complaint(output: str) -> str:
    """The one line that says what is wrong, besides DVC's own."""
    assert "Traceback" not in output, output
    lines = [
        line
        for line in output.splitlines()
        if re.match(r"(\w+): params.yaml: |.*lacks the project's packages", line)
    ]
    assert len(lines) == 1, output
    return lines[0]


@pytest.fixture
def params_file(project):
    path = project.folder / "params.yaml"
    project("git", "checkout", "-q", "--", "params.yaml", "dvc.lock")
    project("dvc", "checkout")
    original = path.read_text()
    yield path
    path.write_text(original)


def test_an_unknown_parameter(project, params_file):
    params_file.write_text(params_file.read_text() + "sigmma: 1.0\n")
    assert "unknown key 'sigmma'" in complaint(project("dvc", "repro", fails=True))


def test_too_few_draws_for_alpha(project, params_file):
    params_file.write_text(re.sub(r"\n  n: \d+", "\n  n: 5", params_file.read_text()))
    message = complaint(project("dvc", "repro", fails=True))
    assert "sample.n=5" in message and "at least 12" in message


def test_the_environment_not_active(project, params_file, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    params_file.write_text(params_file.read_text().replace("sigma: 0.25\nseed", "sigma: 0.3\nseed"))
    dvc = shutil.which("dvc", path=project.environment["PATH"])
    message = complaint(project(dvc, "repro", fails=True, PATH=f"{bare / 'bin'}:/usr/bin:/bin"))
    assert "source .venv/bin/activate" in message


def test_without_git(project, tmp_path):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(project.folder / name, tmp_path / name)
    shutil.copytree(
        project.folder / ".dvc", tmp_path / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp")
    )
    for command in (["aces", "doctor"], ["dvc", "repro"]):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=project.environment | {"GIT_CEILING_DIRECTORIES": str(tmp_path)},
        )
        assert (
            done.returncode != 0
            and "git repository" in done.stderr
            and "Traceback" not in done.stderr
        ), done.stderr
