"""One pipeline run is one parent run, whatever starts the stages and whatever goes wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aces import params, tracking

PARAMETERS = params.flatten(params.load("profiles/laptop.yaml"))
STAGE = """
import sys
from aces import params, tracking
with tracking.track(sys.argv[1], params.flatten(params.load(sys.argv[2]))) as run:
    run.log_metrics({"loss": 0.5}, step=1)
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_EXP_NAME", "calm-owl")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "abc")
    return tmp_path


def test_stages_share_a_parent_and_a_skipped_stage_is_rolled_up(repository, monkeypatch):
    summary = repository / "train.json"
    summary.write_text(json.dumps({"core": {"certified_accuracy@0.25": 0.5}}))
    metrics = tracking.numbers(json.loads(summary.read_text()))
    with tracking.track("train", PARAMETERS) as train:
        train.log_summary(metrics, tracking.digest(summary))
    with tracking.track("combine", PARAMETERS) as combine:
        combine.log_series([{"nac": 0.7}, {"nac": 0.8}], steps=[0, 10])
        combine.log_artifact(summary, "results")
    assert train.parent == combine.parent

    monkeypatch.setenv("DVC_EXP_NAME", "other-owl")
    with tracking.track("report", PARAMETERS) as report:
        report.roll_up({"train": summary, "absent": repository / "absent.json"})
    assert report.parent != train.parent

    newest, first = tracking.finished_runs()
    assert (newest.id, first.id) == (report.parent, train.parent)
    assert first.params["sample.n"] == str(PARAMETERS["sample.n"])
    assert (
        first.metrics["train/core/certified_accuracy/r_0.25"] == 0.5 and first.metrics["nac"] == 0.8
    )
    assert first.artifact("results/train.json").read_text() == summary.read_text()
    assert first.artifact("results/absent.csv") is None
    assert newest.metrics["train/core/certified_accuracy/r_0.25"] == 0.5
    assert newest.tags["aces.cached.train"] == train.id


def test_a_failing_stage_fails_its_parent_until_a_stage_succeeds(repository):
    with pytest.raises(ZeroDivisionError), tracking.track("sample", PARAMETERS) as run:
        1 / 0
    client = tracking._client()
    assert client.get_run(run.id).info.status == client.get_run(run.parent).info.status == "FAILED"
    with tracking.track("sample", PARAMETERS):
        pass
    assert client.get_run(run.parent).info.status == "FINISHED"


def test_a_broken_store_warns_and_the_stage_goes_on(repository, capsys):
    (repository / "mlflow.db").write_bytes(b"this is no database" * 100)
    with tracking.track("sample", PARAMETERS) as run:
        run.log_metrics({"draws": 1.0})
        run.log_summary({"draws": 1.0}, "digest")
        run.roll_up({"sample": repository / "none.json"})
        assert run.seconds() == {}
    assert capsys.readouterr().err.replace("\n", " ").count("tracking failed") == 1


def test_a_store_that_stops_answering_is_left_alone(repository, capsys):
    """Each call may wait for it: after three, a stage of many epochs goes on without."""
    calls = []

    class Silent:
        def log_batch(self, *arguments, **options):
            calls.append(arguments)
            raise TimeoutError("no answer")

    with tracking.track("train_core", PARAMETERS) as run:
        run._client = Silent()
        for epoch in range(10):
            run.log_metrics({"loss": 1.0}, step=epoch)
    assert (
        len(calls) == tracking.MOST_FAILURES
        and capsys.readouterr().err.count("tracking failed") == 1
    )


def test_two_processes_that_find_no_store_make_one(repository):
    profile = Path(__file__).parent.parent / "profiles/laptop.yaml"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", STAGE, "sample", str(profile)],
            cwd=repository,
            stderr=subprocess.PIPE,
            env=environment | {"DVC_EXP_NAME": f"owl-{number}"},
        )
        for number in range(2)
    ]
    complaints = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0] and not any(
        "failed" in text for text in complaints
    ), complaints
    assert len(tracking.finished_runs()) == 2


def test_a_temporary_workspace_logs_to_the_main_store(repository, monkeypatch, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("workspace")
    monkeypatch.setenv("DVC_ROOT", str(repository))
    monkeypatch.chdir(temporary)
    with tracking.track("sample", PARAMETERS) as run:
        (temporary / "curve.csv").write_text("theta\n")
        run.log_artifact(temporary / "curve.csv")
    assert (repository / "mlflow.db").exists() and not list(temporary.glob("mlflow.db*"))
    assert list((repository / "mlruns").rglob("curve.csv"))
