"""Labels for the selection network: which training images the certification network can be trusted
with.

The selection network is trained like the certification network, but with two classes: 0, the core
network answers, and 1, the certification network does. It selects an image where softmax[0] <=
theta (paper, "Training a Selection Model").
"""

import dataclasses

import numpy as np
from torch import nn

from aces.console import progress
from aces.data import TrainSet
from aces.rule.counts import Round
from aces.runtime import Runtime
from aces.sampling import DrawPlan, sample
from aces.training.sources import training_images

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
    runtime: Runtime = Runtime(),
) -> TrainSet:
    """The same images, labelled 1 where a share of at least eta of the image's noisy copies is
    classified correctly.
    """
    labels: list[np.ndarray] = []
    plan = DrawPlan(sigma=sigma, n0=1, n=draws, seed=seed)
    with progress("labels of the selection network", len(data.label) * draws, "draws") as bar:
        for start in range(0, len(data.label), SLICE):
            rows = np.arange(start, min(start + SLICE, len(data.label)))
            counts = sample(
                model,
                training_images(data, rows),
                plan,
                num_classes=num_classes,
                runtime=dataclasses.replace(runtime, progress=False),
                index=rows,
                label=data.label[rows],
            )
            correct = counts.classes[Round.BOUND, np.arange(len(rows)), data.label[rows]]
            labels.append((correct / draws >= eta).astype(np.int64))
            bar.advance(len(rows) * draws, note=f"{np.concatenate(labels).mean():.1%} to certify")
    return dataclasses.replace(data, label=np.concatenate(labels))
