"""What makes an evaluation doubtful is said, and nothing is said of a sound one."""

import numpy as np
import pytest

from aces.rule.concerns import evaluation_concerns

RANDOM = np.random.default_rng(0)
LABEL = np.arange(600) % 3


def sound() -> dict:
    """A good core network, a fair certification network, few abstentions."""
    wrong = (LABEL + 1) % 3
    return {
        "label": LABEL,
        "core": np.where(RANDOM.random(600) < 0.9, LABEL, wrong),
        "guess": np.where(RANDOM.random(600) < 0.6, LABEL, wrong),
        "abstained": RANDOM.random(600) < 0.1,
        "invalid": 0,
        "num_classes": 3,
    }


def test_nothing_is_said_of_a_sound_evaluation():
    assert evaluation_concerns(**sound()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"core": RANDOM.integers(0, 3, 600)}, "The core network is hardly better than chance"),
        ({"abstained": np.ones(600, bool)}, "ACES abstains on 100% of the images"),
        ({"invalid": 1234}, "1,234 noise draws gave NaN or infinite logits"),
    ],
)
def test_each_concern_is_one_sentence_of_its_own(change, said):
    (found,) = evaluation_concerns(**sound() | change)
    assert found.startswith(said)


def test_a_network_that_always_gives_one_class_is_named_twice():
    chance, one = evaluation_concerns(**sound() | {"guess": np.zeros(600, int)})
    assert chance.startswith("The certification network is hardly better than chance: it is right")
    assert one == (
        "The certification network gives class 0 to 100% of the images; 33% of them have it."
    )


def test_few_images_are_a_concern_also_where_the_networks_are_good():
    few = {name: value[:40] if np.ndim(value) else value for name, value in sound().items()}
    (found,) = evaluation_concerns(**few | {"guess": few["label"], "core": few["label"]})
    assert "Only 40 images" in found and "up to 15 points" in found  # 0.98 / sqrt(40) = 0.155


def test_one_frequent_class_is_no_concern_where_the_labels_are_like_that():
    label = (np.arange(1000) % 20 == 0).astype(int)  # 95 % are of class 0
    given = sound() | {"label": label, "core": label, "guess": label, "num_classes": 2}
    assert evaluation_concerns(**given | {"abstained": np.zeros(1000, bool)}) == []


def test_images_without_a_label_say_nothing_about_a_network():
    unknown = {"label": np.full(600, -1), "core": np.zeros(600, int), "guess": np.zeros(600, int)}
    assert evaluation_concerns(**sound() | unknown) == []
