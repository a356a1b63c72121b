"""ResNets for 32x32 images, with the parameter names of the published networks.

Two families, both with 3x3 convolutions and batch norm in blocks of two:

| depth               | stages                                                      | width |
|---------------------|-------------------------------------------------------------|-------|
| 6n + 2: 20, 32, ... | three of n blocks (He et al., 2016, section 4.2)            | 16    |
| 18, 34              | four, with the blocks of ImageNet's ResNets and a 3x3 stem  | 64    |

Each stage has half the pixels and twice the width of the one before.

Where the shape changes, the shortcut is one of three (He et al. call the first B, the others A):

| suffix   | shortcut                                                                     |
|----------|------------------------------------------------------------------------------|
| none     | a 1x1 convolution with batch norm: Cohen et al., SmoothAdv, MACER and others |
| `-a`     | every other pixel, zero channels on both sides: akamaster's networks         |
| `-a-end` | every other pixel, zero channels after the others                            |

A further suffix `-w<width>` gives the first stage another width: `cifar_resnet20-a-w32`.
"""

import re
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # blocks per stage, for the depths not of 6n + 2
DEEPEST = 2000  # He et al. went to 1202
_NAME = re.compile(r"cifar_resnet(\d{1,4})(-a-end|-a)?(?:-w(\d{1,4}))?")


@dataclass(frozen=True)
class Design:
    """What a name such as `cifar_resnet56-a` stands for."""

    blocks: tuple[int, ...]  # per stage
    width: int  # channels of the first stage; each further stage has twice as many
    shortcut: str  # "", "-a" or "-a-end", see the table above

    @property
    def depth(self) -> int:
        return 2 * sum(self.blocks) + 2

    @property
    def name(self) -> str:
        usual = self.width == _usual_width(self.blocks)
        return f"cifar_resnet{self.depth}{self.shortcut}" + ("" if usual else f"-w{self.width}")


def design(name: str) -> Design | None:
    """The design of that name; None where it names no network of this module."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    blocks = blocks_of(int(match[1]))
    if blocks is None:
        return None
    width = int(match[3]) if match[3] else _usual_width(blocks)
    return Design(blocks, width, match[2] or "") if width > 0 else None


def blocks_of(depth: int) -> tuple[int, ...] | None:
    """The blocks per stage of a network of this depth, if there is one."""
    if depth in STAGES:
        return STAGES[depth]
    regular = 8 <= depth <= DEEPEST and (depth - 2) % 6 == 0
    return ((depth - 2) // 6,) * 3 if regular else None


def _usual_width(blocks: tuple[int, ...]) -> int:
    return 16 if len(blocks) == 3 else 64


class PaddedShortcut(nn.Module):
    """Every other pixel, and channels of zeros: a shortcut without parameters."""

    def __init__(self, before: int, after: int):
        super().__init__()
        self.before, self.after = before, after  # channels of zeros

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    def __init__(self, width_in: int, width_out: int, stride: int, shortcut: str = ""):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or width_in != width_out:
            self.downsample = _shortcut(shortcut, width_in, width_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


def _shortcut(kind: str, width_in: int, width_out: int, stride: int) -> nn.Module:
    zeros = width_out - width_in
    if kind == "-a":
        return PaddedShortcut(zeros // 2, zeros - zeros // 2)
    if kind == "-a-end":
        return PaddedShortcut(0, zeros)
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
    )


def _stage(
    width_in: int, width_out: int, *, blocks: int, stride: int, shortcut: str
) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(width_in, width_out, stride, shortcut),
        *(BasicBlock(width_out, width_out, 1) for _ in range(blocks - 1)),
    )


class CifarResNet(nn.Module):
    """(N, C, 32, 32) -> (N, K)."""

    def __init__(self, design: Design, *, num_classes: int, channels: int):
        super().__init__()
        width = design.width
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = len(design.blocks)
        before = width
        for number, blocks in enumerate(design.blocks):
            after = width * 2**number
            stage = _stage(
                before,
                after,
                blocks=blocks,
                stride=1 if number == 0 else 2,
                shortcut=design.shortcut,
            )
            self.add_module(f"layer{number + 1}", stage)
            before = after
        self.fc = nn.Linear(before, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for number in range(self.stages):
            x = self.get_submodule(f"layer{number + 1}")(x)
        return self.fc(x.mean(dim=(2, 3)))
