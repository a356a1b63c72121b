"""Residual networks, written once more from the papers and with the names of the projects, and
independently of `aces.networks`: what an imported file must compute.
"""

import torch
import torch.nn.functional as F
from torch import nn


def conv(width_in, width_out, kernel=3, stride=1, **options):
    options = {"bias": False} | options
    return nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, **options)


class Basic(nn.Module):
    """Two convolutions, batch norm after each (kuangliu/pytorch-cifar, resnet.py)."""

    expansion = 1

    def __init__(self, width_in, width, stride, shortcut, inner=None):
        super().__init__()
        inner = inner or width
        self.conv1, self.bn1 = conv(width_in, inner, stride=stride), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = conv(inner, width), nn.BatchNorm2d(width)
        self.shortcut = shortcut(width_in, width, stride)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 (kuangliu/pytorch-cifar, resnet.py)."""

    expansion = 4

    def __init__(self, width_in, width, stride, shortcut, early=False):
        super().__init__()
        first, second = (stride, 1) if early else (1, stride)
        self.conv1, self.bn1 = conv(width_in, width, 1, first), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, second), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.shortcut = shortcut(width_in, 4 * width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + self.shortcut(x))


class Before(nn.Module):
    """Batch norm before two convolutions (kuangliu's preact_resnet.py; raw: wide-resnet.pytorch)."""

    expansion = 1

    def __init__(self, width_in, width, stride, shortcut, raw=False):
        super().__init__()
        self.raw, self.changes = raw, stride > 1 or width_in != width
        self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, stride=stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width)
        if self.changes:
            self.shortcut = nn.Sequential(conv(width_in, width, 1, stride))

    def forward(self, x):
        active = F.relu(self.bn1(x))
        around = self.shortcut(x if self.raw else active) if self.changes else x
        return self.conv2(F.relu(self.bn2(self.conv1(active)))) + around


class BeforeMean(Before):
    """IntelLabs/distiller, preresnet_cifar.py: the names of batch norm do not sort as they run."""

    def __init__(self, width_in, width, stride, shortcut):
        nn.Module.__init__(self)
        self.pre_bn, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, stride=stride)
        self.bn, self.conv2 = nn.BatchNorm2d(width), conv(width, width)
        self.downsample = padded(end=False, mean=True)(width_in, width, stride)

    def forward(self, x):
        y = self.conv1(F.relu(self.pre_bn(x)))
        return self.conv2(F.relu(self.bn(y))) + self.downsample(x)


class BeforeBottleneck(nn.Module):
    """Batch norm before 1x1, 3x3, 1x1 (kuangliu/pytorch-cifar, preact_resnet.py)."""

    expansion = 4

    def __init__(self, width_in, width, stride, shortcut):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width, 3, stride)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), conv(width, 4 * width, 1)
        if stride > 1 or width_in != 4 * width:
            self.shortcut = nn.Sequential(conv(width_in, 4 * width, 1, stride))

    def forward(self, x):
        active = F.relu(self.bn1(x))
        y = self.conv2(F.relu(self.bn2(self.conv1(active))))
        around = self.shortcut(active) if hasattr(self, "shortcut") else x
        return self.conv3(F.relu(self.bn3(y))) + around


def projected(width_in, width, stride):
    if stride == 1 and width_in == width:
        return nn.Sequential()
    return nn.Sequential(conv(width_in, width, 1, stride), nn.BatchNorm2d(width))


def pooled(width_in, width, stride):
    """As in ResNet-D: a mean before the projection."""
    if stride == 1 and width_in == width:
        return nn.Sequential()
    return nn.Sequential(nn.AvgPool2d(stride), conv(width_in, width, 1), nn.BatchNorm2d(width))


class Padded(nn.Module):
    def __init__(self, zeros, stride, mean):
        super().__init__()
        self.zeros, self.stride, self.mean = zeros, stride, mean

    def forward(self, x):
        step = self.stride
        x = F.avg_pool2d(x, step) if self.mean else x[:, :, ::step, ::step]
        return F.pad(x, (0, 0, 0, 0, *self.zeros))


def padded(*, end, mean):
    def shortcut(width_in, width, stride):
        zeros = width - width_in
        if zeros == 0:
            return nn.Sequential()
        return Padded((0, zeros) if end else (zeros // 2, zeros // 2), stride, mean)

    return shortcut


class ResNet(nn.Module):
    def __init__(
        self, block, blocks, width, shortcut=projected, *, last="linear", pool=False, final=False
    ):
        super().__init__()
        self.before = issubclass(block, (Before, BeforeBottleneck))
        self.pool, self.last, self.stages = pool, last, len(blocks)
        self.conv1 = conv(3, width)
        if not self.before:
            self.bn1 = nn.BatchNorm2d(width)
        width_in = width
        for stage, count in enumerate(blocks):
            parts = []
            for place in range(count):
                stride = 2 if stage and not place else 1
                parts.append(block(width_in, width * 2**stage, stride, shortcut))
                width_in = width * 2**stage * parts[0].expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*parts))
        self.final_bn = nn.BatchNorm2d(width_in) if final else None
        self.add_module(last, nn.Linear(width_in, 10))

    def forward(self, x):
        x = self.conv1(x)
        x = x if self.before else F.relu(self.bn1(x))
        x = F.max_pool2d(x, 3, 2, 1) if self.pool else x
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        x = x if self.final_bn is None else F.relu(self.final_bn(x))
        return self.get_submodule(self.last)(x.mean((2, 3)))


class Raw(Before):
    def __init__(self, *arguments):
        super().__init__(*arguments, raw=True)


class Early(Bottleneck):
    def __init__(self, *arguments):
        super().__init__(*arguments, early=True)


class Plain(Basic):
    """No shortcut (IntelLabs/distiller, plain_cifar.py)."""

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Pruned(Basic):
    """A block that lost some of its inner channels."""

    def __init__(self, width_in, width, stride, shortcut):
        super().__init__(width_in, width, stride, shortcut, inner=width - 3)


class Wide(nn.Module):
    """xternalz/WideResNet-pytorch: `block1.layer.0.convShortcut`, batch norm at the end."""

    class Block(nn.Module):
        def __init__(self, width_in, width, stride):
            super().__init__()
            self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv(width_in, width, stride=stride)
            self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width)
            same = width_in == width
            self.convShortcut = None if same else conv(width_in, width, 1, stride)

        def forward(self, x):
            active = F.relu(self.bn1(x))
            y = self.conv2(F.relu(self.bn2(self.conv1(active))))
            return y + (x if self.convShortcut is None else self.convShortcut(active))

    class Stage(nn.Module):
        def __init__(self, count, width_in, width, stride):
            super().__init__()
            first = Wide.Block(width_in, width, stride)
            rest = (Wide.Block(width, width, 1) for _ in range(count - 1))
            self.layer = nn.Sequential(first, *rest)

    def __init__(self, depth, factor, *, unused=False):
        super().__init__()
        count, widths = (depth - 4) // 6, [16, 16 * factor, 32 * factor, 64 * factor]
        self.conv1 = conv(3, 16)
        for stage in range(3):
            part = Wide.Stage(count, widths[stage], widths[stage + 1], 1 if stage == 0 else 2)
            self.add_module(f"block{stage + 1}", part)
            if unused and stage == 0:
                self.sub_block1 = Wide.Stage(count, widths[0], widths[1], 1)
        self.bn1, self.fc = nn.BatchNorm2d(widths[3]), nn.Linear(widths[3], 10)

    def forward(self, x):
        x = self.conv1(x)
        for stage in range(3):
            x = self.get_submodule(f"block{stage + 1}").layer(x)
        return self.fc(F.relu(self.bn1(x)).mean((2, 3)))


class Weiaicunzai(nn.Module):
    """weiaicunzai/pytorch-cifar100: `conv2_x.0.residual_function.0`, `conv1.0`."""

    class Block(nn.Module):
        def __init__(self, width_in, width, stride):
            super().__init__()
            self.residual_function = nn.Sequential(
                conv(width_in, width, stride=stride),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                conv(width, width),
                nn.BatchNorm2d(width),
            )
            self.shortcut = projected(width_in, width, stride)

        def forward(self, x):
            return F.relu(self.residual_function(x) + self.shortcut(x))

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU())
        self.conv2_x = nn.Sequential(self.Block(6, 6, 1), self.Block(6, 6, 1), self.Block(6, 6, 1))
        self.conv3_x = nn.Sequential(self.Block(6, 10, 2), self.Block(10, 10, 1))
        self.fc = nn.Linear(10, 10)

    def forward(self, x):
        return self.fc(self.conv3_x(self.conv2_x(self.conv1(x))).mean((2, 3)))


def trained(network: nn.Module) -> nn.Module:
    """Random values everywhere, as if it were trained; answers differ between images."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
        elif tensor.ndim == 1:
            tensor.copy_(0.5 + 0.5 * torch.randn(tensor.shape, generator=generator))
        elif tensor.ndim == 4:
            spread = (2 / tensor[0].numel()) ** 0.5
            tensor.copy_(spread * torch.randn(tensor.shape, generator=generator))
    return network.eval()


# Networks whose structure follows from the names and shapes of their tensors.
NETWORKS = {
    "wide": lambda: Wide(16, 2),
    "wide, three blocks a stage": lambda: Wide(22, 1),
    "wide, with an unused block": lambda: Wide(10, 2, unused=True),
    "pre-activation": lambda: ResNet(Before, (2, 2, 2, 2), 8),
    "pre-activation bottleneck": lambda: ResNet(BeforeBottleneck, (2, 2, 2, 2), 4),
    "bottleneck": lambda: ResNet(Bottleneck, (3, 4, 6, 3), 4),
    "pruned": lambda: ResNet(Pruned, (3, 3, 3), 16),
    "odd width": lambda: ResNet(Basic, (2, 1, 3), 11, last="classifier"),
    "mean before a projection": lambda: ResNet(Basic, (2, 2, 2), 8, pooled),
    "weiaicunzai": Weiaicunzai,
}

# The arch of networks that the tensors alone do not tell from others.
VARIANTS = {
    "cifar_resnet20-a": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=False, mean=False)),
    "cifar_resnet20-a-end": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=True, mean=False)),
    "residual-mean": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=False, mean=True)),
    "residual-end-mean": lambda: ResNet(Basic, (3, 3, 3), 16, padded(end=True, mean=True)),
    "residual-plain": lambda: ResNet(Plain, (3, 3, 3), 16, padded(end=False, mean=False)),
    "cifar_resnet18-w8": lambda: ResNet(Basic, (2, 2, 2, 2), 8),
    "residual-pool": lambda: ResNet(Basic, (2, 2, 2, 2), 8, pool=True),
    "residual": lambda: ResNet(Before, (2, 2, 2), 8),
    "residual-raw": lambda: ResNet(Raw, (2, 2, 2), 8),
    "residual-mean-raw": lambda: ResNet(BeforeMean, (3, 3, 3), 8, final=True),
    "residual-early": lambda: ResNet(Early, (2, 2, 2), 8),
}
