"""A network on the images themselves, without noise: how the core network answers."""

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError
from aces.sampling.count import as_pixels
from aces.sampling.inputs import as_images

BATCH = 64


@torch.inference_mode()
def classes_of(network: nn.Module, images: np.ndarray | Tensor, *, num_classes: int) -> np.ndarray:
    """(N,) the network's classes, computed on the device it is on; images: as of `aces.sampling.sample`."""
    images, network = as_images(images), network.eval()
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    logits = torch.cat([network(as_pixels(part).to(device)).float().cpu() for part in images.split(BATCH)])
    if logits.shape != (len(images), num_classes):
        raise InputError(f"the core network gives shape {tuple(logits.shape)} for {len(images)} images: expected "
                         f"({len(images)}, {num_classes})")
    if not logits.isfinite().all():
        raise InputError("the core network gives NaN or infinite logits: is its normalisation inside, and are its "
                         "weights loaded?")
    return logits.argmax(dim=1).numpy()
