"""Small networks for the tests of the sampler; importable, so that other processes can build them
too.
"""

import torch
from torch import nn

SHAPE = (3, 8, 8)
CLASSES = 4


def convolutional(*, outputs: int = CLASSES, seed: int = 0) -> nn.Module:
    """A network with batch norm whose statistics are not trivial, and whose answers under noise
    vary.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, outputs),
    )
    with torch.no_grad():
        network(torch.rand(64, *SHAPE) + 0.25 * torch.randn(64, *SHAPE))
        network[-1].weight *= 8
    return network.eval()


class Threshold(nn.Module):
    """Class 0 if the first pixel is above `t`, else class 1; with noise sigma on the pixel x: p_0 =
    Phi((x - t) / sigma).

    `sharpness` decides the entropy: low far from t.
    """

    def __init__(self, t: float = 0.5, *, sharpness: float = 10.0, classes: int = 2):
        super().__init__()
        self.t, self.sharpness, self.classes = t, sharpness, classes

    def forward(self, x):
        margin = self.sharpness * (x[:, 0, 0, 0] - self.t)
        others = torch.full((len(x), self.classes - 2), -100.0)
        return torch.cat([torch.stack([margin, -margin], dim=1), others], dim=1)


def images(number: int, *, seed: int = 0):
    return torch.randint(
        0, 256, (number, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
