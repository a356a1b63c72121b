"""A network on the images themselves, without noise: how the core network answers."""

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError, one_line
from aces.sampling.images import Images, as_floats

BATCH = 64
_SAME = 1e-3  # of the logits' scale: batches of other sizes differ by rounding


@torch.inference_mode()
def classes_of(
    network: nn.Module, images: np.ndarray | Tensor | Images, *, num_classes: int
) -> np.ndarray:
    """(N,) the network's classes, computed on the device it is on; images: as of
    `aces.sampling.sample`.
    """
    images, network = Images.of(images), network.eval()
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    parts = [as_floats(part).to(device) for part in images.pixels.split(BATCH)]
    logits = torch.cat([_logits(network, part) for part in parts])
    if logits.shape != (len(images), num_classes):
        raise InputError(
            f"the core network gives shape {tuple(logits.shape)} for {len(images)} images: "
            f"expected ({len(images)}, {num_classes})"
        )
    if not logits.isfinite().all():
        raise InputError(
            "the core network gives NaN or infinite logits: is its normalisation inside, and are "
            "its weights loaded?"
        )
    _check_alone(network, parts[0], logits)
    return logits.argmax(dim=1).numpy()


def _check_alone(network: nn.Module, x: Tensor, logits: Tensor) -> None:
    """InputError unless an image has the same logits on its own and at its second run."""
    scale = logits.abs().max().item()
    for place in {0, len(x) - 1}:
        alone = _logits(network, x[place : place + 1])[0]
        if not torch.allclose(alone, logits[place], rtol=0, atol=_SAME * (scale + 1e-3)):
            raise InputError(
                "the core network's answer for an image depends on the other images of its batch, "
                "or on chance: no answer of it can be sure; does a layer use batch statistics or "
                "dropout in eval mode?"
            )


def _logits(network: nn.Module, x: Tensor) -> Tensor:
    try:
        logits = network(x.clone())  # it may change its input, which is the caller's image
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
