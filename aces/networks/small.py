"""Small residual networks that train in minutes on two cores."""

import itertools
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a 1x1 shortcut; `stride` halves the image."""

    def __init__(self, width_in: int, width_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width_out)
        self.shortcut = nn.Sequential(
            nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A stem, then a residual block of stride 2 for each further width, mean pooling, a linear
    layer.
    """

    def __init__(self, *, num_classes: int, channels: int, widths: Sequence[int], stem_stride: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, stem_stride, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(
            *(ResidualBlock(a, b, stride=2) for a, b in itertools.pairwise(widths))
        )
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def small(num_classes: int, channels: int) -> SmallResNet:
    """The certification network of the default profile."""
    return SmallResNet(
        num_classes=num_classes, channels=channels, widths=(32, 64, 128), stem_stride=2
    )


def small_core(num_classes: int, channels: int) -> SmallResNet:
    """The core network of the default profile."""
    return SmallResNet(
        num_classes=num_classes, channels=channels, widths=(16, 32, 64, 128), stem_stride=1
    )


def tiny(num_classes: int, channels: int) -> SmallResNet:
    """For tests and 8x8 images: trains in seconds."""
    return SmallResNet(num_classes=num_classes, channels=channels, widths=(16, 32), stem_stride=1)
