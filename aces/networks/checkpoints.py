"""Published checkpoints as networks: the format, the architecture and the normalisation are found,
and said.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from aces import data
from aces.data import EvalSet, Info
from aces.errors import InputError
from aces.networks import evidence
from aces.networks.evidence import NORMALIZATIONS
from aces.networks.formats import LANET, MACER, Weights, read_weights
from aces.networks.normalization import Classifier, Normalize
from aces.networks.registry import ARCHITECTURES, build

SELECTION = {
    "cifar_resnet110_binary": "cifar_resnet110"
}  # the selection networks of ACES: two outputs
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
SECOND_HEADS = {
    "inception_v3": ("AuxLogits.",),
    "googlenet": ("aux1.", "aux2."),
}  # in torchvision's files, not in ours
COUNTER = "num_batches_tracked"  # of batch norm; old files lack it, and evaluation does not use it


@dataclass(frozen=True)
class Imported:
    """A network from a checkpoint, and what was found."""

    module: nn.Module  # evaluation mode, on the CPU; [0, 1] pixels -> logits
    format: str
    arch: str
    num_classes: int
    normalization: str  # recorded (in the file), full, center or none
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sigma: float | None  # the noise it was trained with, if that is known
    accuracy: dict[
        str, float
    ]  # by normalisation, on single noisy copies of some images; empty if not measured
    notes: list[str]  # for people: what was found, and why
    checked: bool  # whether the normalisation is more than a rule's

    @property
    def near_chance(self) -> bool:
        """Whether the network was seen to answer hardly better than chance."""
        return self.accuracy.get(self.normalization, 1.0) < 2 / self.num_classes


def load_checkpoint(
    path: str | Path, *, dataset: str, normalization: str = "auto", arch: str | None = None
) -> nn.Module:
    """The network in a checkpoint of this or a published project, in evaluation mode: [0, 1] pixels
    -> logits.

    `normalization` is auto, full, center or none; with auto, the evaluation images of the pipeline
    decide if they are there. `import_checkpoint` gives the same network with what was found.
    """
    return import_checkpoint(
        path,
        dataset=dataset,
        normalization=normalization,
        arch=arch,
        evaluation=evaluation_images(dataset),
    ).module


def evaluation_images(dataset: str) -> EvalSet | None:
    """The evaluation images the pipeline has written here, if it has."""
    path = Path("data") / dataset / "eval.npz"
    return data.read_eval(path) if path.is_file() else None


def import_checkpoint(
    path: str | Path,
    *,
    dataset: str,
    normalization: str = "auto",
    arch: str | None = None,
    num_classes: int | None = None,
    sigma: float | None = None,
    evaluation: EvalSet | None = None,
) -> Imported:
    """Read a checkpoint, find out what it is, and build the network.

    num_classes: the outputs it must have; by default the dataset's classes, or two for a selection
    network of ACES. sigma: the noise it was trained with; by default what its path says, else none.
    evaluation: images whose accuracy, under that noise, decides on the normalisation.
    """
    if normalization not in NORMALIZATIONS:
        raise InputError(
            f"normalization={normalization!r}: expected one of {', '.join(NORMALIZATIONS)}"
        )
    path, info = Path(path), data.info(dataset)
    weights = read_weights(path)
    name = _architecture(weights, path, asked=arch, info=info)
    if num_classes is None:
        num_classes = 2 if weights.arch in SELECTION else info.num_classes
    network = _network(weights.state, path, arch=name, num_classes=num_classes, info=info)

    sigma = evidence.sigma_in(path) if sigma is None else sigma
    kinds = evidence.candidates(weights, arch=name, info=info)
    chosen, reason = evidence.propose(weights, path, kinds, asked=normalization)
    accuracy = {}
    if (
        evaluation is not None
        and len(evaluation.label) >= evidence.LEAST
        and num_classes == info.num_classes
    ):
        accuracy = evidence.accuracies(network, kinds, evaluation, sigma=sigma or 0.0)
        chosen, reason = evidence.weigh(accuracy, chosen, reason, asked=normalization)
    elif len(kinds) > 1:
        reason += ", not checked" + (
            " for want of evaluation images" if num_classes == info.num_classes else ""
        )
    mean, std = kinds[chosen]
    notes = [
        f"format: {weights.format}, {len(weights.state)} tensors",
        f"network: {name}, {num_classes} outputs",
        f"normalisation: {chosen} ({reason})",
    ]
    if accuracy:
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in accuracy.items())
        notes.append(
            f"accuracy on {min(evidence.IMAGES, len(evaluation.label))} images, one copy each at sigma "
            f"{sigma or 0:g}: {shares}"
        )
    module = Classifier(Normalize(mean, std), network).eval()
    module.recipe = {"arch": name, "num_classes": num_classes, "mean": mean, "std": std}
    return Imported(
        module=module,
        format=weights.format,
        arch=name,
        num_classes=num_classes,
        normalization=chosen,
        mean=mean,
        std=std,
        sigma=sigma,
        accuracy=accuracy,
        notes=notes,
        checked=bool(accuracy) or len(kinds) == 1 or normalization != "auto",
    )


def _architecture(weights: Weights, path: Path, *, asked: str | None, info: Info) -> str:
    """The name that `build` knows: what the file says, else what the user says, else the one whose
    tensors fit.
    """
    recorded = SELECTION.get(weights.arch, weights.arch)
    if recorded and asked and recorded != asked:
        raise InputError(
            f"checkpoint {path} holds {recorded}, not arch={asked!r}: set the arch to {recorded}"
        )
    found = (
        recorded
        or asked
        or _fitting(weights.state, path.name, info=info)
        or USUAL.get(weights.format)
    )
    if found is None:
        known = ", ".join((*ARCHITECTURES, *FAMILIES))
        raise InputError(
            f"checkpoint {path} does not say which network it holds, and it is none of {known}: if it is "
            "whole, name its arch (--arch)"
        )
    return found


def _fitting(state: dict[str, Tensor], file: str, *, info: Info) -> str | None:
    """The network with these names and shapes, whatever its number of classes."""
    from aces.vision import torchvision

    # torchvision's files begin with the network's name: resnet50-0676ba61.pth
    named = [
        name
        for name in torchvision.models.list_models(module=torchvision.models)
        if file.startswith(name)
    ]
    others = (*sorted(named, key=len, reverse=True), *FAMILIES) if info.shape[0] == 3 else ()
    for arch in (*ARCHITECTURES, *others):
        expected, given = (
            _skeleton(arch, num_classes=info.num_classes, info=info),
            _relevant(state, arch),
        )
        if expected.keys() == given.keys() and all(
            expected[key].shape[1:] == given[key].shape[1:] for key in expected
        ):
            return arch
    return None


def _skeleton(arch: str, *, num_classes: int, info: Info) -> dict[str, Tensor]:
    """The names and shapes of a network's parameters, without memory for them."""
    with torch.device("meta"):
        network = build(arch, num_classes=num_classes, mean=info.mean, std=info.std).network
    return _relevant(network.state_dict(), arch)


def _relevant(state: dict[str, Tensor], arch: str) -> dict[str, Tensor]:
    """Without the second classifiers we do not build, and without the batch counters."""
    return {
        name: tensor
        for name, tensor in state.items()
        if not name.startswith(SECOND_HEADS.get(arch, ())) and not name.endswith(COUNTER)
    }


def _network(
    state: dict[str, Tensor], path: Path, *, arch: str, num_classes: int, info: Info
) -> nn.Module:
    """The bare network with these weights: each of its parameters is there, with its shape, and
    nothing else is.
    """
    expected, given = _skeleton(arch, num_classes=num_classes, info=info), _relevant(state, arch)
    last = next(reversed(expected))  # the bias of the last layer: a number for each output
    if last in given and len(given[last]) != num_classes:
        raise InputError(
            f"checkpoint {path} has {len(given[last])} outputs, expected {num_classes}: it was trained "
            f"for other classes than {info.name}'s"
        )
    problems = {
        "are missing": [name for name in expected if name not in given],
        "are unexpected": [name for name in given if name not in expected],
        "have another shape": [
            name
            for name, tensor in expected.items()
            if name in given and tensor.shape != given[name].shape
        ],
    }
    found = [
        f"{len(names)} {what} ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"
        for what, names in problems.items()
        if names
    ]
    if found:
        raise InputError(
            f"checkpoint {path} does not fit {arch}, keys: {'; '.join(found)}: is the file whole, and its "
            "arch right?"
        )
    network = build(arch, num_classes=num_classes, mean=info.mean, std=info.std).network
    counters = {
        name: state[name]
        for name in network.state_dict()
        if name.endswith(COUNTER) and name in state
    }
    network.load_state_dict(given | counters)  # strict, except that absent counters start at 0
    return network.eval()
