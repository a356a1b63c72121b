"""Normalisation as part of the network, so that noise is added to [0, 1] pixels and sigma is in
their units.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """(x - mean) / std per channel; x: (N, C, H, W) in [0, 1]. A std of ones only centres."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        assert len(mean) == len(std) and min(std) > 0, (mean, std)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they come back from a file: lists instead of tuples, names in order."""
    return json.loads(json.dumps(options, sort_keys=True))


class Classifier(nn.Module):
    """A network with its normalisation: [0, 1] pixels (N, C, H, W) -> logits (N, K)."""

    recipe: dict[str, Any] | None = (
        None  # the arguments with which `build` makes such a network again
    )

    def __init__(self, normalize: Normalize, network: nn.Module):
        super().__init__()
        self.normalize = normalize
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self.normalize(x))
