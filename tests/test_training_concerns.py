"""A training that makes no sense is noticed, and a sound one is not."""

import numpy as np
import pytest
import torch
from torch import nn

from aces import params
from aces.data import TrainSet
from aces.runtime import Runtime
from aces.training import Method, standard
from aces.training.concerns import network_concerns, prediction_concerns, settings_concerns

STANDARD = standard.method()


def test_a_batch_larger_than_the_dataset_and_few_steps_are_noticed():
    """159 images with batch 256: one step an epoch."""
    batch, steps = settings_concerns(params.Train(epochs=6, batch=256), STANDARD, images=159)
    assert "train.batch=256 is larger than the 159 training images" in batch
    assert "the training has 6 steps in all, fewer than 100" in steps
    assert "raise train.epochs=6 or lower train.batch=256" in steps


@pytest.mark.parametrize("images, count", [(50 * 64, 0), (49 * 64, 1), (64 * 64, 0)])
def test_a_hundred_steps_are_enough(images, count):
    settings = params.Train(epochs=2, batch=64)
    assert len(settings_concerns(settings, STANDARD, images=images)) == count


def test_a_method_that_splits_its_batches_makes_more_steps():
    settings = params.Train(epochs=1, batch=256)
    assert settings_concerns(settings, STANDARD, images=4000)
    assert not settings_concerns(settings, Method("split", STANDARD.loss, split=8), images=4000)


def labels(count: int = 600, classes: int = 3) -> np.ndarray:
    return np.arange(count) % classes


def test_guesses_are_near_chance():
    random = np.random.default_rng(0)
    (found,) = prediction_concerns(random.integers(0, 3, 600), labels(), num_classes=3)
    assert "always answering the most frequent of 3 classes gives 33%" in found
    assert "learned next to nothing" in found


def test_one_answer_for_everything_is_noticed():
    chance, same = prediction_concerns(np.full(600, 2), labels(), num_classes=3)
    assert chance.startswith("33% of 600 training images are classified correctly")
    assert "100% of 600 training images are given class 2, which 33% of them have" in same


def test_a_class_that_most_images_have_may_be_answered_mostly():
    """A selection network of which 95 % of the images are labelled 1 may say 1 nearly always."""
    label = (np.arange(1000) % 20 > 0).astype(np.int64)
    good = label.copy()
    good[:20] = 1
    assert prediction_concerns(good, label, num_classes=2) == []


def test_a_network_that_knows_something_is_not_accused():
    random = np.random.default_rng(0)
    predicted = np.where(random.random(600) < 0.3, labels(), random.integers(0, 3, 600))
    assert prediction_concerns(predicted, labels(), num_classes=3) == []


class Brightness(nn.Module):
    """Class 1 where the image is bright."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = x.mean(dim=(1, 2, 3))[:, None] - 0.5
        return torch.cat((-score, score), dim=1)


def test_a_network_is_looked_at_on_some_training_images_with_noise():
    label = np.arange(3000) % 2
    image = np.broadcast_to((255 * label).astype(np.uint8)[:, None, None, None], (3000, 4, 4, 1))
    arguments = {"num_classes": 2, "seed": 0, "runtime": Runtime(device="cpu")}
    data = TrainSet(image.copy(), label)
    assert network_concerns(Brightness(), data, sigma=0.1, **arguments) == []
    (found,) = network_concerns(Brightness(), data, sigma=500.0, **arguments)
    assert "of 1,000 training images are classified correctly" in found
