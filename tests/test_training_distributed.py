"""Two processes under torchrun (CPU, gloo) train like one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from aces import data, params
from aces.errors import InputError
from aces.networks import fingerprint
from aces.runtime import Runtime
from aces.tracking import StageRun
from aces.training import Method, methods, standard, train_network
from aces.training.distributed import Group
from aces.training.loop import images_per_step

pytestmark = pytest.mark.slow

SETTINGS = params.Train(
    epochs=3,
    batch=64,
    lr=0.3,
    momentum=0.9,
    weight_decay=0.0005,
    schedule="one-cycle",
    milestones=[],
)
SMOOTHADV = params.SmoothAdv(sigma=0.1, attack="pgd", steps=2, draws=2, epsilon=0.25, warmup=1)
METHODS = {
    "standard": standard.method(),
    "smoothadv": Method("smoothadv", methods.LOSSES["smoothadv"], SMOOTHADV),
}


def run(folder: str, name: str, stop_after: int | None = None) -> tuple[nn.Module, list[dict]]:
    """Train on the digits without batch norm, whose statistics differ between one share and the
    whole batch.
    """
    torch.set_num_threads(1)
    training = data.prepare(params.Dataset(name="digits", stride=1)).training
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10)
    )
    history = []

    def on_epoch(epoch: int, metrics: dict) -> None:
        history.append(metrics)
        if epoch + 1 == stop_after:
            raise KeyboardInterrupt

    train_network(
        network,
        training,
        settings=SETTINGS,
        method=METHODS[name],
        sigma=0.1,
        seed=0,
        runtime=Runtime(device="cpu", scratch=Path(folder) / "scratch"),
        title=name,
        on_epoch=on_epoch,
    )
    return network, history


def start_two(folder, *arguments: str) -> int:
    """Run this file in two processes; each writes `<method>-<rank>.json`."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        __file__,
        str(folder),
        *arguments,
    ]
    return subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300
    ).returncode


def read(folder, name: str) -> list[dict]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    "gpus, batch, split, device, processes",
    [
        (1, 256, 1, "auto", None),
        (2, 256, 1, "auto", 2),
        (7, 256, 1, "auto", 4),
        (6, 400, 1, "cuda", 5),
        (8, 256, 16, "auto", 8),
        (2, 256, 1, "cuda:1", None),
        (2, 256, 1, "cpu", None),
        (3, 64, 64, "auto", None),
    ],
)
def test_a_stage_starts_as_many_processes_as_share_a_step_equally(
    monkeypatch, gpus, batch, split, device, processes
):
    from stages.networks import use_all_gpus  # this file also runs under torchrun

    started = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(
        os,
        "execv",
        lambda program, words: started.extend(word for word in words if "nproc" in word),
    )
    monkeypatch.setenv("ACES_DEVICE", device)
    monkeypatch.delenv("RANK", raising=False)
    use_all_gpus(
        "stages.train_core",
        StageRun("train_core"),
        settings=SETTINGS.replace(batch=batch),
        method=Method("any", methods.LOSSES["standard"], split=split),
    )
    assert started == ([] if processes is None else [f"--nproc-per-node={processes}"])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    assert start_two(folder, *METHODS) == 0
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_have_the_loss_curve_of_one(two, tmp_path, name):
    _, alone = run(str(tmp_path), name)
    first, second = read(two, name)
    assert first["weights"] == second["weights"]
    assert second["history"] == [], "only the first process reports"
    # Without noise the sums differ by rounding; with it, each process has noise of its own.
    tolerance = 1e-4 if name == "standard" else 0.05
    assert [m["loss"] for m in first["history"]] == pytest.approx(
        [m["loss"] for m in alone], rel=tolerance
    )
    assert [m["accuracy"] for m in first["history"]] == pytest.approx(
        [m["accuracy"] for m in alone], abs=max(tolerance, 0.002)
    )
    assert alone[-1]["loss"] < 0.75 * alone[0]["loss"], "it learns"


def test_two_processes_go_on_after_a_kill(two, tmp_path):
    assert start_two(tmp_path, "standard", "--stop-after=1") != 0
    assert len(list((tmp_path / "scratch").glob("*.pt"))) == 1
    assert start_two(tmp_path, "standard") == 0
    assert read(tmp_path, "standard") == read(two, "standard")


def test_a_batch_that_the_processes_cannot_share_is_refused():
    with pytest.raises(InputError, match="train.batch=64: expected a multiple of 3"):
        images_per_step(SETTINGS, standard.method(), count=1000, group=Group(rank=0, size=3))


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    stop = int(names.pop().partition("=")[2]) if names[-1].startswith("--stop-after") else None
    for name in names:
        network, history = run(folder, name, stop_after=stop)
        with open(f"{folder}/{name}-{os.environ['RANK']}.json", "w") as file:
            json.dump({"weights": fingerprint(network), "history": history}, file)
