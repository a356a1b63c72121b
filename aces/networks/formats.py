"""The files that hold weights: what each published project saves, reduced to one state dict.

| project                                        | file                                                     |
|------------------------------------------------|----------------------------------------------------------|
| Cohen et al., SmoothAdv, Consistency, ACES     | `{epoch, arch, state_dict, optimizer}`                   |
| MACER                                          | `{net, epoch}`                                           |
| LaNet                                          | `{epoch, model_state_dict, optimizer_state_dict}`        |
| torchvision, timm, plain state dicts           | `{name: tensor}`, as pickle or safetensors               |
| this project                                   | safetensors with a header                                |

Pickles are read with `weights_only=True` alone: a file that holds anything but tensors and plain
values is refused before any of it runs.
"""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from aces.errors import InputError
from aces.networks.files import read_metadata

SMOOTHING, MACER, LANET, PLAIN, OWN = (
    "Cohen et al.",
    "MACER",
    "LaNet",
    "state dict",
    "ACES safetensors",
)
UNCHECKED = (
    "unchecked"  # in the header of a file that was imported by rule, without images to try it on
)
PREFIXES = (
    "module.",
    "1.",
    "model.",
    "network.",
)  # DataParallel, Sequential(normalise, network), common wrappers


@dataclass(frozen=True)
class Weights:
    """A state dict without prefixes, and what its file says about it."""

    format: str
    state: dict[str, Tensor]
    arch: str | None = None
    mean: tuple[float, ...] | None = None  # the normalisation, where the file has it
    std: tuple[float, ...] | None = None
    checked: bool = True  # whether that normalisation is known to be right


def read_weights(path: str | Path) -> Weights:
    """Read any of the formats above."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"checkpoint {path} does not exist: give the path of a file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    tree = _unpickle(path)
    if not isinstance(tree, dict):
        raise InputError(f"checkpoint {path} holds a {type(tree).__name__}: expected a state dict")
    if isinstance(tree.get("state_dict"), dict):
        arch = tree.get("arch")
        return _weights(path, SMOOTHING if arch else PLAIN, tree["state_dict"], arch=arch)
    if isinstance(tree.get("net"), dict):
        return _weights(path, MACER, tree["net"])
    if isinstance(tree.get("model_state_dict"), dict):
        return _weights(
            path,
            LANET if "stem.0.weight" in tree["model_state_dict"] else PLAIN,
            tree["model_state_dict"],
        )
    return _weights(path, PLAIN, tree)


def _read_safetensors(path: Path) -> Weights:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            own = "aces" in (file.metadata() or {})
        state = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"checkpoint {path} is damaged or truncated ({error}): get it again"
        ) from None
    if not own:
        return _weights(path, PLAIN, state)
    header = read_metadata(path)
    mean, std = (tuple(json.loads(header[part])) for part in ("mean", "std"))
    return _weights(
        path,
        OWN,
        state,
        arch=header["arch"],
        mean=mean,
        std=std,
        checked=header.get("normalization") != UNCHECKED,
    )


def _unpickle(path: Path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "truncated" in str(error):
            raise InputError(f"checkpoint {path} is damaged or truncated: get it again") from None
        reasons = [line.strip() for line in str(error).splitlines() if "nsupported" in line]
        raise InputError(
            f"checkpoint {path} is refused, since it holds more than tensors; nothing of it was run "
            f"({reasons[0] if reasons else 'not a pickle of tensors'}): where you trust it, save its "
            "state dict alone, `torch.save(model.state_dict(), ...)`"
        ) from None
    except Exception as error:  # each kind of damage raises another exception in torch
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"checkpoint {path} is damaged or truncated ({reason}): get it again"
        ) from None


def _weights(path: Path, format: str, state: dict, **known) -> Weights:
    strangers = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strangers or not state:
        raise InputError(
            f"checkpoint {path} is of no known format (keys {', '.join(map(str, list(state)[:5]))}): "
            "expected a state dict, or one under state_dict, net or model_state_dict"
        )
    if "normalize.mean" in state:  # the state dict of a network of ours
        known = {
            part: tuple(state[f"normalize.{part}"].flatten().tolist()) for part in ("mean", "std")
        } | known
        state = {
            name: tensor for name, tensor in state.items() if not name.startswith("normalize.")
        }
    return Weights(format=format, state=_without_prefix(state), **known)


def _without_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            return _without_prefix(
                {name.removeprefix(prefix): tensor for name, tensor in state.items()}
            )
    return state
