"""`aces estimate`: the arithmetic of a run, from speeds that were measured."""

import json

import pytest

from aces import params
from aces.bench import estimate
from aces.cli import main
from aces.commands.estimate import spoken
from aces.errors import InputError

ROOT = params.__file__.rsplit("/aces/", 1)[0]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project: nothing was run yet."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc").mkdir()
    return tmp_path


def laptop(**changes) -> params.Params:
    loaded = params.load(f"{ROOT}/profiles/laptop.yaml")
    return loaded.replace(**changes) if changes else loaded


def test_sizes_are_known_before_the_images_are_there(project):
    sizes = estimate.sizes_of(laptop())
    assert (sizes.training, sizes.evaluation, sizes.calibration) == (50_000, 500, 2000)
    other = laptop().dataset.replace(name="torchvision/SVHN")
    with pytest.raises(InputError, match="run `dvc repro subsample` first"):
        estimate.sizes_of(laptop(dataset=other))


@pytest.fixture
def speeds(monkeypatch):
    """A machine that trains 1,000 images a second and makes 10,000 draws."""
    monkeypatch.setattr(estimate, "training_speed", lambda *_: 1000.0)
    monkeypatch.setattr(estimate, "sampling_speed", lambda *_: 10_000.0)
    monkeypatch.setattr(estimate, "certification_network", lambda *_: None)
    monkeypatch.setattr(estimate, "_rest", lambda _: estimate.Part("the rest", 1.0, "start-up"))


def test_every_part_is_its_work_over_its_speed(project, speeds):
    settings = laptop()
    parts = {part.stage: part for part in estimate.estimate(settings)}
    assert parts["train_core"].seconds == settings.core.train.epochs * 50_000 / 1000
    assert parts["train_certify"].seconds == settings.certify.train.epochs * 50_000 / 1000
    assert parts["sample"].seconds == pytest.approx(500 * 2100 / 10_000, abs=1)
    draws = settings.sample.n0 + estimate.CALIBRATION
    assert parts["calibrate"].seconds == 2000 * draws / 10_000
    assert "the rest" in parts and "train_select" not in parts
    published = settings.core.replace(checkpoint="checkpoints/core.safetensors")
    fewer = {part.stage for part in estimate.estimate(laptop(core=published))}
    assert "train_core" not in fewer
    selected = settings.select.replace(score="network")
    more = {part.stage: part for part in estimate.estimate(laptop(select=selected))}
    assert more["train_select"].seconds > 50_000 * settings.select.draws / 10_000
    assert more["sample"].seconds == pytest.approx(2 * 500 * 2100 / 10_000, abs=1)


def test_early_stopping_halves_long_runs_only(project, speeds):
    for n, share in ((2000, 1.0), (100_000, 0.5)):
        settings = laptop().sample
        settings = settings.replace(n=n, adaptive=settings.adaptive.replace(enabled=True))
        parts = {part.stage: part for part in estimate.estimate(laptop(sample=settings))}
        assert parts["sample"].seconds == pytest.approx(share * 500 * (n + 100) / 10_000, abs=1)


@pytest.mark.slow
def test_it_measures_this_machine(project, monkeypatch, capsys):
    monkeypatch.setattr("aces.commands.doctor.check", lambda: None)
    text = (project / "params.yaml").write_text
    text(open(f"{ROOT}/profiles/laptop.yaml").read().replace("arch: small\n", "arch: tiny\n"))
    assert main(["estimate", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert [part["stage"] for part in parts] == [
        "train_core",
        "train_certify",
        "sample",
        "calibrate",
        "the rest",
    ]
    assert all(part["seconds"] > 0 for part in parts)
    assert main(["estimate"]) == 0
    assert "the run takes about" in capsys.readouterr().out


@pytest.mark.parametrize(
    "seconds, words",
    [(37, "37 s"), (280, "4 min 40 s"), (11_520, "3.2 hours"), (12 * 86_400, "12 days")],
)
def test_times_are_said_as_people_say_them(seconds, words):
    assert spoken(seconds) == words
