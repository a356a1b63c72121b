"""Damaged training states count as absent, and own methods are part of a training's key."""

import textwrap

import numpy as np
import pytest
import torch
from torch import nn

from aces import params
from aces.data import TrainSet
from aces.errors import InputError
from aces.networks import fingerprint
from aces.runtime import Runtime
from aces.training import Batch, Loss, Method, methods, train_network
from aces.training.curve import CurveFile

pytestmark = pytest.mark.slow

SETTINGS = params.Train(epochs=3, batch=16, lr=0.1)


class Kill(BaseException):
    """Stands for a signal: nothing but the test catches it."""


def images() -> TrainSet:
    random = np.random.default_rng(0)
    return TrainSet(
        random.integers(0, 256, (48, 8, 8, 1), dtype=np.uint8), random.integers(0, 3, 48)
    )


def fit(scratch, *, method: Method | None = None, on_epoch=None, settings=SETTINGS) -> str:
    """Train, and give the fingerprint of the weights."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    train_network(
        network,
        images(),
        settings=settings,
        method=method or Method("gaussian", methods.LOSSES["gaussian"]),
        sigma=0.1,
        seed=0,
        title="test",
        runtime=Runtime(device="cpu", scratch=scratch, progress=False),
        on_epoch=on_epoch,
    )
    return fingerprint(network)


def stop_after_two(epoch: int, _: dict) -> None:
    if epoch == 1:
        raise Kill


@pytest.fixture
def interrupted(tmp_path):
    """The state of a training that was killed after its second epoch."""
    with pytest.raises(Kill):
        fit(tmp_path, on_epoch=stop_after_two)
    (path,) = tmp_path.glob("*.pt")
    return path


def flip(path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 0x10
    path.write_bytes(data)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "bit at the start": lambda path: flip(path, 0.0),
    "bit in a weight": lambda path: flip(path, 0.4),
    "bit in the checksum": lambda path: flip(path, 0.9999),
    "text": lambda path: path.write_text("not a state"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_counts_as_absent(interrupted, tmp_path, capsys, damage):
    DAMAGES[damage](interrupted)
    epochs: list[int] = []
    if damage == "a folder":  # it cannot be replaced by a file: the user is told which it is
        with pytest.raises(OSError, match=interrupted.name):
            fit(tmp_path)
    else:
        assert fit(tmp_path, on_epoch=lambda e, _: epochs.append(e)) == fit(tmp_path / "other")
        assert epochs == [0, 1, 2]
    warning = " ".join(capsys.readouterr().err.split())
    assert f"{interrupted.name} is not a usable training state" in warning
    assert "this training starts from the beginning" in warning


def test_the_state_of_another_training_is_not_taken(interrupted, tmp_path, capsys):
    """Even if someone renames the file: the checksum covers the key."""
    other = SETTINGS.replace(lr=0.2)
    with pytest.raises(Kill):
        fit(tmp_path, settings=other, on_epoch=stop_after_two)
    (theirs,) = set(tmp_path.glob("*.pt")) - {interrupted}
    theirs.write_bytes(interrupted.read_bytes())
    assert fit(tmp_path, settings=other) == fit(tmp_path / "fresh", settings=other)
    assert "its checksum is wrong" in capsys.readouterr().err


def test_without_a_scratch_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fit(None) == fit(tmp_path / "scratch")
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]


def test_the_curve_of_a_resumed_training_is_that_of_an_uninterrupted_one(tmp_path):
    straight, resumed = tmp_path / "straight.csv", tmp_path / "metrics" / "resumed.csv"
    fit(tmp_path / "a", on_epoch=CurveFile(straight))
    rows: list[int] = []
    write = CurveFile(resumed)

    def record(epoch: int, metrics: dict) -> None:
        write(epoch, metrics)
        rows.append(len(resumed.read_text().splitlines()))
        stop_after_two(epoch, metrics)

    with pytest.raises(Kill):
        fit(tmp_path / "b", on_epoch=record)
    assert rows == [2, 3], "the file grows by one row per epoch, after its header"
    fit(tmp_path / "b", on_epoch=CurveFile(resumed))
    assert resumed.read_bytes() == straight.read_bytes()
    header, *lines = straight.read_text().splitlines()
    assert header == "epoch,loss,accuracy,lr" and [line[0] for line in lines] == ["0", "1", "2"]


OWN = """
from aces.training import Loss
from aces.training.batches import cross_entropy

def loss(network, batch, *, sigma, generator, settings):
    logits = network(batch.image).float()
    return Loss(settings["weight"] * cross_entropy(logits, batch), logits)

def plain(network, batch, **rest):
    return network(batch.image).sum()

def flat(network, batch, **rest):
    logits = network(batch.image)
    return Loss(logits.sum(), logits[0])

built = eval("lambda network, batch, **rest: None")
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own in the working directory; its name is new in every test."""
    name = f"own_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(OWN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def certify(method: str, **settings) -> params.Certify:
    return params.Certify(method=method, settings=settings)


def test_an_own_method_gets_its_settings(own, tmp_path):
    small, large = (
        methods.resolve(certify(f"{own}:loss", weight=weight), 0.25) for weight in (0.5, 1.0)
    )
    assert small.settings == {"weight": 0.5} and small.split == 1
    assert fit(tmp_path / "s", method=small) != fit(tmp_path / "s", method=large)
    again = methods.resolve(certify(f"{own}:loss", weight=0.5), 0.25)
    assert fit(tmp_path / "s", method=again) == fit(tmp_path / "t", method=small)


def test_the_order_of_settings_means_nothing():
    first = methods.resolve(certify("examples.own_method:loss", draws=2, more={"a": 1, "b": 2}), 1)
    other = methods.resolve(certify("examples.own_method:loss", more={"b": 2, "a": 1}, draws=2), 1)
    assert repr(first.settings) == repr(other.settings)


def test_a_changed_source_is_another_training(own, tmp_path):
    """Also in the middle of it: what the first epochs learned belongs to the old loss."""
    method = methods.resolve(certify(f"{own}:loss", weight=1.0), 0.25)
    with pytest.raises(Kill):
        fit(tmp_path / "s", method=method, on_epoch=stop_after_two)
    source = tmp_path / f"{own}.py"
    source.write_text(source.read_text() + "# changed\n")
    changed = methods.resolve(certify(f"{own}:loss", weight=1.0), 0.25)
    assert changed.source != method.source
    fit(tmp_path / "s", method=changed)
    assert len(list((tmp_path / "s").glob("*.pt"))) == 2


@pytest.mark.parametrize(
    "function, message",
    [
        ("plain", r"returned a Tensor: expected aces\.training\.Loss\(value, scores\)"),
        ("flat", r"returned Loss with shapes \(\), \(3,\): expected .* \(16, classes\)"),
    ],
)
def test_a_method_that_returns_something_else_is_told_so(own, tmp_path, function, message):
    method = methods.resolve(certify(f"{own}:{function}"), 0.25)
    with pytest.raises(InputError, match=f"training method '{own}:{function}' {message}"):
        fit(tmp_path, method=method)


@pytest.mark.parametrize(
    "name, message",
    [
        ("{own}:nothing", "has no function 'nothing'"),
        ("{own}:number", "has no function 'number'"),
        ("{own}:built", "comes from no source file"),
        ("no_such_module:loss", "the module no_such_module cannot be imported"),
    ],
)
def test_a_method_that_cannot_be_used_is_named(own, name, message):
    with pytest.raises(InputError, match=rf"^certify\.method='{name.format(own=own)}'.*{message}"):
        methods.resolve(certify(name.format(own=own)), 0.25)


def test_the_example_trains_and_penalises_disagreement(tmp_path):
    method = methods.resolve(certify("examples.own_method:loss", draws=3, weight=2.0), 0.25)
    history: list[dict] = []
    fit(tmp_path, method=method, on_epoch=lambda _, metrics: history.append(metrics))
    assert history[-1]["loss"] < history[0]["loss"]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    image = torch.rand((4, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    batch = Batch(image, torch.tensor([0, 1, 2, 0]))

    def value(weight: float, sigma: float) -> float:
        generator = torch.Generator().manual_seed(0)
        settings = {"draws": 3, "weight": weight}
        loss: Loss = method.loss(
            network, batch, sigma=sigma, generator=generator, settings=settings
        )
        return loss.value.item()

    assert value(2.0, 0.0) == pytest.approx(value(0.0, 0.0)), "equal copies agree"
    assert value(2.0, 0.5) > value(0.0, 0.5)
