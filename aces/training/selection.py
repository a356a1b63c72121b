"""Labels for the selection network: which training images the certification network can be trusted
with.

The selection network is trained like the certification network, but with two classes: 0, the core
network answers, and 1, the certification network does. It selects an image where softmax[0] <=
theta (paper, "Training a Selection Model").
"""

import dataclasses
from pathlib import Path

import numpy as np
from torch import nn

from aces.console import progress
from aces.data import TrainSet
from aces.data.images import read_images
from aces.rule.counts import Round
from aces.sampling import sample

SLICE = 5000  # images sampled at a time: bounds the memory


def label_training_set(
    model: nn.Module,
    data: TrainSet,
    *,
    sigma: float,
    draws: int,
    eta: float,
    num_classes: int,
    seed: int,
    device: str = "auto",
    workers: int | None = None,
    engine: str = "local",
    scratch: Path | None = None,
) -> TrainSet:
    """The same images, labelled 1 where a share of at least eta of the image's noisy copies is
    classified correctly.
    """
    labels = []
    with progress("labels of the selection network", len(data.label) * draws, "draws") as bar:
        for start in range(0, len(data.label), SLICE):
            rows = np.arange(start, min(start + SLICE, len(data.label)))
            counts = sample(
                model,
                _images(data, rows),
                sigma=sigma,
                num_classes=num_classes,
                n0=1,
                n=draws,
                n_predict=0,
                seed=seed,
                index=rows,
                label=data.label[rows],
                device=device,
                workers=workers,
                engine=engine,
                scratch=scratch,
                progress=False,
            )
            correct = counts.classes[Round.BOUND, np.arange(len(rows)), data.label[rows]]
            labels.append((correct / draws >= eta).astype(np.int64))
            bar.advance(len(rows) * draws, note=f"{np.concatenate(labels).mean():.1%} to certify")
    return dataclasses.replace(data, label=np.concatenate(labels))


def _images(data: TrainSet, rows: np.ndarray) -> np.ndarray:
    """(B, H, W, C) uint8, without augmentation."""
    if isinstance(data.image, np.ndarray):
        return data.image[rows]
    return read_images([data.image[row] for row in rows], shape=data.shape, resize=data.resize)
