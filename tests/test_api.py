"""ACES as a model: certificates of networks whose smoothing is known, early stops, calibration."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import aces
from aces import ACES, rule, sampling
from aces.errors import InputError
from aces.rule import ABSTAIN, Route
from sampled import sample
from small_models import CLASSES, Constant, HalfSpace, digits, digits_model, grey, half_space_model

torch.set_num_threads(1)


# ---------------------------------------------------------------- what is certified


@pytest.mark.slow
def test_radii_are_just_below_the_exact_distance_to_the_boundary():
    levels = [0.3, 0.45, 0.52, 0.55, 0.6]
    certificates = half_space_model().certify(grey(*levels), n=20_000, seed=0)
    for level, certificate in zip(levels, certificates, strict=True):
        exact = 4 * abs(level - 0.5)  # HalfSpace's docstring
        assert certificate.route == Route.CERTIFY and certificate.prediction == int(level > 0.5)
        assert 0.85 * exact - 0.01 < certificate.radius < exact


def test_an_image_on_the_boundary_abstains():
    (certificate,) = half_space_model().certify(grey(0.5), n=2000, seed=0)
    assert (
        certificate.prediction == ABSTAIN
        and certificate.route == Route.ABSTAIN
        and certificate.radius == 0
    )
    assert half_space_model().predict(grey(0.5), n=2000, seed=0) == [ABSTAIN]


@pytest.mark.slow
def test_an_unsure_certification_network_leaves_it_to_the_core():
    model = ACES(
        core=Constant([0.0, 1.0]),
        certify=Constant([0.1, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    (certificate,) = model.certify(grey(0.2), n=1000)
    assert (certificate.prediction, certificate.radius, certificate.route) == (1, 0.0, Route.CORE)
    assert model.predict(grey(0.2), n=1000) == [1]
    assert model.at(theta=1.0).predict(grey(0.2), n=1000) == [0]


@pytest.mark.slow
def test_a_selection_network_selects():
    half = dict(
        core=Constant([0.0, 1.0]),
        certify=Constant([9.0, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    to_core, to_certify = (
        ACES(**half, select=Constant(logits)) for logits in ([5.0, 0.0], [0.0, 5.0])
    )
    assert to_core.certify(grey(0.5), n=100)[0].route == Route.CORE
    assert to_certify.certify(grey(0.5), n=100)[0].route == Route.CERTIFY


@pytest.mark.slow
def test_it_is_the_pipelines_rule_on_the_pipelines_draws():
    model, evaluation = digits_model(), digits()
    certificates = model.certify(evaluation.image, n=300, seed=5)
    counts = sample(
        model.networks["certify"],
        evaluation.image,
        sigma=model.sigma,
        num_classes=10,
        n0=100,
        n=300,
        n_predict=0,
        seed=5,
        progress=False,
    )
    with torch.inference_mode():
        core = model.networks["core"](aces.data.to_tensor(evaluation.image)).argmax(dim=1).numpy()
    outcomes = rule.certify(counts, core, alpha=0.001, thetas=[model.theta], rule=model.rule)
    assert [c.prediction for c in certificates] == outcomes.prediction[:, 0].tolist()
    assert [c.radius for c in certificates] == outcomes.radius[:, 0].tolist()
    assert [c.route for c in certificates] == outcomes.route[:, 0].tolist()
    assert all(
        c.draws == 400 and c.seed == 5 and c.name == CLASSES[c.prediction]
        for c in certificates
        if c.prediction != ABSTAIN
    )


def test_draws_are_fresh_unless_the_seed_says_otherwise():
    model, x = half_space_model(), grey(0.52)
    first, second = model.certify(x, n=500)[0], model.certify(x, n=500)[0]
    assert first.seed != second.seed and first.p_class != second.p_class
    assert model.certify(x, n=500, seed=first.seed)[0] == first
    (again,) = model.predict(x, n=500, seed=7)
    assert again.seed == 7 and model.predict(x, n=500, seed=7) == [again]


def test_invalid_draws_are_counted_and_never_help():
    class Broken(nn.Module):
        def forward(self, x):
            bad = (x.mean(dim=(1, 2, 3)) > 0.5).float()[:, None]
            return torch.tensor([9.0, 0.0]) + torch.log(1 - bad) + 0 * x.flatten(1)[:, :2]

    model = ACES(
        core=Constant([0.0, 1.0]), certify=Broken(), sigma=0.25, theta=0.9, num_classes=2, workers=1
    )
    (certificate,) = model.certify(grey(0.5), n=1000, seed=0)  # half of the draws are infinite
    assert 300 < certificate.invalid < 800 and certificate.route == Route.ABSTAIN


# ---------------------------------------------------------------- early stopping


@pytest.mark.slow
def test_adaptive_predict_agrees_with_fixed_n_and_draws_little():
    model, evaluation = digits_model(), digits()
    fixed = model.predict(evaluation.image, n=10_000, seed=0)
    early = model.predict(evaluation.image, n=10_000, adaptive=True, seed=1)
    assert all(a == b for a, b in zip(fixed, early, strict=True) if ABSTAIN not in (a, b))
    assert early.count(ABSTAIN) <= fixed.count(ABSTAIN) + 2
    assert np.mean([prediction.draws for prediction in early]) <= 0.05 * 10_000
    assert max(prediction.draws for prediction in early) <= 10_000


def test_a_radius_asked_for_is_certified_where_it_holds_and_never_where_it_does_not():
    inside, outside = grey(0.6, 0.35), grey(0.54, 0.48)  # exact radii 0.4, 0.6 and 0.16, 0.08
    certificates = half_space_model().certify(
        torch.cat([inside, outside]), radius=0.25, adaptive=True, n=10_000, seed=0
    )
    assert [certificate.radius for certificate in certificates] == [0.25, 0.25, 0, 0]
    assert [certificate.prediction for certificate in certificates] == [1, 0, ABSTAIN, ABSTAIN]
    assert all(certificate.draws < 2000 for certificate in certificates)


@pytest.mark.slow
def test_adaptive_certify_stops_where_nothing_is_to_be_gained():
    model = half_space_model(theta=0.9)
    fixed, early = (
        model.certify(grey(0.9), n=20_000, adaptive=adaptive, seed=0)[0]
        for adaptive in (False, True)
    )
    assert (
        early.prediction == fixed.prediction == 1 and 0.97 * fixed.radius < early.radius < 4 * 0.4
    )
    unsure = ACES(
        core=Constant([0.0, 1.0]),
        certify=Constant([0.1, 0.0]),
        sigma=0.25,
        theta=0.5,
        num_classes=2,
    )
    (to_core,) = unsure.certify(grey(0.2), n=20_000, adaptive=True)
    assert to_core.route == Route.CORE and to_core.draws < 2000


def test_a_radius_without_adaptive_is_refused():
    with pytest.raises(InputError, match="adaptive=True"):
        half_space_model().certify(grey(0.6), radius=0.1, n=100)


@pytest.mark.parametrize("radius", [-0.1, 0.0, 9.0, math.nan])
def test_a_radius_out_of_reach_is_refused(radius):
    with pytest.raises(InputError, match="radius="):
        half_space_model().certify(grey(0.6), radius=radius, adaptive=True, n=1000)


def test_the_sampler_answers_by_the_rule_of_the_model_unless_it_is_told_another():
    plan, x = aces.DrawPlan(sigma=0.25, n0=20, n=100, seed=1), grey(0.9)
    ask = dict(core=np.zeros(1, int), theta=0.5, alpha=0.01, num_classes=2)
    ask |= dict(runtime=aces.Runtime(device="cpu", workers=1, progress=False))
    for select in (None, Constant([0.0, 1.0])):
        expected = "confident" if select is None else "paper"
        by_default = sampling.predict(HalfSpace(), x, plan, select=select, **ask)
        assert by_default == sampling.predict(
            HalfSpace(), x, plan, select=select, rule=expected, **ask
        )


# ---------------------------------------------------------------- calibration


@pytest.mark.slow
def test_calibrate_sets_the_largest_theta_that_keeps_its_promise():
    """The core is always right, the certification network on half of the images only: what it is
    asked is lost. At theta = 0 it is never asked.
    """
    model = ACES(
        core=HalfSpace(threshold=0.5),
        certify=HalfSpace(threshold=0.3, scale=4.0),
        sigma=0.25,
        theta=0.9,
        num_classes=2,
        workers=1,
    )
    levels = np.repeat([0.2, 0.4, 0.6, 0.8], 50)
    x, labels = grey(*levels.tolist()), (levels > 0.5).astype(int)
    found = model.calibrate(x, labels, loss=0.05, confidence=0.9, n=60, step=0.1, seed=0)
    assert model.theta == found.theta < 1 and found.images == 200 and found.shown
    assert found.measured <= 0.05 and found.losses[-1] > 0.05
    assert model.calibrate(x, labels, loss=0.9, n=60, step=0.1, seed=0).theta == 1


def test_calibrate_says_how_many_images_it_needs():
    model, before = half_space_model(theta=0.8), 0.8
    with pytest.raises(InputError, match="take at least 203"):
        model.calibrate(grey(0.6, 0.4), [1, 0], n=60)
    assert model.theta == before


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": [0]}, "labels of shape"),
        ({"labels": [0, 2]}, "labels from 0 to 2: expected classes 0 to 1"),
        ({"labels": [0, -1]}, "labels from -1 to 0: expected classes 0 to 1"),
        ({"labels": [0.0, 1.0]}, "type float"),
        ({"step": 0.3}, "step=0.3"),
        ({"loss": 0.0}, "loss=0"),
        ({"confidence": 1.0}, "confidence=1"),
        ({"n": 3}, "n=3 is too small"),
    ],
)
def test_wrong_calibrations_are_refused(change, message):
    options = {"labels": [0, 1], "n": 60} | change
    with pytest.raises(InputError, match=message):
        half_space_model().calibrate(grey(0.4, 0.6), **options)
