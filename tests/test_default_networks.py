"""What the networks of the default profile promise, on the first sixty evaluation images of
CIFAR-10.
"""

from pathlib import Path

import numpy as np
import pytest

from aces import networks, params, rule, sampling
from aces.rule import metrics
from aces.rule.smoothing import ABSTAIN
from default_networks import FOLDER, default_images, default_model
from sampled import sample

pytestmark = pytest.mark.slow

SETTINGS = params.load(Path(__file__).parent.parent / "profiles" / "laptop.yaml")


THETAS = [0.4]  # of interest; for all of them n = 2,000 draws are too few to save any


def test_they_are_those_of_the_default_profile():
    core, certify = (
        networks.read_metadata(FOLDER / f"{role}.safetensors") for role in ("core", "certify")
    )
    assert (core["arch"], core["dataset"]) == (SETTINGS.core.arch, SETTINGS.dataset.name)
    assert (certify["arch"], certify["method"], float(certify["sigma"])) == (
        SETTINGS.certify.arch,
        SETTINGS.certify.method,
        SETTINGS.sigma,
    )
    assert list(default_images().index[:3]) == [
        0,
        SETTINGS.dataset.stride,
        2 * SETTINGS.dataset.stride,
    ]


def test_adaptive_predict_takes_a_twentieth_of_the_draws_and_agrees():
    """At most 5 % of n = 10,000 draws on average, and never another class than with all of them."""
    model, images = default_model(), default_images().image[:30]
    fixed = model.predict(images, n=10_000, seed=0)
    early = model.predict(images, n=10_000, adaptive=True, seed=1)
    assert all(a == b for a, b in zip(fixed, early) if ABSTAIN not in (a, b))
    assert early.count(ABSTAIN) <= fixed.count(ABSTAIN) + 2
    assert np.mean([prediction.draws for prediction in early]) <= 0.05 * 10_000


def test_adaptive_sampling_takes_fewer_draws_and_keeps_the_numbers():
    """With the profile's looks, at one theta of interest: ACR and certified accuracies within 1 %
    of those with all draws, natural accuracy within one image, and at most two thirds of the draws
    (both rules must be settled, and PREDICT has no draws of its own that could be saved).
    """
    model, evaluation, settings = default_model(), default_images(), SETTINGS.sample
    adaptive = settings.adaptive.model_copy(update={"thetas": THETAS})
    core = sampling.classes_of(model.networks["core"], evaluation.image, num_classes=10)
    draw = {
        "sigma": model.sigma,
        "num_classes": 10,
        "n0": settings.n0,
        "n": settings.n,
        "n_predict": settings.n_predict,
        "seed": 0,
        "chunk": settings.chunk,
        "progress": False,
    }
    fixed = sample(model.networks["certify"], evaluation.image, **draw)
    early = sample(model.networks["certify"], evaluation.image, adaptive=adaptive, **draw)
    assert early.draws.sum() <= fixed.draws.sum() * 2 / 3
    of_fixed, of_early = (curve_of(counts, core, evaluation.label) for counts in (fixed, early))
    for name in ("acr", "certified_accuracy@0.25", "certified_accuracy@0.5"):
        assert of_fixed[name] > 0 and of_early[name] == pytest.approx(of_fixed[name], rel=0.01), (
            name
        )
    assert of_early["nac"] >= of_fixed["nac"] - 1.01 / len(core)


def curve_of(counts, core, label) -> dict:
    """The numbers at the theta of interest."""
    alpha, thetas = SETTINGS.combine.alpha, THETAS
    outcomes = rule.certify(counts, core, alpha=alpha, thetas=thetas)
    natural = rule.predict(counts, core, alpha=alpha, thetas=thetas)
    curve = metrics.curve(outcomes, natural, label, thetas=thetas, radii=[0.0, 0.25, 0.5])
    return {name: float(column[0]) for name, column in curve.items()}
