"""Rules compared at the same price: theta is chosen on one half and read on the other."""

import numpy as np
import pytest

from aces.rule.splits import difference, intervals_over_images, paired, read_elsewhere

THETAS = [0.0, 0.5, 1.0]


def scores(images: int, seed: int = 0) -> dict[str, np.ndarray]:
    """At theta 0 all right without a radius, at 1 few right with large radii."""
    random = np.random.default_rng(seed).random((images, 1))
    right = random < [1.0, 0.95, 0.6]
    return {"nac": right, "acr": right * np.array([0.0, 0.2, 0.5])}


def test_a_small_loss_chooses_a_small_theta_and_a_large_one_the_largest():
    core = np.ones(400, dtype=bool)
    for loss, theta in ((0.0, 0.0), (0.1, 0.5), (0.6, 1.0)):
        found = read_elsewhere(scores(400), core, thetas=THETAS, loss=loss)
        assert (found.theta == theta).all()


def test_what_is_read_is_not_what_was_chosen_on():
    """Scores of pure chance: the best of many thetas is above the mean where it was chosen, and at
    the mean where it is read.
    """
    random = np.random.default_rng(1)
    chance = {"nac": np.ones((300, 200)), "acr": random.random((300, 200))}
    found = read_elsewhere(chance, np.ones(300), thetas=np.arange(200) / 200, loss=0.5)
    assert found.mean("acr") == pytest.approx(0.5, abs=0.02)
    assert chance["acr"].mean(axis=0).max() > 0.53


def test_if_nothing_is_within_the_loss_the_most_accurate_theta_is_chosen():
    worse = scores(100)
    worse["nac"] = np.zeros_like(worse["nac"])
    worse["nac"][:50, 1] = True
    found = read_elsewhere(worse, np.ones(100), thetas=THETAS, loss=0.01)
    assert (found.theta == 0.5).all()


def test_differences_are_paired():
    core = np.ones(200, dtype=bool)
    ours = read_elsewhere(scores(200), core, thetas=THETAS, loss=0.1)
    assert difference(ours, ours, "acr") == (0.0, 0.0, 0.0)


def test_a_bootstrap_of_a_rule_against_itself_has_no_difference():
    (found,) = paired(scores(200), scores(200), np.ones(200), losses=[0.1], resamples=50)
    assert (found.ours, found.low, found.high) == (found.theirs, 0.0, 0.0)
    assert found.difference == 0.0
    assert found.ours == pytest.approx(scores(200)["acr"].mean(axis=0)[1])


def test_the_paired_interval_covers_the_true_difference_as_often_as_it_says():
    """Radii that differ by 0.02 in truth and share their noise: 200 made datasets."""
    random, core, held = np.random.default_rng(3), np.ones(100), 0
    for _ in range(200):
        shared = random.exponential(0.3, (100, 1)) * [0.5, 1.0]
        better = shared + random.normal(0.02, 0.05, (100, 1))
        right = np.ones((100, 2))
        (found,) = paired(
            {"nac": right, "acr": better},
            {"nac": right, "acr": shared},
            core,
            losses=[0.0],
            resamples=200,
        )
        held += found.low <= 0.02 <= found.high
    assert held >= 0.9 * 200  # 95 % of 200, less three standard deviations


def test_the_interval_over_images_covers_the_true_difference_as_often_as_it_says():
    """As above, with theta chosen on other images than it is read on. The splits of one dataset
    cover far less often: they do not know how images vary.
    """
    random, core, held, by_splits = np.random.default_rng(4), np.ones(100), 0, 0
    for _ in range(150):
        shared = random.exponential(0.3, (100, 1)) * [0.5, 1.0]
        better = shared + random.normal(0.02, 0.05, (100, 1))
        ours, theirs = ({"nac": np.ones((100, 2)), "acr": acr} for acr in (better, shared))
        found = intervals_over_images(ours, theirs, core, losses=[0.1], resamples=200)
        low, high = found[0.1]["acr"]
        held += low <= 0.02 <= high
        readings = [read_elsewhere(it, core, thetas=[0.5, 1.0], loss=0.1) for it in (ours, theirs)]
        means = readings[0].metrics["acr"] - readings[1].metrics["acr"]
        error = 1.96 * means.std() / 10  # as if 100 splits were 100 observations
        by_splits += abs(means.mean() - 0.02) <= error
    assert held >= 0.88 * 150 and by_splits < 0.5 * 150


def test_the_intervals_of_a_rule_against_itself_are_empty():
    same = scores(100)
    found = intervals_over_images(same, same, np.ones(100), losses=[0.0, 0.1], resamples=20)
    assert found == {loss: {"nac": (0.0, 0.0), "acr": (0.0, 0.0)} for loss in (0.0, 0.1)}
