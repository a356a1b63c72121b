"""Networks of torchvision and timm by name, fresh or with the weights their libraries publish."""

import difflib
import functools
import importlib
from types import ModuleType
from typing import NamedTuple

from torch import nn

from aces.errors import InputError, one_line


@functools.cache
def torchvision_names() -> tuple[str, ...]:
    """The classifiers of torchvision."""
    from aces.vision import torchvision

    return tuple(torchvision.models.list_models(module=torchvision.models))


def is_torchvision(name: str) -> bool:
    return name in torchvision_names()


def torchvision_network(name: str, *, num_classes: int, channels: int) -> nn.Module:
    """A fresh classifier of torchvision, for normalised images."""
    from aces.vision import torchvision

    if channels != 3:
        raise InputError(
            f"arch={name!r} is a torchvision network for 3 channels; the images have {channels}: "
            "take a built-in network or one of timm, which take any number"
        )
    return torchvision.models.get_model(
        name, weights=None, num_classes=num_classes, **_single_output(name)
    )


def _single_output(name: str) -> dict[str, bool]:
    """Options of two networks that would give a tuple in training mode.

    Their second classifiers are not used. They turn the usual normalisation into the one they were
    published with, (x - 1/2) / (1/2).
    """
    if name not in ("inception_v3", "googlenet"):
        return {}
    return {"aux_logits": False, "init_weights": True, "transform_input": True}


def is_timm(name: str) -> bool:
    """Whether timm is installed and has a model of that name."""
    try:
        return bool(_timm().is_model(name))
    except ModuleNotFoundError:
        return False


def timm_network(name: str, *, num_classes: int, channels: int) -> nn.Module:
    """A fresh model of timm, for normalised images."""
    _check_timm(name)
    return _timm().create_model(name, num_classes=num_classes, in_chans=channels)


def _timm() -> ModuleType:
    importlib.import_module("aces.vision")  # timm needs a torchvision that imports
    return importlib.import_module("timm")


def _check_timm(name: str) -> None:
    try:
        timm = _timm()
    except ModuleNotFoundError:
        raise InputError(
            f"arch='timm/{name}' needs timm, which is not installed: `pip install 'aces[timm]'`"
        ) from None
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f": did you mean timm/{', timm/'.join(close)}?" if close else ""
        raise InputError(f"arch='timm/{name}' is not a model of timm {timm.__version__}{hint}")


class Published(NamedTuple):
    """A network with the weights its library publishes, for images normalised so."""

    network: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int


def torchvision_pretrained(name: str) -> Published:
    """A classifier of torchvision with its newest published weights."""
    from aces.vision import torchvision

    if not is_torchvision(name):
        raise InputError(f"arch='torchvision/{name}' is unknown: see torchvision.models")
    weights = torchvision.models.get_model_weights(name).DEFAULT
    transform = weights.transforms()
    options = {"transform_input": True} if _single_output(name) else {}
    try:
        network = torchvision.models.get_model(name, weights=weights, **options)
    except Exception as error:  # urllib's, ssl's and torch's own
        raise _unreachable(f"torchvision/{name}", weights.url, error) from None
    if _single_output(name):
        network.aux_logits = False
        for head in ("AuxLogits", "aux1", "aux2"):
            if hasattr(network, head):
                setattr(network, head, None)
    return Published(
        network.eval(),
        tuple(transform.mean),
        tuple(transform.std),
        len(weights.meta["categories"]),
    )


def timm_pretrained(name: str, *, channels: int) -> Published:
    """A model of timm with its published weights."""
    _check_timm(name)
    timm = _timm()
    about = timm.get_pretrained_cfg(name)
    if about is None or not about.has_weights:
        raise InputError(f"arch='timm/{name}' has no published weights: train it, or name a file")
    where = about.url or f"https://huggingface.co/{about.hf_hub_id}"
    try:
        network = timm.create_model(name, pretrained=True, in_chans=channels)
    except Exception as error:
        raise _unreachable(f"timm/{name}", where, error) from None
    return Published(network.eval(), tuple(about.mean), tuple(about.std), about.num_classes)


def _unreachable(name: str, where: str, error: Exception) -> InputError:
    return InputError(
        f"the pretrained weights of {name} cannot be fetched ({one_line(error)}): get {where} on a "
        f"machine with internet, and name the file as the checkpoint, with arch {name}"
    )
