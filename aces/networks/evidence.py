"""Which normalisation a published network wants: a rule by where the file comes from, and the
accuracy as evidence.

Hardly any published file records it, and with a wrong one a network still answers: at about 30 %
accuracy with the worst, at 85 % instead of 90 % with a near one.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from aces import data, runtime
from aces.console import progress
from aces.data import EvalSet
from aces.networks import lanet
from aces.networks.formats import AKAMASTER, DISTILLER, LANET, MACER, SMOOTHING, Weights
from aces.rule.statistics import two_sided_p_value

# full: (x - mean) / std of the dataset; center: x - mean; half: mean and std 1/2; pixels: mean and
# standard deviation over all pixels of CIFAR-10, whose usual std is the mean of the images' own
NORMALIZATIONS = ("auto", "full", "center", "none", "imagenet", "half", "pixels")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10_PIXELS = (lanet.MEAN, lanet.STD)
GIVEN = "given"  # the user's own mean and std
LEAST = 50  # images; below this, accuracy is too noisy to decide
SCREENED = (25, 100)  # images on which hopeless candidates are left out, before all are used
LEVEL = 0.01  # the p-value below which one candidate is clearly better than another

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean, std


class Proposal(NamedTuple):
    """A normalisation by rule."""

    kind: str
    reason: str
    firm: bool  # whether the file's origin speaks for it; then only clear evidence overrules it


class Trial(NamedTuple):
    """A candidate and its answers on the evaluation images."""

    arch: str
    kind: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    correct: np.ndarray  # (N,) bool: the same images and the same noise for every candidate
    complete: bool = True  # whether all images were used, or the candidate was hopeless before

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


@dataclass(frozen=True)
class Verdict:
    """The network and the normalisation that were taken, and why."""

    arch: str
    kind: str
    reason: str


def candidates(
    weights: Weights | None, *, arch: str, dataset: str, mean: Sequence[float], std: Sequence[float]
) -> dict[str, Statistics]:
    """The normalisations in question: the recorded one alone, or else all the usual ones. Some may
    be the same (see `distinct`).

    mean, std: the dataset's.
    """
    if weights is not None and weights.mean is not None and weights.checked:
        assert weights.std is not None
        return {"recorded": (weights.mean, weights.std)}
    own = (tuple(mean), tuple(std)) if arch != "lanet" else CIFAR10_PIXELS
    count = len(mean)
    ones, zeros, halves = (1.0,) * count, (0.0,) * count, (0.5,) * count
    kinds: dict[str, Statistics] = {"full": own, "center": (own[0], ones), "none": (zeros, ones)}
    if count == 3:
        kinds["imagenet"] = IMAGENET
    kinds["half"] = (halves, halves)
    if dataset == "cifar10":
        kinds["pixels"] = CIFAR10_PIXELS
    return kinds


def distinct(kinds: Mapping[str, Statistics], *, keep: str) -> dict[str, Statistics]:
    """Each pair of statistics once: under the name `keep`, or else under its first name."""
    found: dict[str, Statistics] = {}
    for kind, statistics in kinds.items():
        if kind == keep or statistics not in (kinds[keep], *found.values()):
            found[kind] = statistics
    return found


def propose(
    weights: Weights | None, path: Path, kinds: Mapping[str, Statistics], *, asked: str
) -> Proposal:
    """The normalisation by rule, and the reason."""
    if GIVEN in kinds:
        return Proposal(GIVEN, "as asked", firm=True)
    if "recorded" in kinds:
        return Proposal("recorded", "in the file", firm=True)
    if asked != "auto":
        return Proposal(asked, "as asked", firm=True)
    if weights is None:
        return Proposal("none", "a program that may normalise by itself", firm=False)
    if weights.mean is not None:
        recorded = (weights.mean, weights.std)
        kind = next((kind for kind, found in kinds.items() if found == recorded), "full")
        return Proposal(kind, "in the file", firm=False)
    if weights.format == MACER:
        return Proposal("none", "MACER's networks take raw pixels", firm=True)
    if weights.format == LANET:
        return Proposal("full", "LaNet's own statistics", firm=True)
    if weights.format == AKAMASTER and "imagenet" in kinds:
        return Proposal("imagenet", "akamaster's networks take ImageNet's", firm=True)
    if weights.format == DISTILLER:
        return Proposal("half", "distiller's networks take 1/2 and 1/2", firm=True)
    if weights.format == SMOOTHING and _is_centred_smoothadv(path.as_posix()):
        return Proposal(
            "center", "by its path SmoothAdv's, which subtract the mean only", firm=True
        )
    return Proposal("full", "the usual one", firm=False)


def _is_centred_smoothadv(path: str) -> bool:
    """SmoothAdv's folders are named after the attack, PGD_10steps or DDN_2steps. The later ones
    normalise fully.
    """
    later = re.search(r"finetune_cifar_from_imagenet|self_training|imagenet32", path)
    return re.search(r"(PGD|DDN)_?\d+|smooth-?adv", path) is not None and later is None


def p_value(a: np.ndarray, b: np.ndarray) -> float:
    """McNemar's exact test of two candidates on the same images: are they equally accurate?

    Only images that one gets right and the other wrong say anything; if both are equally accurate,
    each of these goes either way with probability 1/2.
    """
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return float(two_sided_p_value(only_a, only_a + only_b))


def weigh(trials: Sequence[Trial], proposal: Proposal, *, asked: bool) -> Verdict:
    """The candidate to take.

    What the user asked for is taken. What the file's origin speaks for is taken unless another is
    clearly more accurate. Otherwise the most accurate is taken, and it is said whether it is
    clearly the most accurate. Of networks with the same tensors the most usual one is taken, unless
    another is clearly more accurate.
    """
    as_proposed = [trial for trial in trials if trial.kind == proposal.kind]
    arch = _network(as_proposed if asked else trials)
    trials = [trial for trial in trials if trial.arch == arch]
    ranked = ranking(trials, proposal)
    best = ranked[0]
    proposed = next((trial for trial in ranked if trial.kind == proposal.kind), None)
    against = p_value(best.correct, proposed.correct) if proposed is not None else 0.0
    if proposed is not None and (asked or (proposal.firm and against >= LEVEL)):
        reason = f"{proposal.reason}{_others(trials, best, proposed, against)}"
        return Verdict(proposed.arch, proposed.kind, reason)
    if len(ranked) == 1:
        reason = proposal.reason if len(trials) == 1 else "all others are far less accurate"
        return Verdict(best.arch, best.kind, reason)
    runner = ranked[1]
    p = p_value(best.correct, runner.correct)
    compared = (
        f"{best.accuracy:.1%} against {runner.accuracy:.1%} of {_name(trials, runner)}, p = {p:.2g}"
    )
    if p < LEVEL:
        reason = f"clearly the most accurate: {compared}"
    elif best.accuracy > runner.accuracy:
        reason = f"a toss-up, the more accurate was taken: {compared}"
    else:
        why = proposal.reason if best is proposed else "the first of them"
        reason = f"a toss-up, {why} was taken: {compared}"
    if best is not proposed:
        reason += f"; against the rule, {proposal.kind}: {proposal.reason}"
    return Verdict(best.arch, best.kind, reason)


def _network(trials: Sequence[Trial]) -> str:
    """The first network, and so the most usual one, that is not clearly less accurate."""
    complete = [trial for trial in trials if trial.complete]
    best = max(complete, key=lambda trial: trial.accuracy)
    for arch in dict.fromkeys(trial.arch for trial in complete):
        own = max((t for t in complete if t.arch == arch), key=lambda trial: trial.accuracy)
        if own.accuracy == best.accuracy or p_value(best.correct, own.correct) >= LEVEL:
            return arch
    raise AssertionError("the best network is not clearly worse than itself")


def ranking(trials: Sequence[Trial], proposal: Proposal) -> list[Trial]:
    """The candidates that were tried on all images, the most accurate first."""
    complete = [trial for trial in trials if trial.complete]
    return sorted(complete, key=lambda trial: (-trial.accuracy, trial.kind != proposal.kind))


def _others(trials: Sequence[Trial], best: Trial, proposed: Trial, p: float) -> str:
    """What to add to the reason of the proposed candidate, where others were tried."""
    if len(trials) == 1:
        return ""
    if best.accuracy > proposed.accuracy and p < LEVEL:
        return f", though {_name(trials, best)} is clearly more accurate"
    return ", and no other is clearly more accurate"


def _name(trials: Sequence[Trial], trial: Trial) -> str:
    """The normalisation, with the network where several are in question."""
    several = len({each.arch for each in trials}) > 1
    return f"{trial.arch} with {trial.kind}" if several else trial.kind


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


def try_all(
    modules: Mapping[tuple[str, str], nn.Module],
    statistics: Mapping[str, Statistics],
    evaluation: EvalSet,
    *,
    keep: str,
    sigma: float,
) -> list[Trial]:
    """The answers of every candidate, a pair of network and normalisation.

    All are tried on a few images. Those that are clearly less accurate than the best of them are
    left at that; the others (and one with the normalisation `keep`) are tried on more, and at last
    on all images.
    """
    total = len(evaluation.label)
    strides = sorted({max(1, total // count) for count in SCREENED} | {1}, reverse=True)
    hopeful = list(modules)
    found: dict[tuple[str, str], np.ndarray] = {}
    for stride in strides:
        some = _some(evaluation, slice(0, None, stride))
        with progress("trying normalisations", len(hopeful) * len(some.label), "images") as bar:
            for key in hopeful:
                found[key] = answers(modules[key], some, sigma=sigma)
                bar.advance(len(some.label))
        if stride > 1:
            hopeful = _hopeful({key: found[key] for key in hopeful}, keep=keep)
    return [
        Trial(*key, *statistics[key[1]], correct, key in hopeful) for key, correct in found.items()
    ]


def _hopeful(answered: Mapping[tuple[str, str], np.ndarray], *, keep: str) -> list[tuple[str, str]]:
    """The candidates that are not clearly less accurate than the best, and the best of `keep`."""
    best = max(answered.values(), key=lambda correct: correct.sum())
    kept = max((key for key in answered if key[1] == keep), key=lambda key: answered[key].sum())
    return [
        key
        for key, correct in answered.items()
        if key == kept or correct.sum() == best.sum() or p_value(best, correct) >= LEVEL
    ]


def _some(evaluation: EvalSet, rows: slice) -> EvalSet:
    return dataclasses.replace(
        evaluation,
        image=evaluation.image[rows],
        label=evaluation.label[rows],
        index=evaluation.index[rows],
    )


def accuracy_of(module: nn.Module, evaluation: EvalSet, *, sigma: float = 0.0) -> float:
    """The share of images whose single noisy copy `module` classifies correctly."""
    return float(answers(module, evaluation, sigma=sigma).mean())


@torch.inference_mode()
def answers(
    module: nn.Module, evaluation: EvalSet, *, sigma: float = 0.0, batch: int = 50
) -> np.ndarray:
    """(N,) bool: whether `module` classifies a single noisy copy of each image correctly.

    Each call draws the same noise, so that the answers of two networks can be compared image by
    image.
    """
    device = runtime.devices(runtime.from_environment().device)[0]
    module = module.to(device)
    generator = torch.Generator().manual_seed(0)
    correct = []
    for start in range(0, len(evaluation.label), batch):
        x = data.to_tensor(evaluation.image[start : start + batch])
        x = x + sigma * torch.randn(x.shape, generator=generator)
        predicted = module(x.to(device)).argmax(dim=1).cpu().numpy()
        correct.append(predicted == evaluation.label[start : start + batch])
    module.to("cpu")
    return np.concatenate(correct)
