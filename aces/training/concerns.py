"""What is suspicious about a training: settings that cannot work, networks that learned nothing.

None of this is an error. The stages show each concern as a warning, and keep it for the report.
"""

import numpy as np
import torch
from torch import nn

from aces.data import TrainSet, to_tensor
from aces.params import Train
from aces.runtime import Runtime
from aces.training import distributed
from aces.training.method import Method
from aces.training.sources import training_images

FEW_STEPS = 100  # below this a network has hardly begun to learn
LOOKED_AT = 1000  # training images whose predictions are looked at
BATCH = 250
MOST_ONE_CLASS = 0.9  # a larger share of predictions of one class is suspicious


def settings_concerns(settings: Train, method: Method, *, images: int) -> list[str]:
    """What is suspicious before the training starts. images: how many there are."""
    found = []
    batch = max(1, settings.batch // method.split)
    if batch > images:
        found.append(
            f"train.batch={settings.batch} is larger than the {images:,} training images: each "
            "epoch is one step; choose a smaller batch"
        )
    steps = settings.epochs * (images // min(batch, images))
    if steps < FEW_STEPS:
        found.append(
            f"the training has {steps} steps in all, fewer than {FEW_STEPS}: raise "
            f"train.epochs={settings.epochs} or lower train.batch={settings.batch}"
        )
    return found


def network_concerns(
    network: nn.Module,
    data: TrainSet,
    *,
    sigma: float,
    num_classes: int,
    seed: int,
    runtime: Runtime = Runtime(),
) -> list[str]:
    """What is suspicious about a trained network, from its predictions on some training images
    with noise.
    """
    rows = np.linspace(0, len(data.label) - 1, min(len(data.label), LOOKED_AT)).astype(np.int64)
    rows = np.unique(rows)
    predicted = _predict(network, data, rows, sigma=sigma, seed=seed, runtime=runtime)
    return prediction_concerns(predicted, data.label[rows], num_classes=num_classes)


def prediction_concerns(predicted: np.ndarray, label: np.ndarray, *, num_classes: int) -> list[str]:
    """What is suspicious about predictions (N,) of images with these labels (N,)."""
    found, count = [], len(label)
    accuracy = float((predicted == label).mean())
    frequent = np.bincount(label, minlength=num_classes).max() / count
    # Three standard deviations above what the most frequent label alone would reach.
    chance = frequent + 3 * np.sqrt(frequent * (1 - frequent) / count)
    if accuracy <= chance:
        found.append(
            f"{accuracy:.0%} of {count:,} training images are classified correctly, and always "
            f"answering the most frequent of {num_classes} classes gives {frequent:.0%}: the "
            "network learned next to nothing; train longer, or check labels and learning rate"
        )
    answers = np.bincount(predicted, minlength=num_classes)
    most = answers.max() / count
    usual = float((label == answers.argmax()).mean())
    if most > MOST_ONE_CLASS and most > 1.2 * usual:
        found.append(
            f"{most:.0%} of {count:,} training images are given class {answers.argmax()}, which "
            f"{usual:.0%} of them have: the network nearly always gives the same answer"
        )
    return found


@torch.inference_mode()
def _predict(
    network: nn.Module,
    data: TrainSet,
    rows: np.ndarray,
    *,
    sigma: float,
    seed: int,
    runtime: Runtime,
) -> np.ndarray:
    device = distributed.choose_device(runtime.device)
    generator = torch.Generator().manual_seed(seed)
    network.to(device).eval()
    found = []
    for some in np.array_split(rows, max(1, len(rows) // BATCH)):
        image = to_tensor(training_images(data, some))
        image += sigma * torch.randn(image.shape, generator=generator)
        found.append(network(image.to(device)).argmax(1).cpu().numpy())
    network.cpu()
    return np.concatenate(found)
