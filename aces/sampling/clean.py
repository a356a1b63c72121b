"""A network on the images themselves, without noise: how the core network answers."""

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError, one_line
from aces.sampling.images import Images, as_floats

BATCH = 64


@torch.inference_mode()
def classes_of(
    network: nn.Module, images: np.ndarray | Tensor | Images, *, num_classes: int
) -> np.ndarray:
    """(N,) the network's classes, computed on the device it is on; images: as of
    `aces.sampling.sample`.
    """
    images, network = Images.of(images), network.eval()
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    logits = torch.cat(
        [_logits(network, as_floats(part).to(device)) for part in images.pixels.split(BATCH)]
    )
    if logits.shape != (len(images), num_classes):
        raise InputError(
            f"the core network gives shape {tuple(logits.shape)} for {len(images)} images: "
            "expected "
            f"({len(images)}, {num_classes})"
        )
    if not logits.isfinite().all():
        raise InputError(
            "the core network gives NaN or infinite logits: is its normalisation inside, and are "
            "its "
            "weights loaded?"
        )
    return logits.argmax(dim=1).numpy()


def _logits(network: nn.Module, x: Tensor) -> Tensor:
    try:
        logits = network(x)
    except Exception as error:
        raise InputError(
            f"the core network cannot run images of shape {tuple(x.shape[1:])}: {one_line(error)}"
        ) from error
    if not isinstance(logits, Tensor):
        raise InputError(
            f"the core network gives a {type(logits).__name__}: expected logits, a tensor (N, "
            "classes)"
        )
    return logits.float().cpu()
