"""Published checkpoints as networks: the format, the architecture and the normalisation are found, and said.

The trap is the normalisation, which no published file records. With a wrong one a network still answers, at about
30 % accuracy. So a rule proposes one by where the file comes from, and where evaluation images are at hand the
accuracy under every candidate decides.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from aces import data, runtime
from aces.console import progress
from aces.data import EvalSet, Info
from aces.errors import InputError
from aces.models import lanet
from aces.models.formats import LANET, MACER, SMOOTHING, Weights, read_weights
from aces.models.normalization import Classifier, Normalize
from aces.models.registry import ARCHITECTURES, build

NORMALIZATIONS = ("auto", "full", "center", "none")  # full: (x - mean) / std, center: x - mean
SELECTION = {"cifar_resnet110_binary": "cifar_resnet110"}  # the selection networks of ACES: two outputs
USUAL = {MACER: "cifar_resnet110", LANET: "lanet"}
# Tried, besides our own, for a state dict that does not say what it is.
FAMILIES = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "efficientnet_b0", "efficientnet_b7")
SECOND_HEADS = {"inception_v3": ("AuxLogits.",), "googlenet": ("aux1.", "aux2.")}  # in torchvision's files, not in ours
IMAGES = 100   # enough to tell 30 % from 70 %
MARGIN = 0.10  # by how much accuracy must speak against the rule

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean, std


@dataclass(frozen=True)
class Imported:
    """A network from a checkpoint, and what was found."""

    module: nn.Module           # evaluation mode, on the CPU; [0, 1] pixels -> logits
    format: str
    arch: str
    num_classes: int
    normalization: str          # recorded (in the file), full, center or none
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sigma: float | None         # the noise it was trained with, if its path says so
    accuracy: dict[str, float]  # by normalisation, on single noisy copies of some evaluation images; empty if not measured
    notes: list[str]            # for people: what was found, and why

    @property
    def near_chance(self) -> bool:
        """Whether the network was seen to answer hardly better than chance."""
        return self.accuracy.get(self.normalization, 1.0) < 2 / self.num_classes


def load_checkpoint(path: str | Path, *, dataset: str, normalization: str = "auto", arch: str | None = None) -> nn.Module:
    """The network in a checkpoint of this or a published project, in evaluation mode: [0, 1] pixels -> logits.

    `normalization` is auto, full, center or none; with auto, the evaluation images of the pipeline decide if they
    are there. `import_checkpoint` gives the same network with what was found.
    """
    return import_checkpoint(path, dataset=dataset, normalization=normalization, arch=arch, evaluation=evaluation_images(dataset)).module


def evaluation_images(dataset: str) -> EvalSet | None:
    """The evaluation images the pipeline has written here, if it has."""
    path = Path("data") / dataset / "eval.npz"
    return data.read_eval(path) if path.is_file() else None


def import_checkpoint(path: str | Path, *, dataset: str, normalization: str = "auto", arch: str | None = None,
                      num_classes: int | None = None, evaluation: EvalSet | None = None) -> Imported:
    """Read a checkpoint, find out what it is, and build the network.

    num_classes: the outputs it must have; by default the dataset's classes, or two for a selection network of ACES.
    evaluation: images whose accuracy decides on the normalisation.
    """
    if normalization not in NORMALIZATIONS:
        raise InputError(f"normalization={normalization!r}: expected one of {', '.join(NORMALIZATIONS)}")
    info = data.info(dataset)
    weights = read_weights(path)
    name = _architecture(weights, path, asked=arch, info=info)
    if num_classes is None:
        num_classes = 2 if weights.arch in SELECTION else info.num_classes
    network = _network(weights.state, path, arch=name, num_classes=num_classes, info=info)
    sigma = _sigma(path)

    candidates = _candidates(weights, arch=name, info=info)
    chosen, reason = _propose(weights, path, asked=normalization)
    accuracy = {}
    if evaluation is not None and num_classes == info.num_classes:
        accuracy = _accuracies(network, candidates, evaluation, sigma=sigma or 0.0)
        chosen, reason = _weigh(accuracy, chosen, reason, asked=normalization)
    elif len(candidates) > 1 and normalization == "auto":
        reason += ", not checked" + ("" if evaluation is not None else f" for want of data/{dataset}/eval.npz")
    mean, std = candidates[chosen]
    notes = [f"format: {weights.format}, {len(weights.state)} tensors", f"network: {name}, {num_classes} outputs",
             f"normalisation: {chosen} ({reason})"]
    if accuracy:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in accuracy.items())
        notes.append(f"accuracy on {min(IMAGES, len(evaluation.label))} images, one copy each at sigma {sigma or 0:g}: {shares}")
    return Imported(module=Classifier(Normalize(mean, std), network).eval(), format=weights.format, arch=name, num_classes=num_classes,
                    normalization=chosen, mean=mean, std=std, sigma=sigma, accuracy=accuracy, notes=notes)


@torch.inference_mode()
def accuracy_of(module: nn.Module, evaluation: EvalSet, *, sigma: float = 0.0, batch: int = 50, title: str = "accuracy") -> float:
    """The share of images whose single noisy copy `module` classifies correctly; the noise is the same in every call."""
    device = runtime.from_environment().device
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    module = module.to(device)
    generator = torch.Generator().manual_seed(0)
    correct = 0
    with progress(title, len(evaluation.label), "images") as bar:
        for start in range(0, len(evaluation.label), batch):
            x = data.to_tensor(evaluation.image[start:start + batch])
            x = x + sigma * torch.randn(x.shape, generator=generator)
            predicted = module(x.to(device)).argmax(dim=1).cpu().numpy()
            correct += int((predicted == evaluation.label[start:start + batch]).sum())
            bar.advance(len(x))
    module.to("cpu")
    return correct / len(evaluation.label)


def _architecture(weights: Weights, path: str | Path, *, asked: str | None, info: Info) -> str:
    """The name that `build` knows: what the file says, else what the user says, else the one whose tensors fit."""
    recorded = SELECTION.get(weights.arch, weights.arch)
    if recorded and asked and recorded != asked:
        raise InputError(f"checkpoint {path} holds {recorded}, not arch={asked!r}: set the network's arch to {recorded}")
    found = recorded or asked or _fitting(weights.state, Path(path).name, info=info) or USUAL.get(weights.format)
    if found is None:
        raise InputError(f"checkpoint {path} does not say which network it holds, and it is none of {', '.join((*ARCHITECTURES, *FAMILIES))}: "
                         "if it is whole, name its arch (--arch)")
    return found


def _fitting(state: dict[str, Tensor], file: str, *, info: Info) -> str | None:
    """The network with these names and shapes, whatever its number of classes."""
    from aces.models.vision import torchvision
    # torchvision's files begin with the network's name: resnet50-0676ba61.pth
    named = [name for name in torchvision.models.list_models(module=torchvision.models) if file.startswith(name)]
    others = (*sorted(named, key=len, reverse=True), *FAMILIES) if info.shape[0] == 3 else ()
    for arch in (*ARCHITECTURES, *others):
        expected = _skeleton(arch, num_classes=info.num_classes, info=info)
        present = _relevant(state, arch)
        if expected.keys() == present.keys() and all(tensor.shape[1:] == present[name].shape[1:] for name, tensor in expected.items()):
            return arch
    return None


def _skeleton(arch: str, *, num_classes: int, info: Info) -> dict[str, Tensor]:
    """The names and shapes of a network's parameters, without memory for them; batch counters are not counted."""
    with torch.device("meta"):
        network = build(arch, num_classes=num_classes, mean=info.mean, std=info.std).network
    return _relevant(network.state_dict(), arch)


def _relevant(state: dict[str, Tensor], arch: str) -> dict[str, Tensor]:
    """Without the second classifiers we do not build, and without the batch counters, which old files lack."""
    return {name: tensor for name, tensor in state.items()
            if not name.startswith(SECOND_HEADS.get(arch, ("\0",))) and not name.endswith("num_batches_tracked")}


def _network(state: dict[str, Tensor], path: str | Path, *, arch: str, num_classes: int, info: Info) -> nn.Module:
    """The bare network with these weights: each of its parameters is in the file, with its shape, and nothing else is."""
    expected, given = _skeleton(arch, num_classes=num_classes, info=info), _relevant(state, arch)
    last = next(reversed(expected))  # the bias of the last layer: a number for each output
    if last in given and len(given[last]) != num_classes:
        raise InputError(f"checkpoint {path} has {len(given[last])} outputs, expected {num_classes}: it was trained for other classes than {info.name}'s")
    problems = {
        "are missing": [name for name in expected if name not in given],
        "are unexpected": [name for name in given if name not in expected],
        "have another shape": [name for name in expected if name in given and expected[name].shape != given[name].shape],
    }
    found = [f"{len(names)} {what} ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})" for what, names in problems.items() if names]
    if found:
        raise InputError(f"checkpoint {path} does not fit {arch}, keys: {'; '.join(found)}: is the file whole, and its arch right?")
    network = build(arch, num_classes=num_classes, mean=info.mean, std=info.std).network
    counters = {name: state[name] for name in network.state_dict() if name.endswith("num_batches_tracked") and name in state}
    network.load_state_dict(given | counters)  # strict, except that absent counters start at 0
    return network.eval()


def _candidates(weights: Weights, *, arch: str, info: Info) -> dict[str, Statistics]:
    """The normalisations in question: the recorded one alone, or else every one that was ever published."""
    if weights.mean is not None:
        return {"recorded": (weights.mean, weights.std)}
    mean, std = (lanet.MEAN, lanet.STD) if arch == "lanet" else (info.mean, info.std)
    ones, zeros = (1.0,) * len(mean), (0.0,) * len(mean)
    return {"full": (mean, std), "center": (mean, ones), "none": (zeros, ones)}


def _propose(weights: Weights, path: str | Path, *, asked: str) -> tuple[str, str]:
    """The normalisation by rule, and the reason."""
    if weights.mean is not None:
        return "recorded", "in the file"
    if asked != "auto":
        return asked, "as asked"
    if weights.format == MACER:
        return "none", "MACER's networks take raw pixels"
    if weights.format == LANET:
        return "full", "LaNet's own statistics"
    if weights.format == SMOOTHING and _is_centred_smoothadv(Path(path).as_posix()):
        return "center", "by its path SmoothAdv's, which subtract the mean only"
    return "full", "the usual one"


def _is_centred_smoothadv(path: str) -> bool:
    """SmoothAdv's folders are named after the attack, PGD_10steps or DDN_2steps. The later ones normalise fully."""
    later = re.search(r"finetune_cifar_from_imagenet|self_training|imagenet32", path)
    return re.search(r"(PGD|DDN)_?\d+|smooth-?adv", path) is not None and later is None


def _sigma(path: str | Path) -> float | None:
    """The noise in the published names: noise_0.25/checkpoint.pth.tar, ...-noise_025.pth.tar, ...-050.pth.tar, 0.25.pth."""
    path = Path(path).as_posix()
    if match := re.search(r"noise_(\d\.\d+)(?!.*noise_)", path) or re.search(r"(?:^|/)(\d\.\d+)\.pth", path):
        return float(match[1])
    if match := re.search(r"[-_](\d)(\d\d)\.pth", path):
        return float(f"{match[1]}.{match[2]}")
    return None


def _accuracies(network: nn.Module, candidates: dict[str, Statistics], evaluation: EvalSet, *, sigma: float) -> dict[str, float]:
    stride = max(1, len(evaluation.label) // IMAGES)
    some = slice(0, stride * IMAGES, stride)
    few = EvalSet(image=evaluation.image[some], label=evaluation.label[some], index=evaluation.index[some], classes=evaluation.classes)
    return {name: accuracy_of(Classifier(Normalize(mean, std), network), few, sigma=sigma, title=f"accuracy with normalisation {name}")
            for name, (mean, std) in candidates.items()}


def _weigh(accuracy: dict[str, float], proposed: str, reason: str, *, asked: str) -> tuple[str, str]:
    """The proposed normalisation, unless another is clearly more accurate and the user did not insist."""
    best = max(accuracy, key=accuracy.get)
    if accuracy[best] < accuracy[proposed] + MARGIN:
        return proposed, f"{reason}, and no other is more accurate"
    if asked != "auto":
        return proposed, f"{reason}, though {best} is clearly more accurate"
    return best, f"clearly the most accurate, against the rule: {proposed}, {reason}"
