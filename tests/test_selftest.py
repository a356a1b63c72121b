"""`aces selftest`: it passes on a sound machine, and notices a broken one."""

import json

import numpy as np
import pytest
import torch

from aces.bench import selftest
from aces.cli import main
from aces.errors import InputError
from aces.sampling import kernels

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")


def test_this_machine_passes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(selftest, "LAW_DRAWS", 2**20)
    monkeypatch.setattr(selftest, "SPEED_SECONDS", 0.05)
    out = tmp_path / "selftest.json"
    assert main(["selftest", "--device", "cpu", "--network", "tiny", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    passed = {check["name"]: check["passed"] for check in found["checks"]}
    assert passed.pop("speed") is None and len(passed) == 6 and all(passed.values())
    assert found["machine"]["device"] == "cpu" and found["machine"]["torch"]
    shown = capsys.readouterr().out
    assert "a kill and a resume" in shown and "FAILED" not in shown


def test_a_wrong_law_is_noticed(monkeypatch):
    monkeypatch.setattr(selftest, "LAW_DRAWS", 2**20)
    real = kernels.add_noise

    def wider(out, *arguments):
        real(out, *arguments)
        out *= np.float32(1.01)

    monkeypatch.setattr(kernels, "add_noise", wider)
    passed, seen = selftest._law(CPU)
    assert not passed and "p-value" in seen


def test_a_network_that_looks_at_its_neighbours_is_noticed():
    class Neighbours(torch.nn.Module):
        def forward(self, x):
            return x.mean(dim=(2, 3)).repeat(1, 4)[:, :10] + x.mean()

    with pytest.raises(InputError, match="depends on the other images of its batch"):
        selftest._batches(Neighbours(), CPU)


def test_a_check_that_cannot_run_has_failed(monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("no such kernel")

    for name in ("_law", "_logits", "_batches", "_workers", "_killed", "_speed"):
        monkeypatch.setattr(selftest, name, lambda *_: (None, "left out"))
    monkeypatch.setattr(selftest, "_twice", broken)
    assert main(["selftest", "--device", "cpu", "--network", "tiny"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown and "no such kernel" in shown
