"""The profiles: complete, valid, the published recipes; `aces profile` puts one in place."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from aces import cli, params
from aces.commands import doctor
from aces.commands.profile import contents
from aces.networks.registry import build
from aces.training import methods

FOLDER = Path(__file__).parent.parent / "profiles"
PAPER = [f"cifar10-{method}" for method in params.METHODS] + [
    f"imagenet-{method}" for method in params.METHODS if method != "macer"
]
SIGMAS = (0.25, 0.5, 1.0)


def load(name: str) -> params.Params:
    return params.load(FOLDER / f"{name}.yaml")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with the profiles and nothing else."""
    shutil.copytree(FOLDER, tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_row_of_the_paper_has_a_profile():
    assert {path.stem for path in FOLDER.glob("*.yaml")} >= {"laptop", "digits", *PAPER}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_profile_is_valid_and_survives_set_param(path):
    profile = params.load(path)
    channels = 1 if profile.dataset.name in ("digits", "torchvision/FashionMNIST") else 3
    with torch.device("meta"):
        for arch in (profile.core.arch, profile.certify.arch):
            build(arch, num_classes=10, mean=(0.5,) * channels, std=(0.2,) * channels)
    text = path.read_text()
    assert text.startswith("# ")
    assert not re.search(r"\[[^\]]", text), "dvc's --set-param rewrites [a, b] as block lists"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_profile_names_every_parameter_that_dvc_asks_for(path):
    """DVC stops where one is missing from params.yaml, though it has a default here."""
    written = yaml.safe_load(path.read_text())
    asked = doctor.keys_of_dvc((FOLDER.parent / "dvc.yaml").read_text())
    assert "dataset.code" in asked and "core.size" in asked
    for name in asked:
        node = written
        for part in name.split("."):
            assert part in node, name
            node = node[part]


@pytest.mark.parametrize("name", PAPER)
def test_settings_of_the_paper(name):
    profile = load(name)
    dataset, method = name.split("-")
    assert (profile.dataset.name, profile.certify.method) == (dataset, method)
    assert profile.dataset.stride == {"cifar10": 20, "imagenet": 100}[dataset]
    assert profile.certify.arch == {"cifar10": "cifar_resnet110", "imagenet": "resnet50"}[dataset]
    sample = profile.sample
    assert (sample.n0, sample.n, sample.n_predict, profile.combine.alpha) == (
        100,
        100_000,
        10_000,
        0.001,
    )
    assert (profile.combine.rule, profile.combine.multiplicity) == ("paper", "bonferroni")
    assert sample.adaptive.enabled and sample.adaptive.thetas == "all"
    assert len(profile.combine.thetas) == 101
    assert profile.select.draws == 1000


# The published training commands: epochs, batch, lr, weight decay, milestones
@pytest.mark.parametrize(
    "name, expected",
    [
        ("cifar10-gaussian", (90, 400, 0.1, 1e-4, [30, 60])),
        ("imagenet-gaussian", (90, 400, 0.1, 1e-4, [30, 60])),
        ("cifar10-smoothadv", (150, 256, 0.1, 1e-4, [50, 100])),
        ("cifar10-macer", (440, 64, 0.01, 5e-4, [200, 400])),
        ("cifar10-consistency", (150, 256, 0.1, 1e-4, [50, 100])),
        ("imagenet-consistency", (90, 256, 0.1, 1e-4, [30, 60])),
    ],
)
def test_schedules(name, expected):
    train = load(name).certify.train
    assert (train.epochs, train.batch, train.lr, train.weight_decay, train.milestones) == expected
    assert (train.momentum, train.schedule) == (0.9, "step")


# The published training commands, at sigma 0.25, 0.5, 1.0; SmoothAdv divides its epsilon by 256
@pytest.mark.parametrize(
    "name, fields, expected",
    [
        (
            "cifar10-smoothadv",
            ("attack", "steps", "draws", "epsilon", "warmup"),
            [
                ("pgd", 10, 8, 255 / 256, 10),
                ("pgd", 2, 8, 512 / 256, 10),
                ("pgd", 10, 2, 512 / 256, 10),
            ],
        ),
        (
            "imagenet-smoothadv",
            ("attack", "steps", "draws", "epsilon"),
            [("ddn", 2, 1, 512 / 256), ("pgd", 1, 1, 255 / 256), ("pgd", 1, 1, 512 / 256)],
        ),
        (
            "cifar10-macer",
            ("draws", "beta", "gamma", "weight", "after_milestone"),
            [(16, 16, 8, 12, 0), (16, 16, 8, 4, 0), (16, 16, 8, 12, 1)],
        ),
        (
            "cifar10-consistency",
            ("draws", "weight", "eta"),
            [(2, 20, 0.5), (2, 10, 0.5), (2, 10, 0.5)],
        ),
        (
            "imagenet-consistency",
            ("draws", "weight", "eta"),
            [(2, 5, 0.5), (2, 5, 0.5), (2, 5, 0.1)],
        ),
    ],
)
def test_recipes_by_sigma(name, fields, expected):
    certify = load(name).certify
    assert [
        tuple(getattr(methods.resolve(certify, sigma).settings, field) for field in fields)
        for sigma in SIGMAS
    ] == expected


def test_use_writes_the_profile_and_says_what_it_replaced(project, capsys):
    assert cli.main(["profile", "use", "digits"]) == 0
    assert (project / "params.yaml").read_text() == contents(FOLDER / "digits.yaml")
    assert "there was none before" in capsys.readouterr().out
    text = (project / "params.yaml").read_text()
    assert cli.main(["profile", "use", "laptop"]) == 0
    assert "params.yaml is now laptop; it was digits" in capsys.readouterr().out
    (project / "params.yaml").write_text(
        text.replace("sigma: 0.25\nseed: 0", "sigma: 0.5\nseed: 3")
    )
    assert cli.main(["profile", "use", "laptop"]) == 0
    assert "it replaced digits with sigma=0.5, seed=3" in capsys.readouterr().out
    (project / "params.yaml").write_text("sigma: many")
    assert cli.main(["profile", "use", "digits"]) == 0
    assert "a file that was not valid" in capsys.readouterr().out


def test_use_refuses_what_it_cannot_use(project, capsys):
    (project / "params.yaml").write_text("mine")
    assert cli.main(["profile", "use", "desktop"]) == 2
    assert (
        "profile 'desktop' is unknown: expected one of cifar10-consistency"
        in capsys.readouterr().err
    )
    (project / "profiles" / "broken.yaml").write_text("sigma: -0.25\n")
    assert cli.main(["profile", "use", "broken"]) == 2
    assert "sigma=-0.25: expected a number of at least 1e-06" in capsys.readouterr().err
    assert (project / "params.yaml").read_text() == "mine"


def test_list(project, capsys):
    cli.main(["profile", "use", "digits"])
    capsys.readouterr()
    assert cli.main(["profile", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        [line for line in lines if line.startswith("* ")]
        == [line for line in lines if "digits  " in line]
        != []
    )
    assert cli.main(["profile", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["digits"]["in_place"] and not rows["laptop"]["in_place"]
    assert "SmoothAdv" in rows["cifar10-smoothadv"]["purpose"]


def test_list_outside_a_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    assert cli.main(["profile", "list"]) == 2
    assert "has no profiles: run this in the project's folder" in capsys.readouterr().err
