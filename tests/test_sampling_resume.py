"""Scratch: what is finished survives kills and a second sampler, and is never counted twice."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import odd_networks
import sampler_process
from aces import networks
from aces.cli import main
from aces.errors import InputError
from aces.sampling import code, shards
from aces.sampling.shards import open_shards, read_keys
from aces.sampling.tally import entropy
from sampled import SMALL, sample, written

pytestmark = pytest.mark.slow

NETWORK = odd_networks.convolutional()
UNITS = 2 * (1 + 4 + 1)


def draw(scratch=None, network=NETWORK, **changes):
    return sample(network, odd_networks.images(2), **SMALL | changes, scratch=scratch)


def run_script(task, folder) -> dict:
    script = Path(sampler_process.__file__)
    done = subprocess.run(
        [sys.executable, script, task, folder],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_fifteen_times_it_gives_the_same_bytes_and_loses_only_what_was_in_flight(tmp_path):
    found = run_script("kills", tmp_path)
    assert found["kills"] >= 10, "the runs ended before they could be killed"
    assert found["kept"] == sorted(found["kept"]) and len(set(found["kept"])) > 10, (
        "kills hit nothing, or lost finished units"
    )
    workers = sampler_process.SETTINGS["workers"]
    # In flight: a unit that each worker draws, and one that each has handed over but that is not
    # kept yet.
    assert found["units"] <= found["started"] <= found["units"] + 2 * workers * found["kills"]
    assert (tmp_path / "killed.npz").read_bytes() == written(
        tmp_path, sampler_process.draw(None, workers=1)
    )


def test_memory_does_not_grow_with_n(tmp_path):
    peaks = run_script("memory", tmp_path)
    assert peaks["100000"] <= 1.1 * peaks["1000"]


def test_finished_work_is_not_done_again(tmp_path, started):
    first = draw(tmp_path)
    assert len(started) == UNITS
    again = draw(tmp_path)
    assert len(started) == UNITS
    assert written(tmp_path, first) == written(tmp_path, again) == written(tmp_path, draw())


@pytest.mark.parametrize(
    "change",
    [
        dict(sigma=0.5),
        dict(seed=1),
        dict(n=500),
        dict(n0=60),
        dict(n_predict=50),
        dict(chunk=50),
        dict(precision="bfloat16"),
        dict(network=odd_networks.convolutional(seed=1)),
        dict(select=odd_networks.convolutional(outputs=2)),
        dict(index=[0, 2]),
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_draws_depend_on_has_its_own_folder(tmp_path, change):
    draw(tmp_path)
    draw(tmp_path, **change)
    assert len(list(tmp_path.iterdir())) == 2


def test_other_images_have_their_own_folder(tmp_path):
    draw(tmp_path)
    sample(NETWORK, odd_networks.images(2, seed=1), **SMALL, scratch=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "change", [dict(workers=1), dict(label=[1, 2])], ids=lambda change: next(iter(change))
)
def test_what_the_draws_do_not_depend_on_shares_the_folder(tmp_path, started, change):
    draw(tmp_path)
    draw(tmp_path, **change)
    assert len(started) == UNITS and len(list(tmp_path.iterdir())) == 1


def test_a_second_sampler_is_told_who_works_there_and_takes_over_its_work(tmp_path, monkeypatch):
    first = draw(tmp_path)
    (folder,) = tmp_path.iterdir()
    about = json.loads((folder / "about.json").read_text())
    said, told = [], threading.Event()
    monkeypatch.setattr(shards, "warn", lambda text: (said.append(text), told.set()))
    with ThreadPoolExecutor(1) as pool:
        with open_shards(folder, about=about, probe=about["probe"]):
            second = pool.submit(draw, tmp_path)
            assert told.wait(timeout=60) and not second.done()
        np.testing.assert_array_equal(second.result().score, first.score)
    (line,) = said
    assert f"{folder.name} is in use by process {os.getpid()} on " in line and "waiting" in line


class Scaled(nn.Module):
    """Its factor is in no state dict, so its hash is that of any other."""

    def __init__(self, factor: float):
        super().__init__()
        self.network, self.factor = odd_networks.convolutional(), factor

    def forward(self, x):
        return self.network(self.factor * x)


def test_draws_of_networks_with_the_same_weights_are_not_mixed(tmp_path):
    """A factor of 1.015 once gave the counts of the factor 1: now each has its own folder."""
    first = draw(tmp_path, Scaled(1.0))
    other = draw(tmp_path, Scaled(1.015))
    assert len(list(tmp_path.iterdir())) == 2
    assert written(tmp_path, first) == written(tmp_path, draw(network=Scaled(1.0)))
    assert written(tmp_path, other) == written(tmp_path, draw(network=Scaled(1.015)))


def test_a_network_that_looks_the_same_and_computes_something_else_is_refused(
    tmp_path, monkeypatch
):
    """Were something to escape the network's identity, its logits on noisy images would tell."""
    monkeypatch.setattr(networks, "identity", networks.fingerprint)
    draw(tmp_path, Scaled(1.0))
    with pytest.raises(InputError, match="computes something else: `aces scratch --remove"):
        draw(tmp_path, Scaled(1.001))
    draw(tmp_path, Scaled(1.0))


def test_other_code_between_noise_and_counts_has_its_own_folder(tmp_path, monkeypatch):
    draw(tmp_path)
    real = code.digest
    monkeypatch.setattr(
        code, "digest", lambda path: real(path) + ("x" if path.name == "tally.py" else "")
    )
    draw(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def first_half(logits):
    return entropy(logits) / 2


def second_half(logits):
    return 1 - entropy(logits) / 2


def test_each_score_has_its_own_folder(tmp_path):
    one, other = (draw(tmp_path, score=score) for score in (first_half, second_half))
    assert len(list(tmp_path.iterdir())) == 2 and (one.score != other.score).any()


def test_an_interrupted_run_ends_soon_and_goes_on_later(tmp_path, monkeypatch, started):
    """Ctrl-C reaches the main thread while it adds a unit; workers stop at their next batch."""
    from aces.sampling.drawing import Drawing

    real = Drawing._add
    monkeypatch.setattr(
        Drawing,
        "_add",
        lambda self, unit, table: real(self, unit, table) if len(started) < 6 else interrupt(),
    )
    with pytest.raises(KeyboardInterrupt):
        draw(tmp_path)
    monkeypatch.setattr(Drawing, "_add", real)
    (folder,) = tmp_path.iterdir()
    kept = len(read_keys(folder))
    assert 0 < kept < UNITS
    started.clear()
    np.testing.assert_array_equal(draw(tmp_path).score, draw().score)
    assert len(started) - UNITS == UNITS - kept


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "scratch" / "training").mkdir(parents=True)
    (tmp_path / "scratch" / "training" / "core.pt").write_bytes(bytes(1234))
    (tmp_path / "scratch" / "datasets").mkdir()
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "scratch" / "sampling")
    return tmp_path / "scratch"


def listed(capsys) -> list[dict]:
    assert main(["scratch", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_aces_scratch_lists_what_is_kept(project, capsys):
    by_kind = {entry["kind"]: entry for entry in listed(capsys)}
    sampling = by_kind["sampling"]
    assert set(by_kind) == {"sampling", "training"} and by_kind["training"]["size"] == 1234
    assert (sampling["draws"], sampling["total"]) == (1100, 1100)  # 2 images of 50 + 400 + 100
    assert sampling["about"]["sigma"] == 0.25 and sampling["size"] > 0
    assert main(["scratch"]) == 0
    said = capsys.readouterr().out
    assert "100% of 1,100 draws: 2 images, sigma 0.25" in said and "2 entries" in said


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"images": 2}', '{"images": "2", "n0": 1}', "[" * 100_000]
)
def test_aces_scratch_lists_what_nobody_can_describe(project, capsys, text):
    (folder,) = (project / "sampling").iterdir()
    (folder / "about.json").write_text(text)
    (entry,) = [entry for entry in listed(capsys) if entry["kind"] == "sampling"]
    assert entry["about"] is None and entry["size"] > 0
    assert main(["scratch"]) == 0
    assert main(["scratch", "--remove", folder.name]) == 0


@pytest.mark.parametrize("sigma", ["0.25", 10**400, None, -1.0], ids=lambda it: f"{it}"[:9])
def test_aces_scratch_lists_what_has_a_damaged_sigma(project, capsys, sigma):
    (about,) = (project / "sampling").glob("*/about.json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"sigma": sigma}))
    assert main(["scratch"]) == 0 and "2 entries" in capsys.readouterr().out
    assert all(entry["about"] is None for entry in listed(capsys))


def test_aces_scratch_lists_what_has_a_forged_record(project, capsys):
    (folder,) = (project / "sampling").iterdir()
    with (folder / "units.log").open("ab") as log:
        log.write(shards._line("none", np.zeros((1, 1)), folder.name))
    assert main(["scratch"]) == 0 and "2 entries" in capsys.readouterr().out


def test_aces_scratch_removes_by_name_and_all(project, capsys):
    (name,) = (entry["name"] for entry in listed(capsys) if entry["kind"] == "sampling")
    assert main(["scratch", "--remove", name[:6]]) == 0 and "removed 1" in capsys.readouterr().out
    assert [entry["kind"] for entry in listed(capsys)] == ["training"]
    assert main(["scratch", "--remove", "no such"]) == 2 and "no entry" in capsys.readouterr().err
    assert main(["scratch", "--remove", "all"]) == 0 and "removed 1" in capsys.readouterr().out
    assert listed(capsys) == [] and (project / "datasets").is_dir()


def test_aces_scratch_leaves_what_is_in_use(project, capsys):
    (folder,) = (project / "sampling").iterdir()
    about = json.loads((folder / "about.json").read_text())
    with open_shards(folder, about=about, probe=about["probe"]):
        assert main(["scratch", "--remove", folder.name]) == 2
    assert "in use" in capsys.readouterr().err and (folder / "units.log").exists()
