"""The structure of a residual network, read from the names and shapes of its tensors.

Names differ between projects, but every project numbers its blocks and convolutions in the order in
which they are run: `layer1.0.conv2`, `block1.layer.0.conv2`, `conv2_x.0.residual_function.3`,
`stage_1.0.conv_b`, `stage1.unit1.body.conv2.conv`. So tensors are grouped by block, and sorted by
name within it, or if that does not fit, as in the file. Whether batch norm comes before or after a
convolution is seen from its width.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from aces.networks.residual import PLAIN, BlockPlan, Convolution, Plan, name_of

State = dict[str, Tensor]

# Unused blocks that the wide ResNets of TRADES and its descendants carry along.
UNUSED = re.compile(r"(^|\.)sub_block1\.")
_SHORTCUT = re.compile(r"short|down|skip|proj|ident|convdim", re.IGNORECASE)
_NUMBERED = re.compile(r"\d+|(unit|block)_?\d+", re.IGNORECASE)


class Layer(NamedTuple):
    """A convolution, batch norm or linear layer of the file."""

    path: str
    kind: str  # "conv", "norm" or "linear"
    weight: Tensor
    leaves: tuple[str, ...]

    @property
    def width(self) -> int:
        return self.weight.shape[0]

    @property
    def removed(self) -> bool:
        return self.weight.is_meta is False and not self.weight.any()


class Structure(NamedTuple):
    """A residual network in a file: its plan, and the file's tensors under our names."""

    plan: Plan
    state: State
    names: tuple[str, ...]  # the networks it can be, which differ in what has no parameters


def read_structure(state: State, *, channels: int) -> Structure | None:
    """The residual network that a state dict holds; None if it holds none."""
    state = {name: tensor for name, tensor in state.items() if not UNUSED.search(name)}
    layers = layers_of(state)
    if layers is None:
        return None
    # Files of torch have the order in which the layers were made; those of safetensors do not.
    places = {name.rpartition(".")[0]: place for place, name in enumerate(state)}
    as_made = sorted(layers, key=lambda layer: places[layer.path])
    return _read(layers, state, channels) or _read(as_made, state, channels)


def _read(layers: list[Layer], state: State, channels: int) -> Structure | None:
    """The network whose blocks have their layers in this order."""
    groups = _groups(layers)
    root = groups.pop((), [])
    blocks = [_split(group) for group in groups.values()]
    stems, heads = _of_kind(root, "conv"), _of_kind(root, "linear")
    if not blocks or None in blocks or len(stems) != 1 or len(heads) != 1:
        return None
    if not _consecutive(list(groups)) or stems[0].weight.shape[1:] != (channels, 3, 3):
        return None
    parts = _Parts(stems[0], [block for block in blocks if block], heads[0])
    return _structure(parts, _of_kind(root, "norm"), state)


class _Block(NamedTuple):
    convs: list[Layer]
    norms: list[Layer]
    projection: Layer | None
    projection_norm: Layer | None


class _Parts(NamedTuple):
    stem: Layer
    blocks: list[_Block]
    head: Layer


def layers_of(state: State) -> list[Layer] | None:
    """The layers of a file in the order of their names; None if it has others than these kinds."""
    leaves: dict[str, list[str]] = {}
    for name in state:
        path, _, leaf = name.rpartition(".")
        leaves.setdefault(path, []).append(leaf)
    found = []
    for path in sorted(leaves, key=_natural):
        kind = _kind(state, path, set(leaves[path]))
        if kind is None:
            return None
        found.append(Layer(path, kind, state[f"{path}.weight"], tuple(leaves[path])))
    return found


def _kind(state: State, path: str, leaves: set[str]) -> str | None:
    dimensions = state[f"{path}.weight"].ndim if path and "weight" in leaves else 0
    if dimensions == 1 and leaves == {"weight", "bias", "running_mean", "running_var"}:
        return "norm"
    if not leaves <= {"weight", "bias"}:
        return None
    return {4: "conv", 2: "linear"}.get(dimensions)


def _natural(path: str) -> list[tuple[int, str]]:
    """A key that sorts layer2 before layer10."""
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _groups(layers: list[Layer]) -> dict[tuple[str, ...], list[Layer]]:
    """The layers of each block, in the order of the blocks; those of none under the key ()."""
    groups: dict[tuple[str, ...], list[Layer]] = {}
    for layer in layers:
        groups.setdefault(_block_of(layer.path), []).append(layer)
    return groups


def _block_of(path: str) -> tuple[str, ...]:
    """`layer1.0` of `layer1.0.shortcut.1`: up to the last number that a name follows."""
    parts = path.split(".")
    named = max((place for place, part in enumerate(parts) if not part.isdigit()), default=0)
    numbered = [place for place, part in enumerate(parts[:named]) if _NUMBERED.fullmatch(part)]
    return tuple(parts[: numbered[-1] + 1]) if numbered else ()


def _consecutive(blocks: list[tuple[str, ...]]) -> bool:
    """Whether no block is missing between two others: then the file would be damaged."""
    for _, stage in itertools.groupby(blocks, key=lambda block: block[:-1]):
        numbers = [int(re.sub(r"\D", "", block[-1])) for block in stage]
        if numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            return False
    return True


def _of_kind(layers: list[Layer], kind: str) -> list[Layer]:
    return [layer for layer in layers if layer.kind == kind]


def _split(group: list[Layer]) -> _Block | None:
    """The parts of a block: the convolutions one after another, and those around them."""
    within = len(_block_of(group[0].path))
    around = [
        layer for layer in group if _SHORTCUT.search(".".join(layer.path.split(".")[within:]))
    ]
    inside = [layer for layer in group if layer not in around]
    convs, norms = _of_kind(inside, "conv"), _of_kind(inside, "norm")
    projections, projection_norms = _of_kind(around, "conv"), _of_kind(around, "norm")
    if _kernels(convs) in ((3, 3, 1), (1, 3, 1, 1)) and not projections:
        projections = [convs.pop()]
        projection_norms = [norms.pop()] if len(norms) > len(convs) else []
    if _of_kind(group, "linear") or not convs or max(len(projections), len(projection_norms)) > 1:
        return None
    if len(norms) not in (0, len(convs)):
        return None
    return _Block(
        convs, norms, *(each[0] if each else None for each in (projections, projection_norms))
    )


def _kernels(convs: list[Layer]) -> tuple[int, ...]:
    return tuple(conv.weight.shape[-1] for conv in convs)


def _structure(parts: _Parts, root_norms: list[Layer], state: State) -> Structure | None:
    preactivated = _preactivated(parts.blocks, list(state))
    last = parts.blocks[-1].convs[-1].width
    stem_norm, final_norm = _ends(root_norms, parts, preactivated=preactivated)
    blocks, width = [], parts.stem.width
    for place, block in enumerate(parts.blocks):
        planned = _plan_block(block, width, first=place == 0, preactivated=preactivated)
        if planned is None:
            return None
        blocks.append(planned)
        width = planned.width
    norms = {bool(block.norms) for block in parts.blocks}
    used = sum(norm is not None for norm in (stem_norm, final_norm))
    if len(norms) > 1 or used != len(root_norms) or parts.head.weight.shape[1] != last:
        return None
    plan = Plan(
        stem=_convolution(parts.stem, 1),
        blocks=tuple(blocks),
        preactivated=preactivated,
        norms=norms.pop(),
        stem_norm=stem_norm is not None,
        final_norm=final_norm is not None,
    )
    pairs = [*_pairs(parts), (stem_norm, "stem_norm"), (final_norm, "final_norm")]
    ours = {
        f"{name}.{leaf}": state[f"{layer.path}.{leaf}"]
        for layer, name in pairs
        if layer is not None
        for leaf in layer.leaves
    }
    return Structure(plan, ours, tuple(_names(plan, parts)))


def _preactivated(blocks: list[_Block], order: list[str]) -> bool:
    """Whether batch norm comes before the convolutions: then it has the width that goes in."""
    for block in blocks:
        if block.norms and block.convs[0].weight.shape[1] != block.convs[0].width:
            return block.norms[0].width != block.convs[0].width
    first = blocks[0]
    return bool(first.norms) and order.index(f"{first.norms[0].path}.weight") < order.index(
        f"{first.convs[0].path}.weight"
    )


def _ends(
    norms: list[Layer], parts: _Parts, *, preactivated: bool
) -> tuple[Layer | None, Layer | None]:
    """The batch norms after the first convolution and before the last layer."""
    last = parts.blocks[-1].convs[-1].width
    final = next((norm for norm in reversed(norms) if preactivated and norm.width == last), None)
    stem = next((norm for norm in norms if norm.width == parts.stem.width), None)
    return (None if stem is final else stem), final


def _plan_block(block: _Block, width: int, *, first: bool, preactivated: bool) -> BlockPlan | None:
    """The plan of a block that gets `width` channels; None if its layers do not fit each other."""
    planned, before = [], width
    for place, conv in enumerate(block.convs):
        given = conv.weight.shape[1]
        fits = before % given == 0 and (before == given or given > 1)  # no depthwise convolutions
        if block.norms:
            fits &= block.norms[place].width == (before if preactivated else conv.width)
        if not fits or conv.weight.shape[-1] not in (1, 3) or not _is_square(conv):
            return None
        planned.append(_convolution(conv, before // given))
        before = conv.width
    projection = block.projection
    if projection is not None and (
        projection.weight.shape[:2] != (before, width)
        or not _is_square(projection)
        or projection.weight.shape[-1] not in (1, 3)
    ):
        return None
    if block.projection_norm is not None and (
        projection is None or block.projection_norm.width != before
    ):
        return None
    starts = before != width or projection is not None
    return BlockPlan(
        convolutions=tuple(planned),
        stride=2 if starts and not first else 1,
        projection=None if projection is None else _convolution(projection, 1),
        projection_norm=block.projection_norm is not None,
        removed=_removed(block, width),
    )


def _is_square(conv: Layer) -> bool:
    return conv.weight.shape[-1] == conv.weight.shape[-2]


def _removed(block: _Block, width: int) -> tuple[int, ...]:
    """The convolutions with zeros alone, if the block works without them."""
    if any(conv.weight.shape[:2] != (width, width) for conv in block.convs):
        return ()
    return tuple(place for place, conv in enumerate(block.convs) if conv.removed)


def _convolution(conv: Layer, groups: int) -> Convolution:
    return Convolution(conv.width, conv.weight.shape[-1], groups, bias="bias" in conv.leaves)


def _pairs(parts: _Parts) -> Iterator[tuple[Layer | None, str]]:
    """Each layer of the file with the name it has in `ResidualNetwork`."""
    yield parts.stem, "stem"
    yield parts.head, "fc"
    for number, block in enumerate(parts.blocks):
        for kind, layers in (("convs", block.convs), ("norms", block.norms)):
            for place, layer in enumerate(layers):
                yield layer, f"blocks.{number}.{kind}.{place}"
        yield block.projection, f"blocks.{number}.shortcut.projection"
        yield block.projection_norm, f"blocks.{number}.shortcut.norm"


def _names(plan: Plan, parts: _Parts) -> Iterator[str]:
    """The networks of this plan, the most usual first: all combinations of the open choices."""
    changing = [block for block in plan.blocks if block.stride > 1]
    padded = [block for block in changing if block.projection is None]
    # A projection behind a pooling layer has the second place in its sequence: `downsample.1`.
    pooled = any(
        block.projection is not None and re.search(r"\.1$", block.projection.path)
        for block in parts.blocks
    )
    open_choices = {
        "end": bool(padded),
        "mean": bool(padded) and len(padded) == len(changing),
        "raw": plan.preactivated and bool(changing),
        "early": any(block.convolutions[0].kernel == 1 for block in changing),
        "pool": len(changing) > 2,  # four stages, as networks for larger images have them
        "removed": any(block.removed for block in plan.blocks),
    }
    fixed = frozenset({"mean"} if pooled else ())
    choices = [choice for choice, is_open in open_choices.items() if is_open]
    for count in range(len(choices) + 1):
        for chosen in itertools.combinations(choices, count):
            yield name_of(fixed | frozenset(chosen))
    if padded and not plan.preactivated and not any(block.projection for block in plan.blocks):
        yield PLAIN
