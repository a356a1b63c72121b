"""Denoisers in files, and their composition with a classifier."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from aces import data, extension, files
from aces.data import EvalSet
from aces.errors import InputError
from aces.networks import reading
from aces.networks.denoise import DNCNN, FFDNET, Denoised, build_denoiser, each_channel
from aces.networks.formats import Weights, existing, read_weights
from aces.networks.normalization import Classifier, Normalize, plain
from aces.networks.programs import is_program
from aces.networks.registry import DENOISED
from aces.networks.structure import Layer, layers_of

KIND = "denoiser"  # in the header of a file that holds one
IRCNN_DEPTH = 7  # of the networks that are dilated; DnCNN has 17 or 20 layers
_MISFIT = "does not fit the denoiser of this version: train or import it again"


def before(denoiser: nn.Module, classifier: nn.Module, *, sigma: float) -> Classifier:
    """The certification network classifier(denoiser(z, sigma)), in evaluation mode.

    If both parts were built by name, `save_model(path, network, **network.recipe)` saves it.
    """
    if not 0 < sigma < float("inf"):
        raise InputError(f"sigma={sigma}: expected the noise before the denoiser, above 0")
    # Pixels as they are; one value serves any number of channels.
    normalize = Normalize((0.0,), (1.0,))
    module = Classifier(normalize, Denoised(denoiser, classifier, sigma=sigma))
    made, used = (getattr(part, "recipe", None) for part in (denoiser, classifier))
    if made is not None and used is not None:
        module.recipe = {
            "arch": DENOISED,
            "num_classes": used["num_classes"],
            "mean": (0.0,),
            "std": (1.0,),
            "options": plain({"sigma": float(sigma), "denoiser": made, "classifier": used}),
        }
    return module.eval()


def save_denoiser(path: str | Path, denoiser: nn.Module, **metadata: object) -> None:
    """Write a denoiser that `build_denoiser` made, so that `load_denoiser` makes it again."""
    recipe: dict[str, Any] = denoiser.recipe  # type: ignore[assignment]
    header = {
        "kind": KIND,
        "arch": recipe["arch"],
        "channels": str(recipe["channels"]),
        "options": json.dumps(recipe["options"], sort_keys=True),
        **{key: str(value) for key, value in metadata.items()},
    }
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in denoiser.state_dict().items()
    }
    content = {reading.OWN_HEADER: json.dumps(header, sort_keys=True)}
    files.write_bytes(path, safetensors.torch.save(tensors, metadata=content))


def load_denoiser(
    path: str | Path, *, channels: int | None = None, arch: str | None = None
) -> nn.Module:
    """The denoiser in a file of ours or a published FFDNet or DnCNN, in evaluation mode, on the CPU.

    channels: what it must take; None accepts any. A denoiser of grey images then denoises each
    channel on its own. arch: the name that the user gives. A file may name a function
    (package.module:function), which is called only if the user names it too.
    """
    path = existing(path)
    header = reading.read_own_header(path) if reading.is_safetensors(path) else None
    if header is not None:
        denoiser = _own_file(path, header, asked=arch)
    else:
        denoiser = published_denoiser(read_weights(path), path)
    found = denoiser.recipe["channels"]  # type: ignore[index]
    if channels is None or found == channels:
        return denoiser
    if found != 1:
        raise InputError(
            f"checkpoint {path} is a denoiser for {found} channels; the images have {channels}: "
            "take one for as many, or for grey images"
        )
    return each_channel(denoiser, channels).eval()


def _own_file(path: Path, header: Mapping[str, str], *, asked: str | None) -> nn.Module:
    if header.get("kind") != KIND:
        raise InputError(
            f"checkpoint {path} holds the network {header.get('arch')}, not a denoiser: name it as "
            "core.checkpoint or certify.checkpoint"
        )
    made_by = header.get("arch", "")
    if extension.is_reference(made_by) and made_by != asked:
        raise InputError(
            f"checkpoint {path} is of the function {made_by}, which would be run to build the "
            f"denoiser: if you trust it, name it (--arch {made_by}, or certify.denoiser.arch)"
        )
    state = reading.checked_tensors(reading.read_safetensors(path), path)
    arguments = _arguments(header)
    if arguments is None or not _fits(arguments, state, path):
        raise InputError(f"checkpoint {path} {_MISFIT}")
    denoiser = build_denoiser(**arguments)
    denoiser.load_state_dict(state)
    return denoiser.eval()


def _arguments(header: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments of `build_denoiser` in a header; None if they make no sense."""
    try:
        channels, options = int(header["channels"]), dict(json.loads(header["options"]))
        sound = 1 <= channels <= 64
        return {"arch": header["arch"], "channels": channels, "options": options} if sound else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _fits(arguments: dict[str, Any], state: dict[str, Tensor], path: Path) -> bool:
    """Whether the file has the tensors of this denoiser, found without memory for it."""
    try:
        with torch.device("meta"):
            expected = build_denoiser(**arguments).state_dict()
    except Exception:  # a denoiser of the user's that computes while it is built, or nonsense
        if not extension.is_reference(arguments["arch"]):
            return False
        expected = build_denoiser(**arguments).state_dict()
    reading.check_kinds(expected, state, path)
    return {name: tensor.shape for name, tensor in expected.items()} == {
        name: tensor.shape for name, tensor in state.items()
    }


def holds_denoiser(path: Path) -> bool:
    """Whether a file holds a denoiser, and not a classifier."""
    if is_program(path):
        return False
    if reading.is_safetensors(path) and (header := reading.read_own_header(path)) is not None:
        return header.get("kind") == KIND
    return _recognise(read_weights(path).state) is not None


def published_denoiser(weights: Weights, path: Path) -> nn.Module:
    """The FFDNet or DnCNN with these weights."""
    found = _recognise(weights.state)
    if found is None:
        raise InputError(
            f"checkpoint {path} is no denoiser that is known: expected an FFDNet, a DnCNN, or a "
            "file of `aces import` or of training here; for another network, write a function "
            "(package.module:function) that loads it"
        )
    denoiser = build_denoiser(found.arch, channels=found.channels, options=found.options)
    expected = denoiser.state_dict()
    reading.check_kinds(expected, found.state, path)
    denoiser.load_state_dict(expected | found.state)  # batch counters are not used
    return denoiser.eval()


class _Found(NamedTuple):
    """A published denoiser: what it is, and its weights under our names."""

    arch: str
    channels: int
    options: dict[str, Any]
    state: dict[str, Tensor]


def _recognise(state: dict[str, Tensor]) -> _Found | None:
    """The denoiser in a state dict, from its shapes: convolutions one after another.

    The first of FFDNet gets a quarter of the pixels in four times the channels, and one channel for
    sigma. That of DnCNN gets the image.
    """
    given = _chain(state)
    if given is None:
        return None
    convs = [layer for layer in given if layer.kind == "conv"]
    inputs, outputs = convs[0].weight.shape[1], convs[-1].width
    options: dict[str, Any] = {"width": convs[0].width, "depth": len(convs)}
    if outputs % 4 == 0 and inputs == outputs + 1:
        arch, channels = FFDNET, outputs // 4
    elif inputs == outputs and inputs in (1, 3):
        arch, channels = DNCNN, inputs
        options["norm"] = len(convs) < len(given)
        options["biases"] = ["bias" in convs[place].leaves for place in (0, 1, -1)]
        if len(convs) == IRCNN_DEPTH and not options["norm"]:
            options["dilated"] = True
    else:
        return None
    with torch.device("meta"):
        ours = _chain(build_denoiser(arch, channels=channels, options=options).state_dict())
    if ours is None or [_form(layer) for layer in ours] != [_form(layer) for layer in given]:
        return None
    renamed = {
        f"{mine.path}.{leaf}": state[f"{theirs.path}.{leaf}"]
        for mine, theirs in zip(ours, given, strict=True)
        for leaf in mine.leaves
    }
    return _Found(arch, channels, options, renamed)


def _chain(state: dict[str, Tensor]) -> list[Layer] | None:
    """The convolutions of a network in order, then its batch norms; None if it has other layers."""
    counted = {name for name in state if name.endswith(reading.COUNTER)}
    layers = layers_of({name: state[name] for name in state if name not in counted})
    if layers is None or any(layer.kind == "linear" for layer in layers):
        return None
    ordered = sorted(layers, key=lambda layer: layer.kind)  # conv before norm; keeps their order
    return ordered if sum(layer.kind == "conv" for layer in ordered) > 2 else None


def _form(layer: Layer) -> tuple:
    return layer.kind, tuple(layer.weight.shape), set(layer.leaves)


class Quality(NamedTuple):
    """How well a denoiser restores the evaluation images, in decibels (higher is better)."""

    noisy: float  # peak signal-to-noise ratio of the noisy images
    denoised: float


@torch.inference_mode()
def quality(
    denoiser: nn.Module, evaluation: EvalSet, *, sigma: float, images: int = 100
) -> Quality:
    """The peak signal-to-noise ratio of some images before and after denoising."""
    stride = max(1, len(evaluation.label) // images)
    x = data.to_tensor(evaluation.image[::stride])
    z = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    denoised = torch.cat([denoiser(part, torch.tensor(sigma)) for part in z.split(50)])
    return Quality(*(_decibels(image, x) for image in (z, denoised)))


def _decibels(image: Tensor, x: Tensor) -> float:
    return float(-10 * (image - x).square().mean().log10())
