"""The files that hold weights: what each published project saves, reduced to one state dict.

| project                                    | file                                              |
|--------------------------------------------|---------------------------------------------------|
| Cohen et al., SmoothAdv, Consistency, ACES | `{epoch, arch, state_dict, optimizer}`            |
| MACER                                      | `{net, epoch}`                                    |
| LaNet                                      | `{epoch, model_state_dict, optimizer_state_dict}` |
| akamaster/pytorch_resnet_cifar10           | `{best_prec1, state_dict}`                        |
| IntelLabs/distiller                        | `{arch, compression_sched, state_dict, ...}`      |
| torchvision, timm, plain state dicts       | `{name: tensor}`, as pickle or safetensors        |
| this project                               | safetensors with a header                         |

A state dict is also found under the other usual names (CONTAINERS), and where a file has a single
dictionary of tensors, whatever it is called.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from aces.errors import InputError
from aces.networks import catalogue, reading

SMOOTHING, MACER, LANET = "Cohen et al.", "MACER", "LaNet"
AKAMASTER, DISTILLER = "akamaster/pytorch_resnet_cifar10", "IntelLabs/distiller"
PLAIN, OWN = "state dict", "ACES safetensors"
# In the header of a file whose normalisation was chosen by rule, without images to try it on.
UNCHECKED = "unchecked"
CONTAINERS = (  # where files keep the state dict, the averaged weights first
    "state_dict_ema",
    "ema_state_dict",
    "model_ema",
    "ema_model",
    "params_ema",
    "ema",
    "state_dict",
    "net",
    "model_state_dict",
    "model_state",
    "model",
    "network",
    "module",
    "weights",
    "params",
    "state",
)
AVERAGED = "n_averaged"  # torch's AveragedModel counts its updates beside the network
# Beside the network in files of PyTorch Lightning: class weights of the loss, counts of a metric.
_BESIDE = re.compile(r"(\w*(loss|criterion|metrics?)|(train|val|valid|test)_\w+)\.", re.IGNORECASE)
# Of a network of ours as a whole; its parts may have others.
OWN_NORMALIZATION = ("normalize.mean", "normalize.std")
_MEANS, _STDS = ("mean", "mu", "new_mean", "image_mean"), ("std", "sigma", "new_std", "image_std")


@dataclass(frozen=True)
class Weights:
    """A state dict without common prefixes, and what its file says about it."""

    format: str
    state: dict[str, Tensor]
    arch: str | None = None
    mean: tuple[float, ...] | None = None  # the normalisation, where the file has it
    std: tuple[float, ...] | None = None
    checked: bool = True  # whether that normalisation is known to be right
    options: Mapping[str, Any] | None = None  # what `build` needs beside arch, in a file of ours


def read_weights(path: str | Path) -> Weights:
    """Read any of the formats above."""
    path = existing(path)
    if reading.is_safetensors(path):
        return _read_safetensors(path)
    tree = reading.read_tree(path)
    if not isinstance(tree, dict):
        raise InputError(f"checkpoint {path} holds a {type(tree).__name__}: expected a state dict")
    arch = tree.get("arch") if isinstance(tree.get("arch"), str) else None
    container, state = _state_dict(tree, path)
    return _weights(path, _format(tree, container, state), state, arch=arch)


def _format(tree: Mapping[Any, Any], container: str | None, state: Mapping[str, Tensor]) -> str:
    """Which project wrote a file, by the names in it."""
    if container == "net" and "acc" not in tree:  # kuangliu/pytorch-cifar has {net, acc, epoch}
        return MACER
    if container == "model_state_dict" and "stem.0.weight" in state:
        return LANET
    if container == "state_dict" and "compression_sched" in tree:
        return DISTILLER
    if container == "state_dict" and "best_prec1" in tree and "module.linear.weight" in state:
        return AKAMASTER
    return SMOOTHING if container == "state_dict" and isinstance(tree.get("arch"), str) else PLAIN


def existing(path: str | Path) -> Path:
    """The path, if it is a file that can be read."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        remedy = catalogue.hint(path) or "give the path of a file"
        raise InputError(f"checkpoint {path} {what}: {remedy}")
    return path


def _state_dict(tree: dict[Any, Any], path: Path) -> tuple[str | None, dict[str, Tensor]]:
    """The dictionary of tensors in a file, and the name it has there."""
    if _is_state(tree):
        return None, tree
    usual = [(name, found) for name in CONTAINERS if (found := _inside(tree.get(name)))]
    if usual:  # the most complete one: averages may be of the weights alone, without statistics
        return max(usual, key=lambda each: len(each[1]))
    others = {name: value for name, value in tree.items() if _is_state(value)}
    if len(others) == 1:
        return next(iter(others.items()))
    if others:
        first, *_, last = others
        raise InputError(
            f"checkpoint {path} holds {len(others)} networks ({first} to {last}): save "
            f"the one you want, `torch.save(torch.load({path.name!r})[{first!r}], 'one.pth')`, and "
            "import that"
        )
    raise InputError(
        f"checkpoint {path} is of no known format (keys {', '.join(map(str, list(tree)[:5]))}): "
        "expected a state dict, or one under state_dict, net or model_state_dict"
    )


def _is_state(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(name, str) for name in value)
        and all(isinstance(tensor, Tensor) for tensor in value.values())
    )


def _inside(value: object) -> dict[str, Tensor] | None:
    """The state dict that a value is, or holds under a usual name: {"model": {"state_dict": ...}}."""
    if _is_state(value):
        return value  # type: ignore[return-value]
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in CONTAINERS if _is_state(value.get(name))), None)


def _read_safetensors(path: Path) -> Weights:
    header = reading.read_own_header(path)
    state = reading.read_safetensors(path)
    if header is None:
        return _weights(path, PLAIN, state)
    recipe = reading.recipe_of(header, path)
    for name in OWN_NORMALIZATION:
        state.pop(name, None)
    return Weights(
        format=OWN,
        state=reading.checked_tensors(state, path),
        arch=recipe["arch"],
        mean=tuple(recipe["mean"]),
        std=tuple(recipe["std"]),
        checked=header.get("normalization") != UNCHECKED,
        options=recipe.get("options"),
    )


def _weights(path: Path, format: str, state: Mapping[str, Tensor], **known) -> Weights:
    network = {name: tensor for name, tensor in state.items() if not _BESIDE.match(name)}
    tensors = reading.checked_tensors(network, path)
    tensors.pop(AVERAGED, None)
    tensors, recorded = _without_normalization(tensors)
    return Weights(format=format, state=tensors, **(recorded | known))


def _without_normalization(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, tuple]]:
    """Take out a normalisation that was saved with the network, such as `normalize.mean`."""
    for mean_leaf, std_leaf in zip(_MEANS, _STDS, strict=True):
        for name in state:
            prefix, _, leaf = name.rpartition(".")
            other = f"{prefix}.{std_leaf}".removeprefix(".")
            if leaf != mean_leaf or other not in state:
                continue
            mean, std = (tuple(state[key].flatten().tolist()) for key in (name, other))
            if len(mean) == len(std) and len(mean) in (1, 3) and min(std) > 0:
                rest = {key: tensor for key, tensor in state.items() if key not in (name, other)}
                return rest, {"mean": mean, "std": std}
    return state, {}


def without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The state dict without the first component of its names, if all of them share it.

    Wrappers add one each: `module.` (DataParallel), `1.` (a Sequential of normalisation and
    network), `model.`, `_orig_mod.` (compiled networks).
    """
    first = next(iter(state), "").partition(".")[0] + "."
    if first == "." or not all(name.startswith(first) for name in state):
        return None
    return {name.removeprefix(first): tensor for name, tensor in state.items()}
