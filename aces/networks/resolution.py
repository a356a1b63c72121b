"""A network at a resolution of its own.

ImageNet's EfficientNet-B7 wants 600 pixels, the certification network 224. The certificate speaks
of the array that the certification network sees. The core network's answers have radius 0, so the
core may see a larger one: the file read at its own size, or this array enlarged.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from aces.errors import InputError
from aces.networks.normalization import Classifier, Normalize, plain

RESIZED = "resized"


class AtSize(nn.Module):
    """Images of any size -> `size` x `size` -> logits. Images of that size pass unchanged."""

    def __init__(self, network: nn.Module, size: int):
        super().__init__()
        self.network, self.size = network, size

    def forward(self, x: Tensor) -> Tensor:
        size = (self.size, self.size)
        if tuple(x.shape[-2:]) != size:
            x = F.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
        return self.network(x)


def own_size(network: nn.Module) -> int | None:
    """The side of the images that a network wants, if it is behind a change of size."""
    inner = getattr(network, "network", None)
    return inner.size if isinstance(inner, AtSize) else None


def at_size(network: nn.Module, size: int) -> Classifier:
    """The network behind a change of size; `save_model(path, it, **it.recipe)` saves it if
    `network` was built by name.
    """
    if not 1 <= size <= 4096:
        raise InputError(f"size={size}: expected a side of 1 to 4096 pixels")
    module = Classifier(Normalize((0.0,), (1.0,)), AtSize(network, size))
    recipe = getattr(network, "recipe", None)
    if recipe is not None:
        module.recipe = {
            "arch": RESIZED,
            "num_classes": recipe["num_classes"],
            "mean": (0.0,),
            "std": (1.0,),
            "options": plain({"size": size, "network": recipe}),
        }
    return module.eval()
