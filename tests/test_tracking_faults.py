"""A store that hangs, refuses, or is none: one honest line, and the stage goes on."""

import os
import queue
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException

from aces import params, tracking
from aces.commands import doctor
from aces.errors import InputError
from aces.tracking import channel, store
from hanging import server

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent.parent
PARAMETERS = params.flatten(params.load("profiles/laptop.yaml"))
WAITS = """
from aces import tracking
with tracking.track("sample", {"sigma": 1.0}):
    pass
"""


@pytest.fixture
def impatient(monkeypatch):
    """A stage that waits for seconds where it would wait for twenty."""
    monkeypatch.setattr(channel, "SECONDS", 2.0)


def one_complaint(capsys) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert lines[0].startswith("sample: not tracked in MLflow, the stage goes on: ")
    assert "sqlalche.me" not in lines[0]
    return lines[0]


def tracked_stage() -> None:
    """A stage that uses everything there is."""
    with tracking.track("sample", PARAMETERS) as run:
        run.log_metrics({"draws": 1.0})
        run.log_summary({"draws": 1.0}, "digest")
        run.roll_up({"sample": Path("none.json")})
        assert run.seconds() == {}
        assert run.call("aces.tracking.names:metric_name", name="a@b") is None
    assert run.id is None and run.parent is None


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
def test_a_server_that_hangs(repository, monkeypatch, capsys, impatient, drip):
    with server(drip=drip) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        tracked_stage()
    line = one_complaint(capsys)
    assert "gave no answer within 2 s" in line and "MLFLOW_TRACKING_URI" in line
    assert "secret" not in line


def test_a_stage_waits_for_its_store_for_twenty_seconds_in_total(monkeypatch):
    """Of a silent server it was 98."""
    allowed, clock = [], [0.0]

    class Answer:
        """It takes six seconds, by the clock on the wall."""

        def result(self, timeout: float) -> str:
            allowed.append(timeout)
            clock[0] += 6.0
            return "answer"

    def no_process(descriptor: int) -> None:
        raise OSError

    monkeypatch.setattr(channel, "_start", no_process)
    monkeypatch.setattr(channel, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    waiting = channel.Channel(lambda why: None)
    assert {waiting.wait(Answer()) for _ in range(5)} == {"answer"}
    waiting.close()
    assert allowed == [20.0, 14.0, 8.0, 2.0, 0.0]


def test_what_nobody_waits_for_is_given_up_too(repository, monkeypatch, impatient):
    """The thread that writes has a limit of its own: a stage may end long after its last answer."""
    said: queue.SimpleQueue = queue.SimpleQueue()
    with server(drip=False) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        writing = channel.Channel(said.put)
        writing.post(
            "start", stage="sample", parameters=PARAMETERS, pid=os.getpid(), began=time.time()
        )
        try:
            assert "gave no answer within 2 s" in said.get(timeout=60)
        finally:
            writing.close()


def test_no_lock_is_held_while_a_server_is_waited_for(repository):
    """The old code held the project's lock meanwhile, for which every other run then waited."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAITS],
            cwd=repository,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"MLFLOW_TRACKING_URI": address, "PYTHONPATH": str(PROJECT)},
        )
        try:
            connection, _ = silent.accept()
            with connection, store._lock().acquire(timeout=0):
                assert waiting.poll() is None
        finally:
            waiting.kill()
            waiting.wait()


def test_a_refused_connection(repository, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracked_stage()
    assert f"{address} cannot be reached: see that the server runs" in one_complaint(capsys)


def test_a_database_that_is_a_folder(tracked, capsys):
    (tracked / "mlflow.db").unlink()
    (tracked / "mlflow.db").mkdir()
    tracked_stage()
    assert "mlflow.db is a folder: expected MLflow's database; move it away" in one_complaint(
        capsys
    )


def test_a_database_that_is_none(tracked, capsys):
    (tracked / "mlflow.db").write_bytes(b"this is no database" * 100)
    tracked_stage()
    assert "mlflow.db is no SQLite database: move it away" in one_complaint(capsys)


def test_a_database_that_is_damaged(tracked, capsys):
    (tracked / "mlflow.db").write_bytes(store.HEADER + bytes(range(256)) * 100)
    tracked_stage()
    assert "mlflow.db cannot be used" in one_complaint(capsys)


def test_an_error_of_a_database_is_told_without_the_links_of_the_libraries(repository):
    """What SQLAlchemy raises, and MLflow around it."""
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(sqlalchemy.exc.OperationalError) as raised:
        engine.connect().execute(sqlalchemy.text("SELECT 1 FROM nowhere"))
    wrapped = MlflowException(str(raised.value))
    wrapped.__cause__ = raised.value
    assert "sqlalche.me" in str(wrapped)
    told = store.reason(wrapped)
    assert "mlflow.db cannot be used (no such table: nowhere): move it away" in told
    assert "sqlalche.me" not in told and "\n" not in told


def test_a_database_that_another_program_holds(tracked, capsys, impatient):
    with tracking.track("sample", PARAMETERS):
        pass
    holder = sqlite3.connect(tracked / "mlflow.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        tracked_stage()
    finally:
        holder.close()
    line = one_complaint(capsys)
    assert "another program holds it" in line or "no other program holds it" in line


def test_a_library_that_is_missing(repository, monkeypatch, capsys):
    (repository / "broken").mkdir()
    (repository / "broken" / "mlflow.py").write_text(
        "raise ModuleNotFoundError('No module mlflow')"
    )
    monkeypatch.setenv("PYTHONPATH", str(repository / "broken"))
    tracked_stage()
    assert "pip install 'aces[pipeline]'" in one_complaint(capsys)


def test_a_store_that_begins_to_fail_is_left_alone(tracked, capsys):
    with tracking.track("sample", PARAMETERS) as run:
        for _ in range(10):
            run.log_artifact(tracked / "absent")
    assert "absent" in one_complaint(capsys)


def test_a_writer_that_dies_does_not_stop_the_stage(repository, capsys):
    with tracking.track("sample", PARAMETERS) as run:
        assert run.id
        run._channel._process.kill()
        run.log_metrics({"loss": 1.0})
        assert run.seconds() == {}
    assert "the process that writes to MLflow failed" in one_complaint(capsys)


# ---------------------------------------------------------------- moved and copied projects


def inventory(folder: Path) -> dict[str, float]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_copied_project_writes_nothing_into_the_original(tracked, tmp_path_factory, monkeypatch):
    (tracked / "curve.csv").write_text("theta\n")
    with tracking.track("sample", PARAMETERS) as first:
        first.log_artifact(tracked / "curve.csv", "results")
    before = inventory(tracked)
    copy = tmp_path_factory.mktemp("copies") / "a copy's name"
    shutil.copytree(tracked, copy)
    monkeypatch.chdir(copy)
    (copy / "more.csv").write_text("theta\n")
    with tracking.track("combine", PARAMETERS | {"sigma": 2.0}) as second:
        second.log_artifact(copy / "more.csv", "results")
    assert inventory(tracked) == before
    assert list((copy / "mlruns").rglob("more.csv"))
    found = {run.id: run for run in tracking.finished_runs()}
    for artifact in (copy / "mlruns").rglob("curve.csv"):
        artifact.write_text("of the copy")
    assert found[first.parent].artifact("results/curve.csv").read_text() == "of the copy"


def test_aces_doctor_lets_a_copied_project_name_its_own_files(
    tracked, tmp_path_factory, monkeypatch, capsys
):
    """Until something opens the store, `mlflow ui` in the copy would show the original's files."""
    with tracking.track("sample", PARAMETERS):
        pass
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(tracked, copy)
    monkeypatch.chdir(copy)
    doctor.check_store()
    assert str(tracked.resolve()) in " ".join(capsys.readouterr().out.split())
    with closing(sqlite3.connect(copy / "mlflow.db")) as database:
        places = [row[0] for row in database.execute("SELECT artifact_uri FROM runs")]
    assert places and all(place.startswith((copy / "mlruns").as_uri()) for place in places)
    doctor.check_store()
    assert capsys.readouterr().out == ""


def test_a_moved_project_takes_its_artifacts_along(tracked, tmp_path_factory, monkeypatch):
    (tracked / "curve.csv").write_text("theta\n")
    with tracking.track("sample", PARAMETERS) as run:
        run.log_artifact(tracked / "curve.csv", "results")
    moved = tmp_path_factory.mktemp("moved") / "project"
    monkeypatch.chdir("/")
    shutil.move(tracked, moved)
    monkeypatch.chdir(moved)
    (found,) = tracking.finished_runs()
    assert found.id == run.parent
    assert found.artifact("results/curve.csv").read_text() == "theta\n"


def test_artifacts_that_lie_elsewhere_stay_there(tmp_path):
    file = tmp_path / "mlflow.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE experiments (name TEXT, artifact_location TEXT)")
        database.execute("CREATE TABLE runs (artifact_uri TEXT)")
        database.execute("INSERT INTO experiments VALUES ('aces', 'file:///old/mlruns')")
        database.execute("INSERT INTO experiments VALUES ('mine', 's3://bucket/mlruns')")
        for place in ("file:///old/mlruns/1", "file:///old/mlruns2/1", "/old/mlruns/2"):
            database.execute("INSERT INTO runs VALUES (?)", (place,))
    store.rehome(file, Path("/new/mlruns"))
    with sqlite3.connect(file) as database:
        assert [
            row[0] for row in database.execute("SELECT artifact_location FROM experiments")
        ] == [
            "file:///new/mlruns",
            "s3://bucket/mlruns",
        ]
        assert [row[0] for row in database.execute("SELECT artifact_uri FROM runs")] == [
            "file:///new/mlruns/1",
            "file:///old/mlruns2/1",
            "/new/mlruns/2",
        ]


def test_artifacts_in_a_bucket_stay_there(tmp_path):
    file, places = tmp_path / "mlflow.db", ["s3://bucket/old/1", "/old/1"]
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE experiments (name TEXT, artifact_location TEXT)")
        database.execute("CREATE TABLE runs (artifact_uri TEXT)")
        database.execute("INSERT INTO experiments VALUES ('aces', 's3://bucket/old')")
        database.executemany("INSERT INTO runs VALUES (?)", [(place,) for place in places])
    assert store.rehome(file, Path("/new/mlruns")) is None
    with sqlite3.connect(file) as database:
        assert [row[0] for row in database.execute("SELECT artifact_uri FROM runs")] == places


def test_a_damaged_database_is_one_line_for_who_asks_directly(tracked):
    (tracked / "mlflow.db").write_bytes(store.HEADER + bytes(range(256)) * 100)
    with pytest.raises(InputError, match="mlflow.db cannot be used .*: move it away"):
        store.adopt()
    (tracked / "mlflow.db").write_bytes(b"")
    assert store.adopt() is None
    (tracked / "mlflow.db").unlink()
    assert store.adopt() is None
