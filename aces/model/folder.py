"""A model as a folder: safetensors for the weights, an ONNX file for an int8 network, one YAML file
for the rest. No pickle, no code.

`aces.yaml` is written last, so a folder that has one is complete. Every value in it is checked
before it is used, and the name of a network is one of ROLES, so that no file outside the folder is
ever read.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import yaml
from torch import nn

from aces.errors import InputError, one_line
from aces.files import make_folder, write_text
from aces.grid import is_on_grid
from aces.networks import fingerprint, load_model, read_metadata, save_model
from aces.networks.quantized import QuantizedNetwork, load_quantized
from aces.yaml_text import parse_yaml

FORMAT = 2
READABLE = (1, 2)  # format 1 knew neither rule, noise nor precision
FORMAT_1 = {"rule": "paper", "noise": "float", "precision": "float32"}
DESCRIPTION = "aces.yaml"
ROLES = ("core", "certify", "select")
INT8 = "int8"  # in place of an architecture: an ONNX graph
OWN = "own"  # in place of an architecture: a module whose class only its author has
MOST_CHARACTERS = 10_000_000  # of aces.yaml; the names of 20,000 classes are far shorter


def write_folder(
    folder: str | Path,
    networks: Mapping[str, nn.Module],
    *,
    num_classes: int,
    **description: Any,
) -> None:
    """Write networks and description; the description last, so that a folder that has one is
    complete.
    """
    folder = make_folder(folder)
    about = {role: _write_network(folder, role, networks[role], num_classes) for role in networks}
    content = {"format": FORMAT, "num_classes": num_classes, **description, "networks": about}
    write_text(folder / DESCRIPTION, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _write_network(folder: Path, role: str, network: nn.Module, num_classes: int) -> dict[str, str]:
    about = {"class": type(network).__qualname__, "fingerprint": fingerprint(network)}
    if isinstance(network, QuantizedNetwork):
        network.save(_graph(folder, role))
        return {"arch": INT8} | about
    recipe = getattr(network, "recipe", None) or {
        "arch": OWN,
        "num_classes": num_classes,
        "mean": (),
        "std": (),
    }
    save_model(_weights(folder, role), network, **recipe)
    return {"arch": recipe["arch"]} | about


def read_folder(folder: str | Path, own: Mapping[str, nn.Module]) -> dict[str, Any]:
    """The arguments of `ACES` that `write_folder` wrote. `own` are modules to fill, by role."""
    folder = Path(folder)
    description = read_description(folder)
    about = description.pop("networks")
    for role in own:
        if role not in about:
            raise InputError(f"{folder} has no network {role!r}: it has {', '.join(about)}")
    networks = {
        role: _read_network(folder, role, what, own.get(role)) for role, what in about.items()
    }
    return description | networks


def read_description(folder: Path) -> dict[str, Any]:
    """The content of aces.yaml, every value checked; without the format number."""
    path = folder / DESCRIPTION
    description = _read_yaml(path)
    found = description.pop("format", None) if isinstance(description, dict) else None
    if type(found) is not int or found not in READABLE:
        raise InputError(
            f"{path} has format {str(found)[:40]}: this version reads "
            f"{' and '.join(map(str, READABLE))}; save the model again"
        )
    if found == 1:
        description = FORMAT_1 | description
    missing = [name for name in EXPECTED if name not in description]
    unknown = [str(name)[:40] for name in description if name not in EXPECTED]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has unknown {', '.join(unknown)}"
        raise InputError(f"{path} {what}: save the model again")
    for name, (fits, expected) in EXPECTED.items():
        if not fits(description[name]):
            raise InputError(
                f"{path}: {name}={str(description[name])[:60]}: expected {expected}; save the "
                "model again"
            )
    _check_together(path, description)
    return description


def _read_yaml(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
        if len(text) > MOST_CHARACTERS:
            raise InputError("longer than any description of a model")
        return parse_yaml(text)
    except InputError as error:
        raise InputError(f"{path}: {error}: save the model again") from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{path.parent} has no {DESCRIPTION}: expected a folder that ACES.save wrote"
        ) from None
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not YAML ({one_line(error)}): save the model again") from None


def _is_whole(value: object, *, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) < 2**53  # larger ones are no floats; the test would raise OverflowError
    return type(value) is float and math.isfinite(value)


def _is_sigma(value: object) -> bool:
    return _is_number(value) and value > 0  # type: ignore[operator]


def _is_theta(value: object) -> bool:
    return _is_number(value) and is_on_grid(value)  # type: ignore[arg-type]


def _is_shape(value: object) -> bool:
    return value is None or (
        isinstance(value, list)
        and len(value) == 3
        and all(_is_whole(length, least=1, most=100_000) for length in value)
    )


def _are_names(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    )


def _are_networks(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"core", "certify"} <= set(value) <= set(ROLES)
        and all(
            isinstance(about, dict)
            and all(isinstance(about.get(key), str) for key in ("arch", "class", "fingerprint"))
            for about in value.values()
        )
    )


# name -> whether a value fits, and what is expected, in words
EXPECTED: dict[str, tuple[Callable[[object], bool], str]] = {
    "num_classes": (lambda value: _is_whole(value, least=2, most=10**7), "a whole number from 2"),
    "sigma": (_is_sigma, "a number above 0"),
    "theta": (_is_theta, "a multiple of 1/1000 from 0 to 1"),
    "rule": (lambda value: isinstance(value, str), "a word"),
    "noise": (lambda value: isinstance(value, str), "a word"),
    "precision": (lambda value: isinstance(value, str), "a word"),
    "classes": (_are_names, "a list of names, or null"),
    "shape": (_is_shape, "three whole numbers, C, H and W, or null"),
    "resize": (
        lambda value: value is None or _is_whole(value, least=1, most=100_000),
        "a whole number, or null",
    ),
    "networks": (
        _are_networks,
        "core and certify, and perhaps select, each with arch, class and fingerprint, no other "
        f"than {ROLES}",
    ),
}


def _check_together(path: Path, description: dict[str, Any]) -> None:
    classes = description["classes"]
    if classes is not None and len(classes) != description["num_classes"]:
        raise InputError(
            f"{path}: {len(classes)} names of classes for "
            f"num_classes={description['num_classes']}: save the model again"
        )


def _read_network(
    folder: Path, role: str, about: dict[str, str], own: nn.Module | None
) -> nn.Module:
    quantized = own is None and about["arch"] == INT8
    path = _graph(folder, role) if quantized else _weights(folder, role)
    if own is None and about["arch"] == OWN:
        raise InputError(
            f"{folder}: {role} is a network of your own class {about['class']}: pass one to be "
            f"filled, ACES.load({str(folder)!r}, {role}={about['class']}(...))"
        )
    if quantized:
        network: nn.Module = load_quantized(path)
    else:
        network = load_model(path) if own is None else _filled(own, path)
    if fingerprint(network) != about["fingerprint"]:
        raise InputError(
            f"{path} is not the network that {DESCRIPTION} describes: was a file replaced, or a "
            "class changed? save it again"
        )
    return network


def _filled(module: nn.Module, path: Path) -> nn.Module:
    read_metadata(path)  # refuses a file that is missing, damaged or not ours
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"{path} does not fit the {type(module).__qualname__} that was passed: {reason}"
        ) from None
    return module.eval()


def _graph(folder: Path, role: str) -> Path:
    return folder / f"{role}.onnx"


def _weights(folder: Path, role: str) -> Path:
    return folder / f"{role}.safetensors"
