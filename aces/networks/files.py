"""Networks as safetensors: weights, and in the header what is needed to build the network again."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from aces.errors import InputError
from aces.networks.registry import build

# safetensors writes several metadata entries in no fixed order, one entry has no order: so all of
# ours is one.
_HEADER = "aces"


def save_model(
    path: str | Path,
    module: nn.Module,
    *,
    arch: str,
    num_classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    **metadata,
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
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }
    data = safetensors.torch.save(tensors, metadata={_HEADER: json.dumps(header, sort_keys=True)})
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def load_model(path: str | Path) -> nn.Module:
    """The network that `save_model` wrote, in evaluation mode, on the CPU."""
    header = read_metadata(path)
    module = build(
        header["arch"],
        num_classes=int(header["num_classes"]),
        mean=json.loads(header["mean"]),
        std=json.loads(header["std"]),
    )
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except RuntimeError:
        raise InputError(
            f"{path} does not fit the network {header['arch']!r} of this version: train or import it "
            "again"
        ) from None
    return module.eval()


def read_metadata(path: str | Path) -> dict[str, str]:
    """What `save_model` noted beside the weights: arch, num_classes, mean, std, and the rest."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist: run `dvc repro`, or `aces import` a checkpoint"
        ) from None
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path} is not a safetensors file ({error}): `aces import` converts other files"
        ) from None
    if header is None:
        raise InputError(
            f"{path} is a safetensors file of another project: convert it with `aces import`"
        )
    return json.loads(header)


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
