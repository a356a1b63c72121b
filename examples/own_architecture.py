"""An architecture of one's own, used without changing a file of the project.

In params.yaml:

    certify:
      arch: examples.own_architecture:build
      code: examples/own_architecture.py     # DVC trains again when this file changes
"""

from torch import nn


def build(num_classes: int, channels: int) -> nn.Module:
    """A network from normalised images (N, channels, H, W) to logits (N, num_classes).

    The pipeline puts the normalisation before it, so that noise is added to pixels in [0, 1].
    """
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 32, num_classes),
    )
