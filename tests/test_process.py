"""A stage ends with the dvc that started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent.parent
STAGE = """
import os, signal, sys, time
from aces import process
process.LOOK_SECONDS = 0.05
process.end_with_dvc()
try:
    print(os.getpid(), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    open(sys.argv[1], "w").write("ended cleanly")
    sys.exit(130)
"""
# A program called dvc that starts a stage by a shell which stays in between, and waits for it.
DVC = """
import subprocess, sys
subprocess.run(["sh", "-c", '"$0" "$@"; true', sys.executable, sys.argv[1], sys.argv[2]])
"""


@pytest.fixture
def environment():
    return os.environ | {"PYTHONPATH": str(PROJECT)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_a_stage_ends_when_its_dvc_is_gone(tmp_path, environment, number):
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "dvc").write_text(DVC)
    said = tmp_path / "said"
    dvc = subprocess.Popen(
        [sys.executable, tmp_path / "dvc", tmp_path / "stage.py", said],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    stage = psutil.Process(int(dvc.stdout.readline()))
    dvc.send_signal(number)
    stage.wait(timeout=60)
    assert said.read_text() == "ended cleanly"
    assert "is gone: the stage ends too" in dvc.communicate()[1]


def test_a_stage_that_is_terminated_ends_as_if_interrupted(tmp_path, environment):
    said = tmp_path / "said"
    (tmp_path / "stage.py").write_text(STAGE)
    stage = subprocess.Popen(
        [sys.executable, tmp_path / "stage.py", said],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    stage.stdout.readline()
    stage.terminate()
    stage.communicate()
    assert stage.returncode == 130 and said.read_text() == "ended cleanly"
