"""LaNet (Wang et al., "Sample-Efficient Neural Architecture Search by Learning Action Space",
2019): the paper's core network for CIFAR-10, 99.0 % accurate. Here to run the published weights,
whose parameter names it has.

Notation: a cell has states 0 and 1, the outputs of the two cells before it, and a node for each
further state; a node adds the results of two operations, each on an earlier state; the cell's
output concatenates the states that no node uses. C doubles at the reduction cells, whose operations
on states 0 and 1 have stride 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 128
CELLS = 24
REDUCTIONS = (8, 16)
# The seven nodes, states 2 to 8: (operation, state) twice. Normal and reduction cells share them.
NODES = (
    (("skip", 0), ("skip", 1)),
    (("sep3", 1), ("skip", 1)),
    (("max3", 2), ("skip", 1)),
    (("sep3", 1), ("skip", 0)),
    (("skip", 3), ("sep5", 4)),
    (("skip", 3), ("max3", 0)),
    (("skip", 3), ("sep3", 1)),
)
UNUSED = (5, 6, 7, 8)  # states that no node uses
MEAN, STD = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)


class StandardizedConv2d(nn.Conv2d):
    """A 1x1 convolution without bias whose filters have mean 0 and standard deviation 1 (Qiao et
    al., 2019).
    """

    def __init__(self, width_in: int, width_out: int):
        super().__init__(width_in, width_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        centred = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        return F.conv2d(x, centred / (centred.std(dim=(1, 2, 3), keepdim=True) + 1e-5))


class Project(nn.Module):
    """ReLU, 1x1 convolution, batch norm: brings an input of the cell to its width."""

    def __init__(self, width_in: int, width_out: int):
        super().__init__()
        self.op = nn.Sequential(
            nn.ReLU(), StandardizedConv2d(width_in, width_out), nn.BatchNorm2d(width_out)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)


class Halve(nn.Module):
    """Half the height and width: two 1x1 convolutions of stride 2, one of them a pixel further,
    side by side.
    """

    def __init__(self, width_in: int, width_out: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(width_in, width_out // 2, 1, stride=2, bias=False)
        self.conv_2 = nn.Conv2d(width_in, width_out // 2, 1, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(width_out)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        return self.bn(torch.cat([self.conv_1(x), self.conv_2(x[:, :, 1:, 1:])], dim=1))


class Separable(nn.Module):
    """Two depthwise-separable convolutions, the stride in the first."""

    def __init__(self, width: int, size: int, stride: int):
        super().__init__()
        self.op = nn.Sequential(*self._half(width, size, stride), *self._half(width, size, 1))

    @staticmethod
    def _half(width: int, size: int, stride: int) -> list[nn.Module]:
        return [
            nn.ReLU(),
            nn.Conv2d(width, width, size, stride, padding=size // 2, groups=width, bias=False),
            StandardizedConv2d(width, width),
            nn.BatchNorm2d(width),
        ]

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)


def _operation(name: str, width: int, stride: int) -> nn.Module:
    if name == "skip":
        return nn.Identity() if stride == 1 else Halve(width, width)
    if name == "max3":
        return nn.MaxPool2d(3, stride, padding=1)
    return Separable(width, {"sep3": 3, "sep5": 5}[name], stride)


class Cell(nn.Module):
    def __init__(
        self,
        width_before: int,
        width_last: int,
        width: int,
        *,
        reduction: bool,
        after_reduction: bool,
    ):
        super().__init__()
        # After a reduction the cell before the last is still twice as large.
        self.preprocess0 = (Halve if after_reduction else Project)(width_before, width)
        self.preprocess1 = Project(width_last, width)
        self._ops = nn.ModuleList(
            _operation(name, width, stride=2 if reduction and state < 2 else 1)
            for node in NODES
            for name, state in node
        )

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        states = [self.preprocess0(before), self.preprocess1(last)]
        for number, ((_, left), (_, right)) in enumerate(NODES):
            states.append(
                self._ops[2 * number](states[left]) + self._ops[2 * number + 1](states[right])
            )
        return torch.cat([states[state] for state in UNUSED], dim=1)


class AuxiliaryHead(nn.Module):
    """The second classifier of the published training. Part of the published weights; not used
    here.
    """

    def __init__(self, width: int, num_classes: int):
        super().__init__()
        self.features = nn.Sequential(
            nn.ReLU(),
            nn.AvgPool2d(5, stride=3, count_include_pad=False),
            nn.Conv2d(width, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, 2, bias=False),
            nn.BatchNorm2d(768),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(768, num_classes)


class LaNet(nn.Module):
    """(N, C, 32, 32) -> (N, K)."""

    def __init__(self, *, num_classes: int, channels: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 3 * WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(3 * WIDTH)
        )
        self.cells = nn.ModuleList()
        before, last, width = 3 * WIDTH, 3 * WIDTH, WIDTH
        for number in range(CELLS):
            width *= 2 if number in REDUCTIONS else 1
            self.cells.append(
                Cell(
                    before,
                    last,
                    width,
                    reduction=number in REDUCTIONS,
                    after_reduction=number - 1 in REDUCTIONS,
                )
            )
            before, last = last, len(UNUSED) * width
        self.auxiliary_head = AuxiliaryHead(last, num_classes).requires_grad_(False)
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.classifier(last.mean(dim=(2, 3)))


def lanet(num_classes: int, channels: int) -> LaNet:
    return LaNet(num_classes=num_classes, channels=channels)
