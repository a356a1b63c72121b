"""Which network a state dict belongs to: found from the names and shapes of its tensors.

What a file says about itself is a hint. The names of the same network differ between projects
(`linear` or `fc`, `shortcut` or `downsample`, any wrapper's prefix). A network fits if its tensors
have the same names and shapes after these are accounted for, or the same kinds and shapes in the
same order, or if they are those of a residual network, whatever its depth, widths and blocks.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aces.errors import InputError
from aces.networks import cifar_resnet
from aces.networks.files import fits, shapes
from aces.networks.formats import LANET, MACER, OWN_NORMALIZATION, Weights, without_prefix
from aces.networks.reading import COUNTER
from aces.networks.registry import ARCHITECTURES, build, functions_in, is_harmless
from aces.networks.residual import PLAIN, choices_of, name_of
from aces.networks.structure import read_structure

# The selection networks of ACES: two outputs.
SELECTION = {"cifar_resnet110_binary": "cifar_resnet110"}
USUAL = {MACER: "cifar_resnet110", LANET: "lanet"}
# Tried, besides our own, for a state dict that does not say what it is.
FAMILIES = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "efficientnet_b0",
    "efficientnet_b7",
)
# Second classifiers, which are in torchvision's files and not in our networks.
SECOND_HEADS = {"inception_v3": ("AuxLogits.",), "googlenet": ("aux1.", "aux2.")}
_SYNONYMS = (
    (re.compile(r"^(?:linear|classifier|head|out|output)\.(weight|bias)$"), r"fc.\1"),
    (re.compile(r"\.shortcut\."), ".downsample."),
    (re.compile(r"\.skip\."), ".downsample."),
)

State = dict[str, Tensor]
# What quantisation adds beside the weights of a layer.
_QUANTISED = re.compile(r"(zero_point|float_weight|_packed_params)$")


class Match(NamedTuple):
    """A network that fits, with the state dict under the names of our network."""

    arch: str
    state: State
    last: str = ""  # the last tensor: one value, or one row, for each output
    by_order: bool = False  # whether the names told nothing, and the order of the tensors did
    options: Mapping[str, Any] | None = None  # what `build` needs besides the name


def recognise(
    weights: Weights, path: Path, *, asked: str | None, num_classes: int, channels: int
) -> list[Match]:
    """The networks that fit: one, or several that differ in what has no parameters.

    `asked` is the name the user gives; InputError if the file does not hold that network.
    """
    if weights.options is not None and asked in (None, weights.arch):
        return [_as_recorded(weights, path, asked=asked, sizes=(num_classes, channels))]
    levels = list(_levels(weights.state))
    found = _matches(weights, path, levels, asked=asked, num_classes=num_classes, channels=channels)
    if not found:
        raise InputError(_explain(weights, path, asked=asked, channels=channels, levels=levels))
    if (weights.arch or "").startswith("plain"):
        found = [match for match in found if match.arch == PLAIN] or found
    given = len(found[0].state[found[0].last])
    if given != num_classes:
        raise InputError(
            f"checkpoint {path} has {given} outputs, expected {num_classes}: it was trained for "
            "other classes than the dataset's"
        )
    return found


def _matches(
    weights: Weights,
    path: Path,
    levels: list[State],
    *,
    asked: str | None,
    num_classes: int,
    channels: int,
) -> list[Match]:
    """The networks of the file: by name, by structure, or one of torchvision's."""
    sizes = {"num_classes": num_classes, "channels": channels}
    if asked is not None:
        if choices_of(asked) is not None:
            structural = _structural(levels, channels=channels)
            return [match for match in structural if match.arch == asked]
        found = _first_fit([asked], levels, **sizes)
        return [found] if found else []
    found = _first_fit(list(_candidates(weights)), levels, **sizes)
    if found is not None:
        return _same_parameters(found, _structural(levels, channels=channels))
    if structural := _structural(levels, channels=channels):
        return structural
    if channels == 3:
        found = _first_fit([*_by_file_name(path.name), *FAMILIES], levels, **sizes)
    return [found] if found else []


def _as_recorded(
    weights: Weights, path: Path, *, asked: str | None, sizes: tuple[int, int]
) -> Match:
    """The network of a file of ours whose header says how to build it.

    The header may name a function of the user's. It is called only if the user names it too:
    otherwise a file could have any module imported.
    """
    assert weights.arch is not None and weights.options is not None
    recipe = {"arch": weights.arch, "options": weights.options}
    foreign = [name for name in functions_in(recipe) if name != asked]
    if foreign:
        raise InputError(
            f"checkpoint {path} is of the function {foreign[0]}, which would be run to build the "
            f"network: if you trust it, name it (--arch {foreign[0]}, or the arch in params.yaml)"
        )
    num_classes, channels = sizes
    ones = [1.0] * channels
    expected = shapes(recipe | {"num_classes": num_classes, "mean": ones, "std": ones}, path)
    if not fits(
        {name: expected[name] for name in expected if name not in OWN_NORMALIZATION}, weights.state
    ):
        raise InputError(
            f"checkpoint {path} holds no {weights.arch} with {num_classes} outputs for images of "
            f"{channels} channels: import the network again, for this dataset"
        )
    state = {name.removeprefix("network."): tensor for name, tensor in weights.state.items()}
    return Match(weights.arch, state, options=weights.options)


def skeleton(arch: str, *, num_classes: int, channels: int) -> State:
    """The names and shapes of a network's tensors, without memory for them."""
    with torch.device("meta"):
        ones = (1.0,) * channels
        network = build(arch, num_classes=num_classes, mean=ones, std=ones).network
    return _relevant(network.state_dict(), arch)


def _structural(levels: list[State], *, channels: int) -> list[Match]:
    """The residual networks of a file, whatever their depth, widths and blocks."""
    for level in levels:
        structure = read_structure(_relevant(level, ""), channels=channels)
        if structure is not None:
            options = structure.plan.as_options()
            return [
                Match(name, structure.state, "fc.weight", options=options)
                for name in structure.names
            ]
    return []


def _levels(state: State) -> Iterator[State]:
    """The state dict as it is, then without one wrapper's prefix after another."""
    level: State | None = state
    while level is not None:
        yield level
        level = without_prefix(level)


def _candidates(weights: Weights) -> Iterator[str]:
    """Names of networks to try first: what the file says, and our own, which are quickly built."""
    recorded = SELECTION.get(weights.arch or "", weights.arch)
    for name in (recorded, f"timm/{recorded}", USUAL.get(weights.format)):
        if name and is_harmless(name):
            yield name
    yield from _cifar_resnets(weights.state)
    yield from (name for name in ARCHITECTURES if cifar_resnet.design(name) is None)


def _by_file_name(name: str) -> list[str]:
    """torchvision's files begin with the network's name: resnet50-0676ba61.pth."""
    from aces.vision import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    return sorted((known for known in names if name.startswith(known)), key=len, reverse=True)


def _cifar_resnets(state: State) -> Iterator[str]:
    """The CIFAR ResNet whose depth, width and shortcuts the shapes tell."""
    kernels = [tuple(tensor.shape) for tensor in state.values() if tensor.ndim == 4]
    main = [shape for shape in kernels if shape[2:] == (3, 3)]
    blocks = cifar_resnet.blocks_of(len(main) + 1)
    if blocks is None:
        return
    width = min(shape[0] for shape in main)  # of the first stage
    shortcut = "" if len(kernels) > len(main) else "-a"
    yield cifar_resnet.Design(blocks, width, shortcut).name


def _same_parameters(match: Match, structural: list[Match]) -> list[Match]:
    """The match, and networks with the same tensors that compute something else.

    A regular network goes by its short name, the others by their structure.
    """
    if not cifar_resnet.design(match.arch) or not structural:
        return [match]
    names = {name_of(frozenset()): match}
    if match.arch.endswith("-a"):
        names[name_of(frozenset({"end"}))] = match._replace(arch=f"{match.arch}-end")
    return [names.get(other.arch, other) for other in structural]


def _first_fit(
    names: list[str], levels: list[State], *, num_classes: int, channels: int
) -> Match | None:
    skeletons: dict[str, State] = {}
    for by_order in (False, True):
        for name in names:
            if name not in skeletons:
                skeletons[name] = skeleton(name, num_classes=num_classes, channels=channels)
            expected = skeletons[name]
            for level in levels:
                given = _relevant(level, name)
                state = _in_order(expected, given) if by_order else _by_name(expected, given)
                if state is not None:
                    counters = _counters(level) if not by_order else {}
                    return Match(name, state | counters, next(reversed(expected)), by_order)
    return None


def _by_name(expected: State, given: State) -> State | None:
    """The given tensors under the expected names, if names and shapes agree."""
    for state in (given, _renamed(given)):
        if state.keys() == expected.keys() and all(
            expected[name].shape[1:] == state[name].shape[1:] for name in expected
        ):
            return {name: state[name] for name in expected}
    return None


def _renamed(state: State) -> State:
    names = {}
    for name in state:
        new = name
        for pattern, replacement in _SYNONYMS:
            new = pattern.sub(replacement, new)
        names[new] = state[name]
    return names


def _in_order(expected: State, given: State) -> State | None:
    """The given tensors under the expected names, if kinds and shapes agree one after another."""
    if len(expected) != len(given):
        return None
    pairs = list(zip(expected.items(), given.items(), strict=True))
    for place, ((name, wanted), (other, tensor)) in enumerate(pairs):
        same_kind = name.rpartition(".")[2] == other.rpartition(".")[2]
        last = place >= len(pairs) - 2  # the layer whose first size is the number of classes
        shapes = (wanted.shape[1:], tensor.shape[1:]) if last else (wanted.shape, tensor.shape)
        if not same_kind or shapes[0] != shapes[1]:
            return None
    return {name: tensor for (name, _), (_, tensor) in pairs}


def _relevant(state: State, arch: str) -> State:
    """Without the second classifiers we do not build, and without the batch counters."""
    heads = SECOND_HEADS.get(arch.removeprefix("torchvision/"), ())
    return {
        name: tensor
        for name, tensor in state.items()
        if not name.startswith(heads) and not name.endswith(COUNTER)
    }


def _counters(state: State) -> State:
    return {name: tensor for name, tensor in state.items() if name.endswith(COUNTER)}


def _explain(
    weights: Weights, path: Path, *, asked: str | None, channels: int, levels: list[State]
) -> str:
    """Why nothing fits, as one line."""
    recorded = SELECTION.get(weights.arch or "", weights.arch)
    if asked:
        others = _matches(weights, path, levels, asked=None, num_classes=10, channels=channels)
        if others:
            return (
                f"checkpoint {path} holds {others[0].arch}, not arch={asked!r}: set the arch to "
                f"{others[0].arch}"
            )
    arch = asked or (recorded if recorded and is_harmless(recorded) else USUAL.get(weights.format))
    if any(_QUANTISED.search(name) for name in weights.state):
        return (
            f"checkpoint {path} holds a quantised network: take the file from before it was "
            "quantised (sample.precision: int8 makes ACES quantise it)"
        )
    if arch is None and not any(tensor.ndim == 2 for tensor in weights.state.values()):
        return (
            f"checkpoint {path} has no linear layer, and is no FFDNet, DnCNN or IRCNN: if it is a "
            "classifier, name its arch (--arch); another denoiser comes before a classifier in "
            "Python, by aces.networks.before"
        )
    if arch is None:
        known = ", ".join((*ARCHITECTURES, *FAMILIES))
        called = f", which it calls {weights.arch!r}" if weights.arch else ""
        return (
            f"checkpoint {path} does not say which network it holds{called}, and it is none of "
            f"{known} nor another residual network for small images: if it is whole, name its "
            "arch, such as --arch timm/NAME, or --arch package.module:function for a function of "
            "yours that builds it"
        )
    if choices_of(arch) is not None:
        return f"checkpoint {path} holds no residual network {arch}: is the file whole?"
    expected = skeleton(arch, num_classes=10, channels=channels)
    given = max(
        (_relevant(level, arch) for level in levels),
        key=lambda level: len(level.keys() & expected.keys()),
    )
    problems = {
        "are missing": [name for name in expected if name not in given],
        "are unexpected": [name for name in given if name not in expected],
        "have another shape": [
            name
            for name, tensor in expected.items()
            if name in given and tensor.shape[1:] != given[name].shape[1:]
        ],
    }
    found = [
        f"{len(names)} {what} ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"
        for what, names in problems.items()
        if names
    ]
    return (
        f"checkpoint {path} does not fit {arch}, keys: {'; '.join(found)}: is the file whole, and "
        "its arch right?"
    )
