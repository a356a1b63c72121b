"""Exported networks are kept between processes: a second start does without the exporter."""

import json
import subprocess
import sys

import pytest
import torch

from aces import networks
from aces.cli import main
from aces.sampling import exported
from small_models import digits, digits_model, grey, half_space_model, write_project

pytestmark = pytest.mark.slow

torch.set_num_threads(1)

# Packages that a start with a kept network has no use for.
HEAVY = ("onnxscript", "torch._dynamo", "pandas", "mlflow", "dvc", "matplotlib", "scipy.stats")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, in a folder that is no project."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path / "cache" / "aces" / "exported"


def fresh_network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return networks.build("tiny", num_classes=10, mean=[0.3], std=[0.4])


def test_a_network_is_exported_once(cache):
    made = []

    def export() -> bytes:
        made.append(1)
        return b"the exported network"

    for _ in range(2):
        content, _ = exported.kept([fresh_network()], (1, 8, 8), export)
        assert content == b"the exported network" and len(made) == 1
    exported.kept([fresh_network(seed=1)], (1, 8, 8), export)
    exported.kept([fresh_network()], (1, 9, 9), export)
    changed = fresh_network()
    changed.temperature = 2.0
    exported.kept([changed], (1, 8, 8), export)
    assert len(made) == 4 and len(list(cache.iterdir())) == 4


@pytest.mark.parametrize(
    "damage",
    [lambda content: bytes([content[0] ^ 1]) + content[1:], lambda _: b"", lambda _: b"not ONNX"],
    ids=["one bit", "empty", "text"],
)
def test_a_damaged_file_is_noticed(cache, damage):
    """One bit changes no logit by much, but the network would not be the one that is named."""
    exported.kept([fresh_network()], (1, 8, 8), lambda: b"the exported network")
    (file,) = cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    again, _ = exported.kept([fresh_network()], (1, 8, 8), lambda: b"exported again")
    assert again == b"exported again"


def test_a_network_of_an_unknown_class_is_not_kept(cache):
    half_space_model().certify(grey(0.6), n=100)
    content, _ = exported.kept([half_space_model().networks["certify"]], (1, 4, 4), lambda: b"x")
    assert content == b"x" and not cache.exists()


def test_the_oldest_files_are_removed(cache, monkeypatch):
    monkeypatch.setattr(exported, "MOST_FILES", 3)
    for size in range(5, 10):
        exported.kept([fresh_network()], (1, size, size), lambda: b"x")
    assert len(list(cache.iterdir())) == 3


def test_a_place_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(exported, "folder", lambda: tmp_path / "file" / "below")
    assert exported.kept([fresh_network()], (1, 8, 8), lambda: b"x")[0] == b"x"


def test_a_damaged_file_is_replaced_and_a_second_start_is_light(cache, tmp_path, capsys):
    write_project(tmp_path)
    digits_model().save("model")
    from PIL import Image

    Image.fromarray(digits().image[0, :, :, 0]).save("0.png")
    ask = ["certify", "0.png", "--model", "model", "--n", "200", "--seed", "1", "--json"]
    answers = []
    for _ in range(2):
        for file in cache.glob("*.onnx"):
            file.write_bytes(b"not ONNX")
        code = (
            "import sys; from aces.cli import main; main(sys.argv[1:]);"
            f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *ask], capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    (file,) = cache.glob("*.onnx")
    assert file.stat().st_size > 1000
    done = subprocess.run(
        [sys.executable, "-c", code, *ask], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == answers[0]
    assert done.stderr.splitlines()[-1] == "[]"
    assert main(ask) == 0 and json.loads(capsys.readouterr().out) == answers[0]
