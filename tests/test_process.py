"""A stage ends with the dvc that started it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent.parent
# A stage that takes as long to load its libraries as the test wishes.
STAGE = """
import os, sys, time
from aces import process
process.LOOK_SECONDS = 0.05
said, loaded = sys.argv[1:]
print(os.getpid(), flush=True)
while not os.path.exists(loaded):
    time.sleep(0.01)
try:
    process.end_with_dvc()
    print("it works", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    open(said, "w").write("ended cleanly")
    sys.exit(130)
"""
# What starts a stage as dvc does, by a shell which stays in between, and waits for it.
DVC = """
import os, subprocess, sys
command = ["sh", "-c", '"$0" "$@"; true', sys.executable, *sys.argv[1:]]
subprocess.run(command, env=os.environ | {"DVC_STAGE": "sample"})
"""


@pytest.fixture
def environment():
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    environment.pop("DVC_STAGE", None)
    return environment


@pytest.fixture
def started(tmp_path, environment):
    """A dvc that has started a stage, the stage, and the file for which the stage waits."""
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "starter.py").write_text(DVC)
    names = ("starter.py", "stage.py", "said", "loaded")
    dvc = subprocess.Popen(
        [sys.executable, *(tmp_path / name for name in names)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    yield dvc, psutil.Process(int(dvc.stdout.readline())), tmp_path / "loaded"
    with suppress(ProcessLookupError):
        os.killpg(dvc.pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
@pytest.mark.parametrize("early", [True, False], ids=["while it loads", "while it works"])
def test_a_stage_ends_when_its_dvc_is_gone(tmp_path, started, number, early):
    dvc, stage, loaded = started
    if not early:
        loaded.touch()
        assert dvc.stdout.readline() == "it works\n"
    dvc.send_signal(number)
    dvc.wait()
    loaded.touch()
    stage.wait(timeout=60)
    assert (tmp_path / "said").read_text() == "ended cleanly"
    assert "is gone: the stage ends too" in dvc.stderr.read()


def test_a_stage_without_dvc_works_until_it_is_terminated(tmp_path, environment):
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "loaded").touch()
    stage = subprocess.Popen(
        [sys.executable, *(tmp_path / name for name in ("stage.py", "said", "loaded"))],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert stage.stdout.readline() == f"{stage.pid}\n"
    assert stage.stdout.readline() == "it works\n"
    stage.terminate()
    stage.communicate()
    assert stage.returncode == 130 and (tmp_path / "said").read_text() == "ended cleanly"
