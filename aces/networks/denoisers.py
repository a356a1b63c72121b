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
from aces.networks.denoise import FFDNET, Denoised, build_denoiser
from aces.networks.formats import Weights, existing, read_weights, without_prefix
from aces.networks.normalization import Classifier, Normalize, plain
from aces.networks.programs import is_program
from aces.networks.registry import DENOISED

KIND = "denoiser"  # in the header of a file that holds one
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


def load_denoiser(path: str | Path, *, channels: int | None = None) -> nn.Module:
    """The denoiser in a file of ours or a published FFDNet, in evaluation mode, on the CPU.

    channels: what it must take; None accepts any.
    """
    path = existing(path)
    header = reading.read_own_header(path) if reading.is_safetensors(path) else None
    if header is not None:
        denoiser = _own_file(path, header)
    else:
        denoiser = published_denoiser(read_weights(path), path)
    found = denoiser.recipe["channels"]  # type: ignore[index]
    if channels is not None and found != channels:
        raise InputError(
            f"checkpoint {path} is a denoiser for {found} channels; the images have {channels}"
        )
    return denoiser


def _own_file(path: Path, header: Mapping[str, str]) -> nn.Module:
    if header.get("kind") != KIND:
        raise InputError(
            f"checkpoint {path} holds the network {header.get('arch')}, not a denoiser: name it as "
            "core.checkpoint or certify.checkpoint"
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
    return _ffdnet(read_weights(path).state) is not None


def published_denoiser(weights: Weights, path: Path) -> nn.Module:
    """The FFDNet with these weights."""
    found = _ffdnet(weights.state)
    if found is None:
        raise InputError(
            f"checkpoint {path} is no denoiser that is known: expected an FFDNet, or a file of "
            "`aces "
            "import` or of training here; for another network, write a function "
            "(package.module:function) that loads it"
        )
    state, channels, options = found
    denoiser = build_denoiser(FFDNET, channels=channels, options=options)
    reading.check_kinds(denoiser.state_dict(), state, path)
    denoiser.load_state_dict(state)
    return denoiser.eval()


def _ffdnet(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], int, dict[str, int]] | None:
    """The weights under the names of `FFDNet`, its channels, width and depth; None if it is "
    "none."""
    level: dict[str, Tensor] | None = state
    while level is not None and "0.weight" not in level:
        level = without_prefix(level)
    kernels = [tensor for tensor in (level or {}).values() if tensor.ndim == 4]
    if level is None or len(kernels) < 2:
        return None
    first, last = kernels[0].shape, kernels[-1].shape
    channels, options = last[0] // 4, {"width": first[0], "depth": len(kernels)}
    with torch.device("meta"):
        skeleton = build_denoiser(FFDNET, channels=max(channels, 1), options=options).state_dict()
    renamed = {f"model.{name}": tensor for name, tensor in level.items()}
    if {name: tensor.shape for name, tensor in renamed.items()} != {
        name: tensor.shape for name, tensor in skeleton.items()
    }:
        return None
    return renamed, channels, options


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
