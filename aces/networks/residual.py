"""Residual networks for small images as files describe them: any depth, widths and kind of block.

`cifar_resnet` has the regular networks, which a short name tells. This module has the others that
people publish: wide, pre-activation and bottleneck ResNets, ResNeXts, networks whose channels or
layers were pruned. Their structure is read from the shapes of their tensors (see `structure`) and
kept as a `Plan` in the header of the converted file.

Some choices leave no trace in the shapes. They are the suffixes of the network's name, in this
order, and `aces import` tries which of them are right:

| suffix     | choice                                                                          |
|------------|---------------------------------------------------------------------------------|
| `-end`     | a padded shortcut has its channels of zeros after the others, not on both sides |
| `-mean`    | a shortcut takes the mean of 2x2 pixels, not every other pixel                  |
| `-raw`     | a pre-activation block changes the shape of its input, not of its activation    |
| `-early`   | the first convolution of a bottleneck has the stride, not the second            |
| `-pool`    | 3x3 maxima of every other pixel follow the first convolution                    |
| `-removed` | layers whose weights are all zero are left out: how distiller removes layers    |
| `-plain`   | no shortcuts at all: the plain networks that He et al. compare theirs with      |
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from aces.errors import InputError

RESIDUAL = "residual"
PLAIN = "residual-plain"
CHOICES = ("end", "mean", "raw", "early", "pool", "removed", "plain")


@dataclass(frozen=True)
class Convolution:
    """A convolution that keeps the size of the image, but for its stride."""

    width: int  # channels that it makes
    kernel: int = 3
    groups: int = 1
    bias: bool = False


@dataclass(frozen=True)
class BlockPlan:
    """Convolutions one after another, and a shortcut around them."""

    convolutions: tuple[Convolution, ...]
    stride: int
    projection: Convolution | None  # of the shortcut; None: nothing, or zeros where widths differ
    projection_norm: bool
    removed: tuple[int, ...]  # the convolutions whose weights are all zero

    @property
    def width(self) -> int:
        return self.convolutions[-1].width


@dataclass(frozen=True)
class Plan:
    """What the shapes of a residual network's tensors tell."""

    stem: Convolution
    blocks: tuple[BlockPlan, ...]
    preactivated: bool  # batch norm and ReLU come before each convolution, not after it
    norms: bool  # whether the blocks have batch norm
    stem_norm: bool
    final_norm: bool

    def as_options(self) -> dict[str, Any]:
        """As JSON, for the header of a file."""
        return asdict(self)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "Plan":
        """The plan in a header; InputError if it makes no sense."""
        try:
            blocks = tuple(_block(each) for each in options["blocks"])
            flags = ("preactivated", "norms", "stem_norm", "final_norm")
            return cls(
                stem=_convolution(options["stem"]),
                blocks=blocks,
                **{flag: bool(options[flag]) for flag in flags},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(
                "the structure of the residual network is damaged: import its checkpoint again"
            ) from None


def _convolution(options: Mapping[str, Any]) -> Convolution:
    width, kernel, groups = (int(options[name]) for name in ("width", "kernel", "groups"))
    if min(width, kernel, groups) < 1 or kernel % 2 == 0:
        raise ValueError("no such convolution")
    return Convolution(width, kernel, groups, bool(options["bias"]))


def _block(options: Mapping[str, Any]) -> BlockPlan:
    projection = options["projection"]
    convolutions = tuple(_convolution(each) for each in options["convolutions"])
    if not convolutions or int(options["stride"]) not in (1, 2):
        raise ValueError("no such block")
    return BlockPlan(
        convolutions=convolutions,
        stride=int(options["stride"]),
        projection=None if projection is None else _convolution(projection),
        projection_norm=bool(options["projection_norm"]),
        removed=tuple(int(place) for place in options["removed"]),
    )


def choices_of(arch: str) -> frozenset[str] | None:
    """The choices in a name such as `residual-mean-pool`; None where it names no such network."""
    first, *chosen = arch.split("-")
    if first != RESIDUAL or chosen != [choice for choice in CHOICES if choice in chosen]:
        return None
    return frozenset(chosen)


def name_of(choices: frozenset[str]) -> str:
    return "-".join((RESIDUAL, *(choice for choice in CHOICES if choice in choices)))


class Shortcut(nn.Module):
    """Around a block that changes the shape: a projection, or padding with zeros."""

    def __init__(self, width_in: int, plan: BlockPlan, choices: frozenset[str]):
        super().__init__()
        self.stride, self.mean = plan.stride, "mean" in choices
        zeros = plan.width - width_in
        self.zeros = (0, zeros) if "end" in choices else (zeros // 2, zeros - zeros // 2)
        self.projection: nn.Module | None = None
        self.norm: nn.Module | None = None
        if plan.projection is not None:
            stride = 1 if self.mean else plan.stride
            self.projection = _conv(width_in, plan.projection, stride)
        if plan.projection_norm:
            self.norm = nn.BatchNorm2d(plan.width)

    def forward(self, x: Tensor) -> Tensor:
        if self.mean and self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        if self.projection is not None:
            x = self.projection(x)
            return x if self.norm is None else self.norm(x)
        if not self.mean and self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, *self.zeros))


class ResidualBlock(nn.Module):
    """ReLU(convolutions + shortcut); or without the ReLU, if batch norm and ReLU come first."""

    def __init__(self, width_in: int, plan: BlockPlan, whole: Plan, choices: frozenset[str]):
        super().__init__()
        self.preactivated, self.raw = whole.preactivated, "raw" in choices
        self.plain = "plain" in choices
        self.removed = plan.removed if "removed" in choices else ()
        convs, norms, width = [], [], width_in
        for place, convolution in enumerate(plan.convolutions):
            strided = place == _strided(plan, choices)
            convs.append(_conv(width, convolution, plan.stride if strided else 1))
            norms.append(_norm(width if whole.preactivated else convolution.width, whole.norms))
            width = convolution.width
        self.convs, self.norms = nn.ModuleList(convs), nn.ModuleList(norms)
        changes = plan.stride > 1 or width != width_in or plan.projection is not None
        self.shortcut = Shortcut(width_in, plan, choices) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        return self._before(x) if self.preactivated else self._after(x)

    def _after(self, x: Tensor) -> Tensor:
        """With batch norm after each convolution (He et al., 2016)."""
        y, last = x, len(self.convs) - 1
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if place not in self.removed:
                y = norm(conv(y))
                y = F.relu(y) if place < last else y
        if self.plain:
            return F.relu(y)
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    def _before(self, x: Tensor) -> Tensor:
        """With batch norm before each convolution (He et al., 2016, second paper)."""
        y = active = F.relu(self.norms[0](x))
        for place, conv in enumerate(self.convs):
            y = conv(y if place == 0 else F.relu(self.norms[place](y)))
        if self.shortcut is None:
            return y + x
        return y + self.shortcut(x if self.raw else active)


def _strided(plan: BlockPlan, choices: frozenset[str]) -> int:
    """Which convolution has the stride: of a bottleneck (1x1, 3x3, 1x1) the second."""
    bottleneck = plan.convolutions[0].kernel == 1 and len(plan.convolutions) > 1
    return 1 if bottleneck and "early" not in choices else 0


def _conv(width_in: int, plan: Convolution, stride: int) -> nn.Conv2d:
    return nn.Conv2d(
        width_in,
        plan.width,
        plan.kernel,
        stride,
        padding=plan.kernel // 2,
        groups=plan.groups,
        bias=plan.bias,
    )


def _norm(width: int, exists: bool) -> nn.Module:
    return nn.BatchNorm2d(width) if exists else nn.Identity()


class ResidualNetwork(nn.Module):
    """(N, C, H, W) -> (N, K), for images of about 32x32 pixels."""

    def __init__(self, plan: Plan, *, choices: frozenset[str], num_classes: int, channels: int):
        super().__init__()
        self.pool = "pool" in choices
        self.activated = not plan.preactivated or plan.stem_norm  # the first convolution's output
        self.stem = _conv(channels, plan.stem, 1)
        self.stem_norm = _norm(plan.stem.width, plan.stem_norm)
        blocks, width = [], plan.stem.width
        for block in plan.blocks:
            blocks.append(ResidualBlock(width, block, plan, choices))
            width = block.width
        self.blocks = nn.Sequential(*blocks)
        self.final_norm = nn.BatchNorm2d(width) if plan.final_norm else None
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(x))
        x = F.relu(x) if self.activated else x
        x = F.max_pool2d(x, 3, stride=2, padding=1) if self.pool else x
        x = self.blocks(x)
        x = x if self.final_norm is None else F.relu(self.final_norm(x))
        return self.fc(x.mean(dim=(2, 3)))


def build_residual(
    arch: str, *, num_classes: int, channels: int, options: Mapping[str, Any]
) -> ResidualNetwork:
    """The network of a name such as `residual-pool`, with the plan in `options`."""
    choices = choices_of(arch)
    if choices is None or not options:
        raise InputError(
            f"arch={arch!r} is what `aces import` finds in a file: name that file as checkpoint"
        )
    plan = Plan.from_options(options)
    return ResidualNetwork(plan, choices=choices, num_classes=num_classes, channels=channels)
