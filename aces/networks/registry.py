"""Networks by name: our own, any torchvision classifier, any timm model as `timm/<name>`."""

import difflib
import importlib
from collections.abc import Callable, Sequence

import torch
from torch import nn

from aces.errors import InputError, one_line
from aces.networks.cifar_resnet import cifar_resnet20, cifar_resnet110
from aces.networks.lanet import lanet
from aces.networks.normalization import Classifier, Normalize
from aces.networks.small import small, small_core, tiny

# name -> (num_classes, channels) -> network on normalised images
ARCHITECTURES: dict[str, Callable[[int, int], nn.Module]] = {
    "small": small,
    "small-core": small_core,
    "tiny": tiny,
    "cifar_resnet20": cifar_resnet20,
    "cifar_resnet110": cifar_resnet110,
    "lanet": lanet,
}


def build(
    arch: str, *, num_classes: int, mean: Sequence[float], std: Sequence[float]
) -> Classifier:
    """A fresh network `arch`: [0, 1] pixels (N, C, H, W), C = len(mean) -> logits (N, num_classes)."""
    classifier = Classifier(
        Normalize(mean, std), _network(arch, num_classes=num_classes, channels=len(mean))
    )
    classifier.recipe = {
        "arch": arch,
        "num_classes": num_classes,
        "mean": tuple(mean),
        "std": tuple(std),
    }
    return classifier


@torch.inference_mode()
def check_arch(arch: str, *, num_classes: int, shape: tuple[int, int, int]) -> None:
    """InputError unless `build` knows the name and the network takes images of `shape` (C, H, W);
    nothing is computed.
    """
    with torch.device("meta"):
        network = _network(arch, num_classes=num_classes, channels=shape[0]).eval()
        try:
            network(torch.zeros((2, *shape)))
        except NotImplementedError:
            return  # an operation that cannot be tried without computing it
        except Exception as error:
            raise InputError(
                f"arch={arch!r} does not take images of shape {shape}: {one_line(error)}; choose another "
                "network"
            ) from None


def _network(arch: str, *, num_classes: int, channels: int) -> nn.Module:
    if arch in ARCHITECTURES:
        return ARCHITECTURES[arch](num_classes, channels)
    if arch.startswith("timm/"):
        return _timm(arch, num_classes=num_classes, channels=channels)
    return _torchvision(arch, num_classes=num_classes, channels=channels)


def _timm(arch: str, *, num_classes: int, channels: int) -> nn.Module:
    try:
        timm = importlib.import_module("timm")
    except ModuleNotFoundError:
        raise InputError(
            f"arch={arch!r} needs timm, which is not installed: `pip install timm`"
        ) from None
    name = arch.removeprefix("timm/")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise InputError(
            f"arch={arch!r} is not a model of timm {timm.__version__}"
            + (f": did you mean timm/{', timm/'.join(close)}?" if close else "")
        )
    return timm.create_model(name, num_classes=num_classes, in_chans=channels)


def _torchvision(arch: str, *, num_classes: int, channels: int) -> nn.Module:
    from aces.vision import torchvision

    names = torchvision.models.list_models(module=torchvision.models)  # classifiers only
    if arch not in names:
        close = difflib.get_close_matches(arch, [*ARCHITECTURES, *names], n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise InputError(
            f"arch={arch!r} is unknown: {hint}known are {', '.join(ARCHITECTURES)}, the classifiers of "
            "torchvision, and timm/<name>"
        )
    if channels != 3:
        raise InputError(
            f"arch={arch!r} is a torchvision network for 3 channels; the images have {channels}: "
            f"take one of {', '.join(ARCHITECTURES)}"
        )
    # These two would give a tuple in training mode; their second classifiers are not used. They
    # turn the usual normalisation into the one they were published with, (x - 1/2) / (1/2).
    options = (
        {"aux_logits": False, "init_weights": True, "transform_input": True}
        if arch in ("inception_v3", "googlenet")
        else {}
    )
    return torchvision.models.get_model(arch, weights=None, num_classes=num_classes, **options)
