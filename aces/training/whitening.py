"""A first convolution that starts with whitening filters.

The pixels of a small patch are nearly equal to one another, so that random filters all see much the
same thing: the mean colour of the patch. The filters that decorrelate the patches of the training
images are the eigenvectors of their covariance. A network that starts with them needs fewer steps.
The filters are trained like all others afterwards.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGES = 512  # from which the covariance is estimated


@torch.no_grad()
def whiten_first_convolution(network: nn.Module, image: Tensor) -> None:
    """Replace the filters of the first convolution by whitening ones.

    image: (N, C, H, W) float32, what the network is given in training. The filters are the
    eigenvectors with the largest eigenvalues, each followed by its negative, because a ReLU lets
    only one of the two signs through. Filters beyond these stay as they are. The norm of the layer
    does not change. A network without a convolution, or with a grouped first one, stays as it is.
    """
    layer = next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)
    if layer is None or layer.groups != 1:
        return
    patches = _patches(network, layer, image)
    _, vectors = torch.linalg.eigh(patches.T @ patches)
    filters = vectors.T.flip(0)  # the largest eigenvalue first
    pairs = torch.stack((filters, -filters), dim=1).flatten(0, 1)[: layer.out_channels]
    norm, length = layer.weight.norm(), layer.weight.flatten(1).norm(dim=1).mean()
    layer.weight[: len(pairs)] = (pairs.to(layer.weight) * length).unflatten(
        1, layer.weight.shape[1:]
    )
    layer.weight.mul_(norm / layer.weight.norm())


class _Seen(Exception):
    """Ends the forward pass once the first convolution has its input."""


def _patches(network: nn.Module, layer: nn.Conv2d, image: Tensor) -> Tensor:
    """The patches (P, C k k) that the first convolution sees, float64, without their mean."""
    seen: list[Tensor] = []

    def keep_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0])
        raise _Seen

    hook = layer.register_forward_pre_hook(keep_input)
    try:
        network(image)
    except _Seen:
        pass
    finally:
        hook.remove()
    size = (layer.kernel_size[0], layer.kernel_size[1])
    patches = F.unfold(seen[0].double(), size, stride=size).transpose(1, 2).flatten(0, 1)
    return patches - patches.mean(0)
