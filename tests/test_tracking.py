"""One pipeline run is one parent run, whatever starts the stages and whatever goes wrong."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from aces import params, tracking
from aces.tracking import names, pipelines, publish, store
from aces.tracking.card import ModelCard

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent.parent
PARAMETERS = params.flatten(params.load("profiles/laptop.yaml"))
STAGE = """
import sys
from aces import params, tracking
with tracking.track(sys.argv[1], params.flatten(params.load(sys.argv[2]))) as run:
    run.log_metrics({"loss": 0.5}, step=1)
"""
KILLED = """
import sys, time
from aces import params, tracking
run = tracking.StageRun("sample")
run.start(params.flatten(params.load(sys.argv[1])))
print(run.id, run.parent, run._channel._process.pid, flush=True)
time.sleep(600)
"""


def status(run_id: str) -> str:
    return store.open_store().get_run(run_id).info.status


def test_stages_share_a_parent_and_a_skipped_stage_is_rolled_up(tracked, monkeypatch):
    summary = tracked / "train.json"
    summary.write_text(json.dumps({"core": {"certified_accuracy@0.25": 0.5}}))
    metrics = tracking.numbers(json.loads(summary.read_text()))
    with tracking.track("train", PARAMETERS) as train:
        train.log_summary(metrics, tracking.digest(summary))
    with tracking.track("combine", PARAMETERS) as combine:
        combine.log_series([{"curve/nac": 0.7}, {"curve/nac": 0.8}], steps=[0, 10])
        combine.log_artifact(summary, "results")
    assert train.parent == combine.parent

    monkeypatch.setenv("DVC_EXP_NAME", "other-owl")
    with tracking.track("report", PARAMETERS) as report:
        report.roll_up({"train": summary, "absent": tracked / "absent.json"})
    assert report.parent != train.parent

    newest, first = tracking.finished_runs()
    assert (newest.id, first.id) == (report.parent, train.parent)
    assert first.params["sample.n"] == str(PARAMETERS["sample.n"])
    assert first.metrics["train/core/certified_accuracy/r_0.25"] == 0.5
    assert first.metrics["curve/nac"] == 0.8
    assert first.artifact("results/train.json").read_text() == summary.read_text()
    assert first.artifact("results/absent.csv") is None
    assert newest.metrics["train/core/certified_accuracy/r_0.25"] == 0.5
    assert newest.tags["aces.cached.train"] == train.id


def test_a_failed_and_resumed_pipeline_is_one_parent_until_it_is_complete(tracked, monkeypatch):
    monkeypatch.delenv(
        "DVC_EXP_NAME"
    )  # as under `dvc repro`, where each attempt is another process
    with pytest.raises(ZeroDivisionError), tracking.track("sample", PARAMETERS) as run:
        _ = 1 / 0
    assert status(run.id) == status(run.parent) == "FAILED"
    with pytest.raises(KeyboardInterrupt), tracking.track("sample", PARAMETERS) as stopped:
        raise KeyboardInterrupt
    assert status(stopped.id) == status(stopped.parent) == "KILLED"
    with tracking.track("publish", PARAMETERS) as resumed:
        pass
    assert resumed.parent == stopped.parent == run.parent
    assert status(run.parent) == "FINISHED"
    with tracking.track("sample", PARAMETERS) as after:
        pass
    assert after.parent != run.parent
    with tracking.track("sample", PARAMETERS | {"sigma": 9.0}) as other:
        pass
    assert other.parent != after.parent


def test_the_run_of_a_killed_stage_is_marked_by_its_writer(tracked):
    stage, (run_id, parent, writer) = start_stage(tracked)
    stage.kill()
    stage.wait()
    wait_for_end(int(writer))
    assert status(run_id) == status(parent) == "KILLED"


def test_a_writer_ends_whose_stage_was_gone_before_it_could_look(tmp_path):
    """Its connection stays open, because another process holds the stage's end of it too."""
    ours, theirs = Pipe()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    writer = subprocess.Popen(
        [sys.executable, "-m", "aces.tracking.writer", str(theirs.fileno()), str(gone.pid)],
        cwd=tmp_path,
        pass_fds=[theirs.fileno()],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    try:
        assert writer.wait(timeout=60) == 0
    finally:
        writer.kill()


def test_a_run_without_processes_is_marked_by_the_next_one(tracked, monkeypatch):
    stage, (run_id, parent, writer) = start_stage(tracked)
    os.kill(int(writer), signal.SIGKILL)
    stage.kill()
    stage.wait()
    wait_for_end(int(writer))
    assert status(run_id) == status(parent) == "RUNNING"
    monkeypatch.setenv("DVC_EXP_NAME", "other-owl")
    with tracking.track("sample", PARAMETERS) as alive:
        assert alive.id
        client = store.open_store()
        assert pipelines.close_dead(client, store.experiment_id(client)) == []
        assert status(alive.id) == status(alive.parent) == "RUNNING"
    assert status(run_id) == status(parent) == "KILLED"


def start_stage(folder: Path) -> tuple[subprocess.Popen, list[str]]:
    """A stage in a process of its own, and the ids of its run, its parent and its writer."""
    profile = PROJECT / "profiles/laptop.yaml"
    stage = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(profile)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    return stage, stage.stdout.readline().split()


def wait_for_end(pid: int) -> None:
    import psutil

    try:
        psutil.Process(pid).wait(timeout=60)
    except psutil.NoSuchProcess:
        pass


def test_a_stage_has_its_dataset_and_the_load_of_the_machine(tracked):
    images = tracked / "eval.npz"
    images.write_bytes(b"images")
    with tracking.track("sample", PARAMETERS) as run:
        run.log_dataset(images, name="digits", context="evaluation", images=7)
        run.log_dataset(tracked / "absent.npz", name="digits", context="training")
    stored = store.open_store().get_run(run.id)
    (entry,) = stored.inputs.dataset_inputs
    assert entry.dataset.name == "digits" and entry.tags[0].value == "evaluation"
    assert tracking.digest(images).startswith(entry.dataset.digest)
    assert "system/cpu_utilization_percentage" in stored.data.metrics
    parent = store.open_store().get_run(run.parent)
    assert "gaussian" in parent.data.tags[names.DESCRIPTION]
    assert parent.data.tags["sigma"] == str(PARAMETERS["sigma"])


def test_the_story_of_a_pipeline(tracked):
    reports = tracked / "reports"
    reports.mkdir()
    reports.joinpath("index.html").write_text('<body><div class="provenance"></div></body>')
    for other in ("compare", "tables"):
        (reports / other).mkdir()
        (reports / other / "index.html").write_text(other)
    metrics = {"theta": 0.4, "nac": 0.8, "certified_accuracy@0.25": 0.6, "certify": {"nac": 0.5}}
    curve = {"theta": [0.0, 0.4, 1.0], "nac": [0.9, 0.8, 0.5]}
    with tracking.track("combine", PARAMETERS):
        pass
    with tracking.track("publish", PARAMETERS) as run:
        publish.log_working_point(run, metrics)
        publish.log_curve(run, curve)
        publish.log_report(run, reports)
    (finished,) = tracking.finished_runs()
    assert finished.metrics["nac"] == 0.8 and finished.metrics["certified_accuracy/r_0.25"] == 0.6
    assert finished.metrics["theta"] == 0.4
    history = store.open_store().get_metric_history(finished.id, "curve/theta")
    assert sorted((point.step, point.value) for point in history) == [
        (0, 0.0),
        (400, 0.4),
        (1000, 1.0),
    ]
    table = json.loads(finished.artifact("curve/curve.json").read_text())
    assert table["columns"] == ["theta", "nac"] and table["data"][1] == [0.4, 0.8]
    assert finished.artifact("report/tables/index.html") is not None
    assert finished.artifact("report/compare/index.html") is None  # of other runs
    page = finished.artifact("report/index.html").read_text()
    assert finished.id in page and "combine, seconds" in page
    assert "parent_run" not in reports.joinpath("index.html").read_text()


def register_something(name: str) -> None:
    """What `aces.model.serving:log_model` does, without a model."""
    import mlflow

    client, run = mlflow.MlflowClient(), mlflow.active_run().info.run_id
    with contextlib.suppress(mlflow.exceptions.MlflowException):
        client.create_registered_model(name)
    client.create_model_version(name, f"runs:/{run}/model", run_id=run)


def test_the_model_is_registered_with_its_card_and_is_the_champion(tracked, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    card = ModelCard(
        name="aces-digits",
        data="digits",
        networks={"core": "small", "certification": "small, gaussian"},
        sigma=0.25,
        theta=0.4,
        theta_source="calibrated",
        alpha=0.001,
        draws=1000,
        rule="confident",
        rows={0.4: {"nac": 0.8}, 1.0: {"nac": 0.5}},
    ).markdown()
    assert "| **0.4** | 0.800 |" in card and "| 1 | 0.500 |" in card
    for _ in range(2):
        with tracking.track("publish", PARAMETERS) as run:
            publish.log_model(
                run,
                "test_tracking:register_something",
                card=card,
                tags={"aces.model.core": "0123"},
                name="aces-digits",
            )
    client = store.open_store()
    champion = client.get_model_version_by_alias("aces-digits", "champion")
    assert champion.version == 2 or champion.version == "2"
    assert champion.description == client.get_registered_model("aces-digits").description == card
    parent = client.get_run(run.parent)
    assert parent.data.tags[names.DESCRIPTION] == card
    assert parent.data.tags["aces.model.core"] == "0123"


def test_a_page_without_a_list_gets_the_group_at_its_end():
    page = publish.with_provenance("<body>text</body>", "Run", {"a<b": "1 & 2", "empty": ""})
    assert page.startswith("<body>text<div>") and page.endswith("</div></body>")
    assert "a&lt;b" in page and "1 &amp; 2" in page and "empty" not in page


def test_a_discarded_run_leaves_nothing(tracked):
    run = tracking.StageRun("train_core")
    run.start(PARAMETERS)
    run.discard()
    client = store.open_store()
    found = client.search_runs([store.experiment_id(client)], "tags.`aces.stage` = 'train_core'")
    assert list(found) == []


def test_two_processes_that_find_no_store_make_one(repository):
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", STAGE, "sample", str(PROJECT / "profiles/laptop.yaml")],
            cwd=repository,
            stderr=subprocess.PIPE,
            env=environment | {"DVC_EXP_NAME": f"owl-{number}"},
        )
        for number in range(2)
    ]
    complaints = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert complaints == ["", ""]
    assert len(tracking.finished_runs()) == 2


def test_a_temporary_workspace_logs_to_the_main_store(tracked, monkeypatch, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("workspace")
    monkeypatch.setenv("DVC_ROOT", str(tracked))
    monkeypatch.chdir(temporary)
    with tracking.track("sample", PARAMETERS) as run:
        (temporary / "curve.csv").write_text("theta\n")
        run.log_artifact(Path("curve.csv"))
    assert (tracked / "mlflow.db").exists() and not list(temporary.glob("mlflow.db*"))
    assert list((tracked / "mlruns").rglob("curve.csv"))
