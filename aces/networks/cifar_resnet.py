"""ResNets for 32x32 images (He et al., 2016, section 4.2), with the parameter names of the
published networks.

Three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels; where the shape changes, the
shortcut is a 1x1 convolution with batch norm. Cohen et al., SmoothAdv, MACER, Consistency and ACES
all published this network.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, width_in: int, width_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.downsample = None
        if stride != 1 or width_in != width_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


def _stage(width_in: int, width_out: int, *, blocks: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(width_in, width_out, stride),
        *(BasicBlock(width_out, width_out, 1) for _ in range(blocks - 1)),
    )


class CifarResNet(nn.Module):
    """(N, C, 32, 32) -> (N, K)."""

    def __init__(self, depth: int, *, num_classes: int, channels: int):
        super().__init__()
        assert (depth - 2) % 6 == 0, depth
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks=blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks=blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks=blocks, stride=2)
        self.fc = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


def cifar_resnet20(num_classes: int, channels: int) -> CifarResNet:
    return CifarResNet(20, num_classes=num_classes, channels=channels)


def cifar_resnet110(num_classes: int, channels: int) -> CifarResNet:
    return CifarResNet(110, num_classes=num_classes, channels=channels)
