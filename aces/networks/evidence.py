"""Which normalisation a published network wants: a rule by where the file comes from, and the
accuracy as evidence.

No published file records it, and with a wrong one a network still answers, at about 30 % accuracy.
"""

import re
from pathlib import Path

import torch
from torch import nn

from aces import data, runtime
from aces.console import progress
from aces.data import EvalSet, Info
from aces.networks import lanet
from aces.networks.formats import LANET, MACER, SMOOTHING, Weights
from aces.networks.normalization import Classifier, Normalize

NORMALIZATIONS = ("auto", "full", "center", "none")  # full: (x - mean) / std, center: x - mean
IMAGES = 100  # enough to tell 30 % from 70 %
LEAST = 50  # fewer say nothing
MARGIN = 0.10  # by how much the accuracy must speak against the rule

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean, std


def candidates(weights: Weights, *, arch: str, info: Info) -> dict[str, Statistics]:
    """The normalisations in question: the recorded one alone, or else every kind that was ever
    published.
    """
    if weights.mean is not None and weights.checked:
        return {"recorded": (weights.mean, weights.std)}
    mean, std = (lanet.MEAN, lanet.STD) if arch == "lanet" else (info.mean, info.std)
    ones, zeros = (1.0,) * len(mean), (0.0,) * len(mean)
    return {"full": (mean, std), "center": (mean, ones), "none": (zeros, ones)}


def propose(
    weights: Weights, path: Path, kinds: dict[str, Statistics], *, asked: str
) -> tuple[str, str]:
    """The normalisation by rule, and the reason."""
    if "recorded" in kinds:
        return "recorded", "in the file"
    if asked != "auto":
        return asked, "as asked"
    if weights.mean is not None:
        return next(
            (kind for kind, found in kinds.items() if found == (weights.mean, weights.std)), "full"
        ), "in the file"
    if weights.format == MACER:
        return "none", "MACER's networks take raw pixels"
    if weights.format == LANET:
        return "full", "LaNet's own statistics"
    if weights.format == SMOOTHING and _is_centred_smoothadv(path.as_posix()):
        return "center", "by its path SmoothAdv's, which subtract the mean only"
    return "full", "the usual one"


def _is_centred_smoothadv(path: str) -> bool:
    """SmoothAdv's folders are named after the attack, PGD_10steps or DDN_2steps. The later ones
    normalise fully.
    """
    later = re.search(r"finetune_cifar_from_imagenet|self_training|imagenet32", path)
    return re.search(r"(PGD|DDN)_?\d+|smooth-?adv", path) is not None and later is None


def weigh(accuracy: dict[str, float], proposed: str, reason: str, *, asked: str) -> tuple[str, str]:
    """The proposed normalisation, unless another is clearly more accurate and the user did not
    insist.
    """
    best = max(accuracy, key=accuracy.get)
    if accuracy[best] < accuracy[proposed] + MARGIN:
        return proposed, f"{reason}, and no other is clearly more accurate"
    if asked != "auto":
        return proposed, f"{reason}, though {best} is clearly more accurate"
    return best, f"clearly the most accurate, against the rule: {proposed}, {reason}"


def sigma_in(path: Path) -> float | None:
    """The noise in published names: noise_0.25/checkpoint.pth.tar, -noise_025.pth.tar,
    -050.pth.tar, 0.25.pth.
    """
    name = path.as_posix()
    if match := re.search(r"noise_(\d\.\d+)(?!.*noise_)", name) or re.search(
        r"(?:^|/)(\d\.\d+)\.pth", name
    ):
        return float(match[1])
    if match := re.search(r"[-_](\d)(\d\d)\.pth\.tar", name):
        return float(f"{match[1]}.{match[2]}")
    return None


def accuracies(
    network: nn.Module, kinds: dict[str, Statistics], evaluation: EvalSet, *, sigma: float
) -> dict[str, float]:
    """The accuracy of the bare `network` under each normalisation, on up to IMAGES images."""
    stride = max(1, len(evaluation.label) // IMAGES)
    some = slice(0, stride * IMAGES, stride)
    few = EvalSet(
        image=evaluation.image[some],
        label=evaluation.label[some],
        index=evaluation.index[some],
        classes=evaluation.classes,
    )
    return {
        name: accuracy_of(
            Classifier(Normalize(mean, std), network).eval(),
            few,
            sigma=sigma,
            title=f"accuracy with normalisation {name}",
        )
        for name, (mean, std) in kinds.items()
    }


@torch.inference_mode()
def accuracy_of(
    module: nn.Module,
    evaluation: EvalSet,
    *,
    sigma: float = 0.0,
    batch: int = 50,
    title: str = "accuracy",
) -> float:
    """The share of images whose single noisy copy `module` classifies correctly; each call draws
    the same noise.
    """
    device = runtime.devices(runtime.from_environment().device)[0]
    module = module.to(device)
    generator = torch.Generator().manual_seed(0)
    correct = 0
    with progress(title, len(evaluation.label), "images") as bar:
        for start in range(0, len(evaluation.label), batch):
            x = data.to_tensor(evaluation.image[start : start + batch])
            x = x + sigma * torch.randn(x.shape, generator=generator)
            predicted = module(x.to(device)).argmax(dim=1).cpu().numpy()
            correct += int((predicted == evaluation.label[start : start + batch]).sum())
            bar.advance(len(x))
    module.to("cpu")
    return correct / len(evaluation.label)
