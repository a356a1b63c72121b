"""Labels of the selection network, for a network whose share of correct copies is known exactly."""

import types

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from aces.data import TrainSet
from aces.runtime import Runtime
from aces.training import selection

pytestmark = pytest.mark.slow


class Brightness(nn.Module):
    """Class 1 where the top left pixel is above 1/2: with noise, of probability Phi((pixel - 1/2) /
    sigma).
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = x[:, :1, 0, 0] - 0.5
        return torch.cat((-score, score), dim=1)


# The probabilities of class 1 at sigma 0.25 are 0.02, 0.70 and 0.98.
PIXELS = np.array([0, 161, 255] * 4, dtype=np.uint8)


def images(labels) -> TrainSet:
    return TrainSet(
        np.broadcast_to(PIXELS[:, None, None, None], (12, 8, 8, 1)).copy(), np.asarray(labels)
    )


def label(data: TrainSet, **changes) -> np.ndarray:
    arguments = {
        "sigma": 0.25,
        "draws": 400,
        "eta": 0.5,
        "num_classes": 2,
        "seed": 0,
        "runtime": Runtime(device="cpu", workers=1),
    }
    return selection.label_training_set(Brightness(), data, **arguments | changes).label


@pytest.mark.parametrize("eta, expected", [(0.5, [0, 1, 1]), (0.95, [0, 0, 1])])
def test_labels_say_which_images_are_classified_correctly_often_enough(eta, expected):
    assert label(images([1] * 12), eta=eta).tolist() == expected * 4
    assert label(images([0] * 12), eta=eta).tolist() == ([1, 0, 0]) * 4


def test_eta_one_asks_for_every_draw():
    always = TrainSet(np.full((2, 8, 8, 1), 255, dtype=np.uint8), np.array([1, 0]))
    assert label(always, eta=1.0, sigma=0.05).tolist() == [1, 0]


def test_a_share_of_exactly_eta_suffices(monkeypatch):
    """55 of 100 at eta 0.55, though 0.55 * 100 is above 55 in floating point."""
    drawn = types.SimpleNamespace(classes=np.full((3, 12, 2), 55))
    monkeypatch.setattr(selection, "sample", lambda *_, **__: drawn)
    assert label(images([1] * 12), eta=0.55, draws=100).tolist() == [1] * 12


def test_slices_and_runs_agree_and_finished_draws_are_kept(tmp_path, monkeypatch):
    labels = np.arange(12) % 2
    at_once = label(images(labels), runtime=Runtime(device="cpu", workers=1, scratch=tmp_path))
    monkeypatch.setattr(selection, "SLICE", 5)
    assert label(images(labels)).tolist() == at_once.tolist()
    assert any(tmp_path.iterdir())


def test_a_folder_is_labelled_as_the_network_will_see_it(tmp_path):
    paths = []
    for number, pixel in enumerate((0, 255)):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(np.full((300, 400, 3), pixel, dtype=np.uint8)).save(paths[-1])
    assert label(TrainSet(paths, np.array([1, 1])), draws=20).tolist() == [0, 1]
