"""A model as a folder: safetensors for the weights, one YAML for the rest. No pickle, no code."""

import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import yaml
from torch import nn

from aces.errors import InputError
from aces.networks import fingerprint, load_model, read_metadata, save_model

FORMAT = 1
DESCRIPTION = "aces.yaml"
OWN = "own"  # in place of an architecture: a module whose class only its author has


def write_folder(
    folder: str | Path, networks: Mapping[str, nn.Module], *, num_classes: int, **description
) -> None:
    """Write networks and description; the description last, so that a folder that has one is
    complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = {}
    for role, network in networks.items():
        recipe = getattr(network, "recipe", None) or {
            "arch": OWN,
            "num_classes": num_classes,
            "mean": (),
            "std": (),
        }
        save_model(_weights(folder, role), network, **recipe)
        about[role] = {
            "arch": recipe["arch"],
            "class": type(network).__qualname__,
            "fingerprint": fingerprint(network),
        }
    text = yaml.safe_dump(
        {"format": FORMAT, "num_classes": num_classes, **description, "networks": about},
        sort_keys=False,
    )
    temporary = folder / f".{DESCRIPTION}.{os.getpid()}"
    temporary.write_text(text)
    os.replace(temporary, folder / DESCRIPTION)


def read_folder(
    folder: str | Path, own: Mapping[str, nn.Module]
) -> tuple[dict[str, nn.Module], dict]:
    """The networks and the description that `write_folder` wrote; `own` are modules to fill, by
    role.
    """
    folder = Path(folder)
    description = _read_description(folder)
    about = description.pop("networks")
    for role in own:
        if role not in about:
            raise InputError(f"{folder} has no network {role!r}: it has {', '.join(about)}")
    networks = {
        role: _read_network(folder, role, what, own.get(role)) for role, what in about.items()
    }
    return networks, description


def _read_description(folder: Path) -> dict:
    path = folder / DESCRIPTION
    try:
        description = yaml.safe_load(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} has no {DESCRIPTION}: expected a folder that ACES.save wrote"
        ) from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT or not isinstance(description.get("networks"), dict):
        raise InputError(
            f"{path} has format {found}: this version reads {FORMAT}, with networks; save the model again"
        )
    del description["format"]
    return description


def _read_network(folder: Path, role: str, about: dict, own: nn.Module | None) -> nn.Module:
    path = _weights(folder, role)
    if own is None and about["arch"] == OWN:
        raise InputError(
            f"{folder}: {role} is a network of your own class {about['class']}: pass one to be filled, "
            f"ACES.load({str(folder)!r}, {role}={about['class']}(...))"
        )
    network = load_model(path) if own is None else _filled(own, path)
    if fingerprint(network) != about["fingerprint"]:
        raise InputError(
            f"{path} is not the network that {DESCRIPTION} describes: was a file replaced, or a class "
            "changed? save it again"
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


def _weights(folder: Path, role: str) -> Path:
    return folder / f"{role}.safetensors"
