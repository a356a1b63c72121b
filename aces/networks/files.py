"""Networks as safetensors: weights, and in the header what is needed to build the network again."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from aces import files
from aces.errors import InputError, one_line
from aces.networks import reading
from aces.networks.registry import build

# safetensors writes several metadata entries in no fixed order. One entry has no order, so all of
# ours is one.
_HEADER = reading.OWN_HEADER


def save_model(
    path: str | Path,
    module: nn.Module,
    *,
    arch: str,
    num_classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    options: Mapping[str, Any] | None = None,
    **metadata: object,
) -> None:
    """Write `module`, built by `build(arch, ...)`, so that `load_model` builds it again.

    The same network and metadata give the same bytes.
    """
    header = {
        "arch": arch,
        "num_classes": str(num_classes),
        "mean": json.dumps(list(mean)),
        "std": json.dumps(list(std)),
        **{key: str(value) for key, value in metadata.items()},
    }
    if options:
        header["options"] = json.dumps(options, sort_keys=True)
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }
    data = safetensors.torch.save(tensors, metadata={_HEADER: json.dumps(header, sort_keys=True)})
    files.write_bytes(path, data)


def load_model(path: str | Path) -> nn.Module:
    """The network that `save_model` wrote, in evaluation mode, on the CPU."""
    path = Path(path)
    recipe = reading.recipe_of(read_metadata(path), path)
    state = reading.checked_tensors(reading.read_safetensors(path), path)
    expected = shapes(recipe, path)
    if not fits(expected, state):
        raise InputError(
            f"{path} does not fit the network {recipe['arch']!r} of this version: train or import "
            "it again"
        )
    reading.check_kinds(expected, state, path)
    module = build(**recipe)
    module.load_state_dict(state)
    return module.eval()


def shapes(recipe: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """The tensors of the network in a header, without memory for them: a forged header may
    describe a network far larger than its file.
    """
    try:
        with torch.device("meta"):
            return build(**recipe).state_dict()
    except Exception:  # such as a network of the user's that computes while it is built
        pass
    try:
        return build(**recipe).state_dict()
    except InputError:
        raise
    except (Exception, MemoryError) as error:  # whatever a forged header leads to
        raise InputError(
            f"{path} has a damaged header ({one_line(error)}): train or import the network again"
        ) from None


def fits(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> bool:
    return expected.keys() == given.keys() and all(
        expected[name].shape == given[name].shape for name in expected
    )


def read_metadata(path: str | Path) -> dict[str, str]:
    """What `save_model` noted beside the weights: arch, num_classes, mean, std, and the rest."""
    header = reading.read_own_header(Path(path))
    if header is None:
        raise InputError(
            f"{path} is a safetensors file of another project: convert it with `aces import`"
        )
    return header


def fingerprint(module: nn.Module) -> str:
    """sha256 (hex) of what the network computes with: the class of every submodule, and the state
    dict's names, dtypes, shapes and bytes. It does not depend on the device or the memory format.
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(f"{name}={type(part).__qualname__};".encode())
    for name, tensor in module.state_dict().items():
        tensor = tensor.detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
