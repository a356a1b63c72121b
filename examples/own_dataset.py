"""A dataset of one's own, used without changing a file of the project: coloured shapes.

In params.yaml:

    dataset:
      name: examples.own_dataset:load
      code: examples/own_dataset.py     # DVC runs the pipeline again when this file changes
      stride: 1
      settings:
        images: 600
        side: 32
"""

import numpy as np

from aces.data import Part, Splits

CLASSES = ["disc", "square", "ring"]


def load(settings: dict) -> Splits:
    """Training and test images: uint8 (N, height, width, 3), or a list of paths of image files.

    settings: the mapping `dataset.settings` of params.yaml.
    """
    random = np.random.default_rng(settings.get("seed", 0))
    images, side = settings.get("images", 600), settings.get("side", 32)
    train, test = (draw(random, count, side) for count in (images, images // 3))
    return Splits(train=train, test=test, classes=CLASSES)


def draw(random: np.random.Generator, count: int, side: int) -> Part:
    """A shape of a random place, size and colour on a noisy background, for each image."""
    label = random.integers(0, len(CLASSES), count)
    size = random.uniform(0.2, 0.4, count)[:, None, None] * side
    centre = random.uniform(0.4, 0.6, (2, count, 1, 1)) * side
    down = np.abs(np.arange(side)[None, :, None] - centre[0])
    right = np.abs(np.arange(side)[None, None, :] - centre[1])
    distance = np.hypot(down, right)
    disc, square = distance <= size, np.maximum(down, right) <= size
    shapes = disc, square, disc & (distance >= size / 2)
    inside = np.select([label[:, None, None] == number for number in range(3)], shapes)
    image = random.integers(0, 80, (count, side, side, 3), dtype=np.uint8)
    colour = random.integers(120, 256, (count, 1, 1, 3), dtype=np.uint8)
    return Part(np.where(inside[..., None], colour, image), label)
