"""What a training method is given and what it returns, and what the methods share."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Batch(NamedTuple):
    """A batch of clean images, and how far training is."""

    image: Tensor  # (B, C, H, W) float32 in [0, 1], channels last
    label: Tensor  # (B,) int64
    epoch: int = 0  # from 0
    decays: int = 0  # milestones of the schedule that have passed
    label_smoothing: float = 0.0  # train.label_smoothing: the share given to all classes alike

    def shares(self, count: int) -> list["Batch"]:
        """The batch in `count` parts of about the same size, fewer if it has fewer images."""
        images, labels = self.image.chunk(count), self.label.chunk(count)
        return [
            self._replace(image=image, label=label)
            for image, label in zip(images, labels, strict=True)
        ]


class Loss(NamedTuple):
    """The loss to minimise, and the scores whose argmax is the prediction of each image.

    The scores are used for the training accuracy only.
    """

    value: Tensor  # ()
    scores: Tensor  # (B, K)


def draw_noise(image: Tensor, *, sigma: float, draws: int, generator: torch.Generator) -> Tensor:
    """Gaussian noise N(0, sigma^2) for `draws` copies of each image: (draws, B, C, H, W), channels
    last.
    """
    count, channels, height, width = image.shape
    noise = torch.randn(
        (draws, count, height, width, channels), generator=generator, device=image.device
    )
    return noise.mul_(sigma).permute(0, 1, 4, 2, 3)


def noisy_copies(image: Tensor, noise: Tensor) -> Tensor:
    """(B, C, H, W) and (m, B, C, H, W) -> (m B, C, H, W): copy i of image j is row i B + j. Never
    clipped.
    """
    return (image + noise).flatten(0, 1)


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """The mean cross-entropy of m copies of a batch, ordered as `noisy_copies` orders them.

    logits: (m B, K) -> (). The labels are smoothed by `batch.label_smoothing`.
    """
    label = batch.label.repeat(len(logits) // len(batch.label))
    return F.cross_entropy(logits, label, label_smoothing=batch.label_smoothing)
