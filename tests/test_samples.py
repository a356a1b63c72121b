"""What the stage `sample` leaves is used together, or not at all; and folders that cannot be written
are one line.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from aces import params, paths
from aces.errors import InputError
from aces.files import digest, write_json, write_npz
from aces.networks import quantized
from aces.rule import samples
from aces.rule.counts import read_counts, write_counts
from made_counts import random_counts

PROJECT = Path(__file__).parent.parent
CLASSES = 3


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A project after its stage `sample`; `tiny` stands for images and networks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc").mkdir()
    profile = (PROJECT / "profiles/digits.yaml").read_text()
    Path("params.yaml").write_text(profile.replace("precision: float32 ", "precision: int8 "))
    settings = params.load()
    counts = random_counts(np.random.default_rng(0), images=6, n=100)
    write_counts(paths.COUNTS, counts)
    write_npz(paths.CORE, prediction=np.arange(6) % CLASSES, index=counts.index)
    for file in samples.inputs(settings):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("tiny")
    samples.record(settings)
    return tmp_path


def refused(match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        samples.read_evaluation()
    assert "\n" not in str(caught.value) and "dvc repro -f sample" in str(caught.value)


def test_what_was_sampled_is_read(run):
    counts, core = samples.read_evaluation()
    assert len(counts.index) == 6 and core.tolist() == [0, 1, 2, 0, 1, 2]
    samples.check(*samples.inputs(params.load()))


def rewrite(**changes: np.ndarray | None) -> None:
    """The core's answers with arrays changed or left out, and a manifest that names this file: what
    is wrong must be seen without its digest.
    """
    with np.load(paths.CORE) as file:
        arrays = dict(file) | changes
    write_npz(paths.CORE, **{name: it for name, it in arrays.items() if it is not None})
    samples.record(params.load())


ANSWERS = {
    "fewer": np.zeros(5, np.int64),
    "more": np.zeros(7, np.int64),
    "two dimensions": np.zeros((6, 1), np.int64),
    "none": np.zeros(0, np.int64),
    "fractions": np.full(6, 0.5),
    "complex": np.zeros(6, complex),
    "truth": np.zeros(6, bool),
    "text": np.full(6, "a"),
    "negative": np.full(6, -1),
    "a class too high": np.full(6, CLASSES),
    "missing": None,
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_that_are_none_are_refused(run, kind):
    rewrite(prediction=ANSWERS[kind])
    refused("core.npz")


@pytest.mark.parametrize("kind", ["permuted", "other images", "fewer", "missing"])
def test_answers_about_other_images_are_refused(run, kind):
    """The images of the two files once were not compared: permuted answers gave NAC .45 for .87."""
    index = read_counts(paths.COUNTS).index
    changed = {"permuted": index[::-1], "other images": index + 1, "fewer": index[1:]}
    rewrite(index=changed.get(kind))
    refused("about other images than")


def test_permuted_answers_under_their_own_images_are_refused(run):
    """Nothing in the file is wrong but its digest."""
    with np.load(paths.CORE) as file:
        arrays = dict(file)
    write_npz(paths.CORE, prediction=np.roll(arrays["prediction"], 1), index=arrays["index"])
    refused("core.npz is not the file that samples/manifest.json names")


def test_counts_of_another_run_are_refused(run):
    other = random_counts(np.random.default_rng(1), images=6, n=100)
    write_counts(paths.COUNTS, other)
    refused("counts.npz is not the file|about other images")


def test_counts_of_a_comparison_are_read_unless_they_are_of_another_run(run):
    path = paths.COMPARISON_COUNTS / "sigma-0.5.npz"
    ours, others = (random_counts(np.random.default_rng(it), images=6, n=100) for it in (2, 3))
    write_counts(path, ours)
    samples.record(params.load())
    np.testing.assert_array_equal(samples.read_comparison("sigma-0.5").classes, ours.classes)
    write_counts(path, others)
    with pytest.raises(InputError, match="sigma-0.5.npz is not the file"):
        samples.read_comparison("sigma-0.5")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_none_is_refused(run, content):
    paths.CORE.write_bytes(content)
    refused("core.npz")


def test_other_images_and_networks_than_those_sampled_are_refused(run):
    inputs = samples.inputs(params.load())
    assert {file.name for file in inputs} == {
        "eval.npz",
        "core.safetensors",
        "certify.safetensors",
        "select.safetensors",
        "about.json",
        "network.onnx",
    }
    for file in inputs:
        kept = file.read_bytes()
        file.write_text("another")
        with pytest.raises(InputError, match=f"{file.name} is not the file that"):
            samples.check(*inputs)
        file.write_bytes(kept)


def test_the_int8_network_has_to_be_the_one_that_was_sampled(run, monkeypatch):
    """Another graph in its place once was loaded, and certified by a theta that is not its own."""
    monkeypatch.setattr(quantized, "open_session", lambda graph: None)
    write_json(paths.DEPLOYED_ABOUT, {"sha256": digest(paths.DEPLOYED_GRAPH)})
    assert quantized.load_deployed().onnx == b"tiny"
    assert quantized.load_deployed(run).onnx == b"tiny"
    paths.DEPLOYED_GRAPH.write_text("other")
    for content in (None, "[]", "{}", json.dumps({"sha256": None})):
        if content is not None:
            paths.DEPLOYED_ABOUT.write_text(content)
        with pytest.raises(InputError, match="models/deployed.*dvc repro -f sample"):
            quantized.load_deployed()


# ---------------------------------------------------------------- folders that cannot be written

STAGE = """
from aces import paths
from aces.files import write_npz
from stages.runner import run_stage
import numpy as np

def sample(params, run):
    write_npz(paths.CORE, prediction=np.zeros(3))
    return {"draws": 1}

run_stage("sample", sample)
"""


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Root may write where nobody may, but not into an immutable folder."""
    if os.geteuid() == 0:
        made = subprocess.run(["chattr", "+i", str(folder)], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"root, and chattr cannot make a folder immutable: {made.stderr.strip()}")
        undo = ["chattr", "-i", str(folder)]
    else:
        folder.chmod(0o555)
        undo = ["chmod", "755", str(folder)]
    try:
        yield
    finally:
        subprocess.run(undo, check=True)


@pytest.mark.parametrize("name", ["samples", "metrics"])
def test_a_folder_that_cannot_be_written_is_one_line(run, name):
    folder = run / name
    folder.mkdir(exist_ok=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with read_only(folder):
        done = subprocess.run(
            [sys.executable, "-c", STAGE],
            cwd=run,
            env=os.environ | {"PYTHONPATH": str(PROJECT), "MLFLOW_TRACKING_URI": "http://[bad"},
            capture_output=True,
            text=True,
        )
    lines = [line for line in done.stderr.splitlines() if "not tracked" not in line]
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    assert lines[0].startswith(f"sample: {name}/") and "make it writable" in lines[0]
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert after == before


def test_a_file_where_a_folder_should_be_is_one_line(run):
    shutil.rmtree("samples")
    Path("samples").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", STAGE],
        cwd=run,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "MLFLOW_TRACKING_URI": "http://[bad"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "samples: File exists: make it writable, or choose another place" in done.stderr
