"""Networks by name.

| name                       | network                                                          |
|----------------------------|------------------------------------------------------------------|
| `small`, `lanet`, ...      | one of ARCHITECTURES                                             |
| `cifar_resnet<depth>`      | a ResNet for 32x32 images, see `cifar_resnet`                    |
| `torchvision/<name>`       | a classifier of torchvision; its plain name works too            |
| `timm/<name>`              | a model of timm, where timm is installed                         |
| `hf/<repository>`          | an image classifier of Hugging Face, see `huggingface`           |
| `package.module:function`  | your own: `function(num_classes, channels)` returns a module     |
| `torchscript`, `onnx`      | a program in a file, see `programs`; only `aces import` makes it |
| `residual`                 | a residual network that `aces import` found, see `residual`      |
| `denoised`                 | a denoiser before a classifier, see `denoise`                    |
| `resized`                  | a network at a size of its own, see `resolution`                 |
"""

import contextlib
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from aces import extension
from aces.console import warn
from aces.errors import InputError, one_line
from aces.networks import cifar_resnet, huggingface, libraries, residual
from aces.networks.denoise import Denoised, build_denoiser
from aces.networks.lanet import lanet
from aces.networks.normalization import Classifier, Normalize, plain
from aces.networks.programs import PROGRAMS
from aces.networks.resolution import RESIZED, AtSize
from aces.networks.small import small, small_core, tiny

# name -> (num_classes, channels) -> network on normalised images
ARCHITECTURES: dict[str, Callable[[int, int], nn.Module]] = {
    "small": small,
    "small-core": small_core,
    "tiny": tiny,
    "cifar_resnet20": lambda num_classes, channels: _cifar("cifar_resnet20", num_classes, channels),
    "cifar_resnet110": lambda num_classes, channels: _cifar(
        "cifar_resnet110", num_classes, channels
    ),
    "lanet": lanet,
}

DENOISED = "denoised"
Options = Mapping[str, Any]  # what a network needs beside its name; JSON


def build(
    arch: str,
    *,
    num_classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    options: Options | None = None,
) -> Classifier:
    """A fresh network `arch`: [0, 1] pixels (N, C, H, W), C = len(mean) -> logits (N, num_classes).

    `options` is what a saved network of another library needs to be built again; `save_model` keeps
    it.
    """
    if arch.startswith("hf/"):  # such a network normalises by itself
        mean, std = (0.0,), (1.0,)
        options = options or huggingface.describe(arch.removeprefix("hf/"))
    network = _network(arch, num_classes=num_classes, channels=len(mean), options=options or {})
    classifier = Classifier(Normalize(mean, std), network)
    classifier.recipe = {
        "arch": arch,
        "num_classes": num_classes,
        "mean": tuple(mean),
        "std": tuple(std),
    }
    kept = dict(options or {}) | own_source(arch)
    if kept:
        classifier.recipe["options"] = plain(kept)
    return classifier


def is_harmless(arch: str) -> bool:
    """Whether `build` knows the name, and builds it without code of others or a network connection.

    Such a name may come from a file that nobody vouches for.
    """
    if arch in ARCHITECTURES or cifar_resnet.design(arch) is not None:
        return True
    if arch.startswith("timm/"):
        return libraries.is_timm(arch.removeprefix("timm/"))
    return libraries.is_torchvision(arch.removeprefix("torchvision/"))


def functions_in(recipe: Mapping[str, Any]) -> list[str]:
    """The functions of a user (`package.module:function`) that `build` would call for a recipe.

    A denoised or resized network has the recipes of its parts among its options.
    """
    found = [recipe["arch"]] if extension.is_reference(str(recipe.get("arch"))) else []
    parts = recipe.get("options") or {}
    return found + [
        name for part in parts.values() if isinstance(part, Mapping) for name in functions_in(part)
    ]


@torch.inference_mode()
def check_arch(arch: str, *, num_classes: int, shape: tuple[int, int, int]) -> None:
    """InputError unless `build` knows the name and the network takes images of `shape` (C, H, W).

    Nothing is computed: the network is made without memory for its weights, where that is possible.
    Where it is not, such as with a network that looks at values, two images are computed.
    """
    options: Options = {}
    if arch.startswith("hf/"):
        options = huggingface.describe(arch.removeprefix("hf/"))
    arguments: dict[str, Any] = {"num_classes": num_classes, "channels": shape[0]}
    with contextlib.suppress(Exception):  # it is tried again below
        with torch.device("meta"):
            _network(arch, options=options, **arguments).eval()(torch.zeros((2, *shape)))
        return
    network = _network(arch, options=options, **arguments).eval()
    try:
        network(torch.zeros((2, *shape)))
    except Exception as error:
        raise InputError(
            f"arch={arch!r} does not take images of shape {shape}: {one_line(error)}; choose "
            "another network"
        ) from None


def _network(arch: str, *, num_classes: int, channels: int, options: Options) -> nn.Module:
    if arch in ARCHITECTURES:
        return ARCHITECTURES[arch](num_classes, channels)
    if cifar_resnet.design(arch) is not None:
        return _cifar(arch, num_classes, channels)
    if extension.is_reference(arch):
        return _own(arch, num_classes=num_classes, channels=channels, options=options)
    if residual.choices_of(arch) is not None:
        return residual.build_residual(
            arch, num_classes=num_classes, channels=channels, options=options
        )
    if arch in PROGRAMS and "size" in options:
        return PROGRAMS[arch](int(options["size"]))
    if arch == DENOISED and options:
        return Denoised(
            build_denoiser(**options["denoiser"]),
            build(**options["classifier"]),
            sigma=options["sigma"],
        )
    if arch == RESIZED and options:
        return AtSize(build(**options["network"]), int(options["size"]))
    library, slash, name = arch.partition("/")
    if library == "hf" and slash:
        return huggingface.network(
            name, num_classes=num_classes, channels=max(channels, 3), options=options
        )
    if library == "timm" and slash:
        return libraries.timm_network(name, num_classes=num_classes, channels=channels)
    name = name if library == "torchvision" and slash else arch
    if libraries.is_torchvision(name):
        return libraries.torchvision_network(name, num_classes=num_classes, channels=channels)
    raise InputError(_unknown(arch))


def _cifar(name: str, num_classes: int, channels: int) -> nn.Module:
    design = cifar_resnet.design(name)
    assert design is not None, name
    return cifar_resnet.CifarResNet(design, num_classes=num_classes, channels=channels)


def _own(arch: str, *, num_classes: int, channels: int, options: Options) -> nn.Module:
    """The network of a function of the user's; a source that changed since it was saved is said."""
    function = extension.resolve(arch, what="arch")
    try:
        network = function(num_classes=num_classes, channels=channels)
    except InputError:
        raise
    except Exception as error:  # whatever the user's function does
        raise InputError(
            f"arch={arch!r} failed ({type(error).__name__}: {one_line(error)}): expected a "
            "function that takes num_classes and channels and returns a torch module"
        ) from error
    if not isinstance(network, nn.Module):
        raise InputError(
            f"arch={arch!r} returned a {type(network).__name__}: expected a torch module from "
            "normalised images (N, C, H, W) to logits (N, num_classes)"
        )
    before, now = options.get("source"), extension.source_digest(function)
    if before and before != now:
        warn(
            f"the source of {arch} has changed since its weights were saved: its answers may "
            "differ from what was measured then; train it again, or restore the source"
        )
    return network


def own_source(arch: str) -> dict[str, str]:
    """The digest of the file that an architecture of the user's comes from, for the header of a
    saved network.
    """
    if not extension.is_reference(arch):
        return {}
    source = extension.source_digest(extension.resolve(arch, what="arch"))
    return {"source": source} if source else {}


def _unknown(arch: str) -> str:
    names = [*ARCHITECTURES, *libraries.torchvision_names()]
    close = difflib.get_close_matches(arch.removeprefix("torchvision/"), names, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return (
        f"arch={arch!r} is unknown: {hint}known are {', '.join(ARCHITECTURES)}, "
        "cifar_resnet<depth> (-a for shortcuts without parameters), torchvision/<name>, "
        "timm/<name>, hf/<repository> and package.module:function"
    )
