"""Networks of torchvision and timm by name, fresh or with the weights their libraries publish."""

import difflib
import functools
import importlib
from types import ModuleType

from torch import nn

from aces.errors import InputError


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
            "take "
            "a built-in network or one of timm, which take any number"
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
    import aces.vision  # noqa: F401  timm imports torchvision, which may need the shim

    return importlib.import_module("timm")


def _check_timm(name: str) -> None:
    try:
        timm = _timm()
    except ModuleNotFoundError:
        raise InputError(
            f"arch='timm/{name}' needs timm, which is not installed: `pip install timm`"
        ) from None
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f": did you mean timm/{', timm/'.join(close)}?" if close else ""
        raise InputError(f"arch='timm/{name}' is not a model of timm {timm.__version__}{hint}")
