"""Files are written in one step, what a kill leaves is removed, and impossible places are one
line.
"""

import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from aces import files
from aces.errors import InputError

NO_PROCESS = 2**22 + 1  # above the largest process number of Linux


def unfinished(path, process) -> str:
    return f".{path.stem}.{socket.gethostname()}-{process}{path.suffix}"


def test_a_kill_leaves_the_old_file_and_the_next_writer_cleans_up(tmp_path):
    path = tmp_path / "state.pt"
    path.write_text("old")
    program = (
        "import os, signal, sys; from aces import files\n"
        "with files.atomic(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)])
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    files.write_text(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_what_others_write_or_own_is_left_alone(tmp_path):
    """A process that lives, another machine, another file, and files of the user's."""
    path = tmp_path / "state.pt"
    others = {
        unfinished(path, os.getppid()),
        f".state.elsewhere-{NO_PROCESS}.pt",
        unfinished(tmp_path / "other.pt", NO_PROCESS),
        unfinished(tmp_path / "state.npz", NO_PROCESS),
        unfinished(path, "notes"),
    }
    for name in (*others, unfinished(path, NO_PROCESS)):
        (tmp_path / name).touch()
    files.write_text(path, "new")
    assert {it.name for it in tmp_path.iterdir()} == {*others, "state.pt"}


def test_an_error_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "state.pt"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
@pytest.mark.parametrize(
    "write",
    [
        lambda: files.make_folder("/proc/reports"),
        lambda: files.write_text("/proc/reports/index.html", "text"),
        lambda: files.write_text("/proc/table.csv", "text"),
    ],
)
def test_a_place_that_takes_no_files_is_one_line(write):
    with pytest.raises(InputError, match="^/proc.*nothing can be written there.*another place$"):
        write()


def test_arrays_that_would_fill_the_memory_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    files.write_npz(tmp_path / "large.npz", zeros=np.zeros(1000))
    with pytest.raises(InputError, match="it claims to unpack to 8,"):
        files.read_npz(tmp_path / "large.npz", what="a file of zeros", remedy="get it again")
