"""Certificates hold in practice: no attack within the radius changes the answer, some attack
outside of it does, and a false certificate is noticed.
"""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from aces import ACES
from aces.cli import main
from aces.data import write_eval
from aces.errors import InputError
from aces.model.attack import ATTACKS, Effort, attack, check_differentiable, within
from aces.reporting.attacks import read_attack
from aces.sampling.lattice import lattice
from default_networks import default_images, default_model
from small_models import (
    Constant,
    HalfSpace,
    digits,
    digits_model,
    grey,
    half_space_model,
    write_project,
)

pytestmark = pytest.mark.slow

torch.set_num_threads(1)

EFFORT = Effort(steps=12, draws=16, directions=4, n=2000)


def attacked(model: ACES, image: np.ndarray, *, scales, label=None):
    certificates = model.certify(image, n=2000, seed=0)
    return attack(model, image, certificates, labels=label, scales=scales, effort=EFFORT)


@pytest.mark.parametrize("rule", ["confident", "paper"])
def test_no_attack_changes_an_answer_inside_its_radius(rule):
    model = digits_model().by(rule=rule)
    result = attacked(model, digits().image[:40], scales=(0.5, 0.98), label=digits().label[:40])
    assert len(result.targets) >= 10 and not result.breaches
    assert all(row["any"] == 0 for row in result.by_scale())
    assert {it.attack for it in result.trials} == set(ATTACKS)
    assert len(result.trials) == len(result.targets) * 2 * (2 + EFFORT.directions)
    radius = [result.certificates[it.image].radius for it in result.trials]
    reached = [it.distance / it.scale / r for it, r in zip(result.trials, radius, strict=True)]
    assert max(reached) < 1 and np.median(reached) > 0.8


def test_the_default_networks_hold_inside_and_fall_outside():
    result = attacked(default_model(), default_images().image[:16], scales=(0.98, 3.0))
    inside, outside = result.by_scale()
    assert inside["any"] == 0 and not result.breaches
    assert outside["any"] >= 1  # so the attack is worth something


def test_a_half_space_falls_just_outside_of_its_exact_radius():
    """The exact radius of HalfSpace is its distance to the boundary: PGD must find the way."""
    model = ACES(
        core=Constant([1.0, 0.0]),
        certify=HalfSpace(scale=20.0),
        sigma=0.25,
        theta=1.0,
        num_classes=2,
        workers=1,
    )
    x = grey(0.6, 0.57)
    result = attacked(model, x, scales=(0.98, 1.5))
    inside, outside = result.by_scale()
    assert inside["any"] == 0 and outside["class"] == 2


def test_a_false_certificate_is_found_and_named():
    model, x = half_space_model(core=0), grey(0.6)
    (true,) = model.certify(x, n=2000, seed=0)
    result = attack(model, x, [replace(true, radius=1.0)], scales=(0.9,), effort=EFFORT)
    assert result.breaches and result.breaches[0].image == 0


def test_moved_images_stay_in_the_ball_the_box_and_on_the_lattice():
    generator, steps = torch.Generator().manual_seed(0), lattice(0.25).scale
    x = torch.round(torch.rand((20, 3, 8, 8), generator=generator) * 255) / 255
    moved = torch.randn(x.shape, generator=generator)
    reach = torch.rand((20, 1, 1, 1), generator=generator)
    found = within(x, moved, reach, steps=steps)
    assert ((found >= 0) & (found <= 1)).all()
    assert ((found.double() - x.double()).flatten(1).norm(dim=1) <= reach.flatten() + 1e-6).all()
    assert torch.allclose(found * steps, torch.round(found * steps), atol=1e-2)
    tiny = torch.full_like(reach, 1e-4)  # less than a step: nothing can move
    assert torch.equal(within(x, moved, tiny, steps=steps), torch.round(x * steps) / steps)


def test_the_curve_starts_at_the_same_point_and_never_rises():
    image, label = digits().image[:30], digits().label[:30]
    curve = attacked(digits_model(), image, scales=(0.98, 2.0), label=label).curve()
    certified = [row["certified_accuracy"] for row in curve]
    empirical = [row["empirical_accuracy"] for row in curve]
    assert certified[0] == empirical[0] > 0
    assert certified == sorted(certified, reverse=True)
    assert empirical == sorted(empirical, reverse=True)
    assert all(e >= c for e, c in zip(empirical, certified, strict=True))


@pytest.mark.parametrize("change", [{"steps": 0}, {"draws": -1}, {"directions": 1.5}])
def test_wrong_efforts_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        Effort(**change)


def test_wrong_scales_are_refused():
    for scales in ((), (0.0,), (float("nan"),)):
        with pytest.raises(InputError, match="scales="):
            attack(
                half_space_model(),
                grey(0.6),
                half_space_model().certify(grey(0.6), n=100),
                scales=scales,
            )


# ---------------------------------------------------------------- the command


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(tmp_path)
    write_eval(tmp_path / "data" / "digits" / "eval.npz", digits())
    monkeypatch.chdir(tmp_path)
    return tmp_path


QUICK = ["--steps", "4", "--draws", "8", "--directions", "1", "--n", "500", "--scales", "0.98", "2"]


def test_the_command_writes_the_curve_and_the_trials(project, capsys):
    assert main(["attack", "--images", "8", *QUICK, "--seed", "0"]) == 0
    shown = capsys.readouterr().out
    assert "certified of 8 images" in shown
    summary = json.loads((project / "reports" / "attack" / "attack.json").read_text())
    assert summary["breaches"] == [] and summary["scales"][0]["any"] == 0
    assert set(summary["files"]) == {
        "models/core.safetensors",
        "models/certify.safetensors",
        "data/digits/eval.npz",
    }
    assert read_attack(project / "reports" / "attack" / "attack.json", summary["files"]) is not None
    with open(project / "reports" / "attack" / "attack.csv") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {"radius", "certified_accuracy", "empirical_accuracy"}
    assert Image.open(project / "reports" / "attack" / "attack.png").size[0] > 300
    assert (project / "reports" / "attack" / "trials.csv").read_text().count("\n") > 3


def test_files_can_be_attacked(project, capsys):
    Image.fromarray(digits().image[0, :, :, 0]).save("0.png")
    assert main(["attack", "0.png", *QUICK, "--theta", "1", "--out", "here", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["images"] == 1 and shown["files"] == {}  # it is not about the pipeline's images


def test_a_breach_is_an_error_that_names_the_image(project, capsys, monkeypatch):
    certify = ACES.certify

    def boast(self, x, **options):
        return [replace(it, radius=4 * it.radius) for it in certify(self, x, **options)]

    monkeypatch.setattr(ACES, "certify", boast)
    assert main(["attack", "--images", "6", *QUICK, "--steps", "12", "--theta", "1"]) == 1
    assert "this certificate is false" in capsys.readouterr().err


def test_a_network_without_gradients_cannot_be_attacked():
    class Fixed(nn.Module):
        def forward(self, x):
            return HalfSpace()(x.detach())

    with pytest.raises(InputError, match="no gradients"):
        check_differentiable(Fixed(), grey(0.5))
