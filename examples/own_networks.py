"""Certify a torchvision network, with a core network of your own beside it.

python examples/own_networks.py                  # random weights
python examples/own_networks.py IMAGENET1K_V1    # pretrained; downloads them
"""

import sys

import torch
from torch import nn

import aces
from aces.vision import torchvision


class Core(nn.Module):
    """Yours: pixels in [0, 1], (N, 3, H, W), to logits (N, 1000)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 1000),
        )

    def forward(self, x):
        return self.layers(x)


def certify(weights=None):
    """ResNet-18 with its normalisation inside, because noise is added to [0, 1] pixels."""
    normalize = torchvision.transforms.Normalize(
        mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    return nn.Sequential(normalize, torchvision.models.resnet18(weights=weights))


model = aces.ACES(
    core=Core(), certify=certify(*sys.argv[1:2]), sigma=0.25, theta=0.8, num_classes=1000
)
images = torch.rand(2, 3, 64, 64)
for certificate in model.certify(images, n0=20, n=200):
    print(certificate)
print(model.predict(images, n=200, adaptive=True))
