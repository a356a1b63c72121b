"""Published checkpoints as networks: the format, the architecture and the normalisation are found,
and said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from aces import data, paths
from aces.data import EvalSet, Info
from aces.errors import InputError, one_line
from aces.networks import evidence, formats, programs, reading, recognition
from aces.networks.evidence import NORMALIZATIONS, Proposal, Statistics, Trial, Verdict
from aces.networks.formats import Weights
from aces.networks.normalization import Classifier, Normalize
from aces.networks.recognition import Match
from aces.networks.registry import build


@dataclass(frozen=True)
class Imported:
    """A network from a checkpoint, and what was found."""

    module: Classifier  # evaluation mode, on the CPU; [0, 1] pixels -> logits
    format: str
    arch: str
    num_classes: int
    normalization: str  # a kind of `evidence.NORMALIZATIONS`, recorded (in the file) or given
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sigma: float | None  # the noise it was trained with, if that is known
    notes: list[str]  # for people: what was found, and why
    checked: bool  # whether the normalisation is more than a rule's
    trials: list[Trial] = field(default_factory=list)  # the evidence; empty if nothing was measured

    @property
    def accuracy(self) -> float | None:
        """Of single noisy copies of the evaluation images; None if it was not measured."""
        taken = (self.arch, self.normalization)
        return next(
            (trial.accuracy for trial in self.trials if (trial.arch, trial.kind) == taken), None
        )

    @property
    def near_chance(self) -> bool:
        """Whether the network was seen to answer hardly better than chance."""
        return self.accuracy is not None and self.accuracy < 2 / self.num_classes


def load_checkpoint(
    path: str | Path, *, dataset: str, normalization: str = "auto", arch: str | None = None
) -> nn.Module:
    """The network in a checkpoint of this or a published project, in evaluation mode: [0, 1] pixels
    -> logits.

    `normalization` is one of `evidence.NORMALIZATIONS`. With auto, the evaluation images of the
    pipeline decide if they are there. `import_checkpoint` gives the same network with what was
    found.
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
    path = paths.evaluation_images(dataset)
    return data.read_eval(path) if path.is_file() else None


def import_checkpoint(
    path: str | Path,
    *,
    dataset: str | Info,
    normalization: str = "auto",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    arch: str | None = None,
    num_classes: int | None = None,
    sigma: float | None = None,
    evaluation: EvalSet | None = None,
) -> Imported:
    """Read a checkpoint, find out what it is, and build the network.

    mean, std: the normalisation, where it is known. num_classes: the outputs it must have; by
    default the dataset's classes, or two for a selection network of ACES. sigma: the noise it was
    trained with; by default what its path says, else none. evaluation: images whose accuracy, under
    that noise, decides on the normalisation.
    """
    if normalization not in NORMALIZATIONS:
        raise InputError(
            f"normalization={normalization!r}: expected one of {', '.join(NORMALIZATIONS)}"
        )
    path, info = formats.existing(path), data.info(dataset) if isinstance(dataset, str) else dataset
    weights = None if programs.is_program(path) else formats.read_weights(path)
    if num_classes is None:
        selects = weights is not None and weights.arch in recognition.SELECTION
        num_classes = 2 if selects else info.num_classes
    fitting = _fitting(weights, path, asked=arch, num_classes=num_classes, info=info)
    kinds = _kinds(weights, arch=fitting[0].arch, info=info, mean=mean, std=std)
    proposal = evidence.propose(weights, path, kinds, asked=normalization)
    if proposal.kind not in kinds:
        raise InputError(
            f"normalization={normalization!r} is not for these images: expected one of auto, "
            f"{', '.join(kinds)}"
        )
    kinds = evidence.distinct(kinds, keep=proposal.kind)
    sigma = evidence.sigma_in(path) if sigma is None else sigma
    trials: list[Trial] = []
    if num_classes == info.num_classes and evaluation is not None:
        trials = _trials(fitting, kinds, evaluation, keep=proposal.kind, sigma=sigma or 0.0)
    if trials:
        verdict = evidence.weigh(trials, proposal, asked=normalization != "auto")
    else:
        verdict = _unmeasured(fitting, kinds, proposal, images=num_classes == info.num_classes)
    candidate = next(each for each in fitting if each.arch == verdict.arch)
    return Imported(
        module=candidate.classifier(kinds[verdict.kind]),
        format=weights.format if weights is not None else candidate.arch,
        arch=candidate.arch,
        num_classes=num_classes,
        normalization=verdict.kind,
        mean=kinds[verdict.kind][0],
        std=kinds[verdict.kind][1],
        sigma=sigma,
        notes=_notes(weights, candidate, verdict),
        checked=bool(trials) or len(kinds) == 1 or normalization != "auto",
        trials=trials,
    )


@dataclass(frozen=True)
class _Candidate:
    """A network that fits the file, without its normalisation."""

    arch: str
    network: nn.Module
    recipe: dict[str, Any]
    note: str  # how it was found, for people

    def classifier(self, statistics: Statistics) -> Classifier:
        mean, std = statistics
        module = Classifier(Normalize(mean, std), self.network).eval()
        options = {name: self.recipe[name] for name in ("options",) if name in self.recipe}
        module.recipe = {  # in the order of `build`, so that a loaded network is the same
            "arch": self.arch,
            "num_classes": self.recipe["num_classes"],
            "mean": mean,
            "std": std,
            **options,
        }
        return module


def _fitting(
    weights: Weights | None, path: Path, *, asked: str | None, num_classes: int, info: Info
) -> list[_Candidate]:
    """The networks that the file can be."""
    if weights is None:
        return [_program(path, num_classes=num_classes, info=info)]
    matches = recognition.recognise(
        weights, path, asked=asked, num_classes=num_classes, channels=info.shape[0]
    )
    return [_filled(match, weights, path, num_classes=num_classes, info=info) for match in matches]


def _program(path: Path, *, num_classes: int, info: Info) -> _Candidate:
    program = programs.read(path)
    programs.check(program, path, num_classes=num_classes, shape=info.shape)
    recipe = {"arch": program.arch, "num_classes": num_classes, "options": program.options}
    return _Candidate(program.arch, program, recipe, "a program that is run as it is")


def _filled(
    match: Match, weights: Weights, path: Path, *, num_classes: int, info: Info
) -> _Candidate:
    """The network with the weights of the file."""
    classifier = build(
        match.arch,
        num_classes=num_classes,
        mean=info.mean,
        std=info.std,
        options=match.options,
    )
    network, recipe = classifier.network, classifier.recipe or {}
    reading.check_kinds(network.state_dict(), match.state, path)
    # All tensors fit. Batch counters may be absent or belong to second heads; they are not used.
    known = network.state_dict()
    try:
        network.load_state_dict(
            known | {name: tensor for name, tensor in match.state.items() if name in known}
        )
    except RuntimeError as error:  # a tensor of another shape that was not needed to recognise it
        reason = " ".join(str(error).split()[:60])
        raise InputError(
            f"checkpoint {path} does not fit the network {match.arch} ({one_line(reason)}): get it "
            "again, or name its architecture"
        ) from None
    notes = []
    if weights.arch and weights.arch != match.arch:
        notes.append(f"the file calls it {weights.arch}")
    if match.by_order:
        notes.append("its tensors have other names, and the same shapes in the same order")
    return _Candidate(match.arch, network.eval(), recipe, "; ".join(notes))


def _kinds(
    weights: Weights | None,
    *,
    arch: str,
    info: Info,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> dict[str, Statistics]:
    """The normalisations in question; the user's alone, where one is given."""
    if mean is None and std is None:
        return evidence.candidates(
            weights, arch=arch, dataset=info.name, mean=info.mean, std=info.std
        )
    return {
        evidence.GIVEN: (
            _per_channel("mean", mean, default=0.0, info=info),
            _per_channel("std", std, default=1.0, info=info),
        )
    }


def _per_channel(
    name: str, values: Sequence[float] | None, *, default: float, info: Info
) -> tuple[float, ...]:
    channels = info.shape[0]
    found = tuple(values) if values else (default,)
    found = found * channels if len(found) == 1 else found
    least = 0 if name == "std" else -math.inf
    if len(found) != channels or not all(least < value < math.inf for value in found):
        raise InputError(
            f"{name}={list(found)}: expected one finite number or {channels}, one for each channel"
            + (", above 0" if name == "std" else "")
        )
    return found


def _trials(
    fitting: list[_Candidate],
    kinds: dict[str, Statistics],
    evaluation: EvalSet,
    *,
    keep: str,
    sigma: float,
) -> list[Trial]:
    """Every candidate with every normalisation on the evaluation images; none if these are few."""
    if len(evaluation.label) < evidence.LEAST:
        return []
    modules = {
        (candidate.arch, kind): candidate.classifier(statistics)
        for candidate in fitting
        for kind, statistics in kinds.items()
    }
    return evidence.try_all(modules, kinds, evaluation, keep=keep, sigma=sigma)


def _unmeasured(
    fitting: Sequence[_Candidate],
    kinds: Mapping[str, Statistics],
    proposal: Proposal,
    *,
    images: bool,
) -> Verdict:
    """What the rule says, where no images can tell."""
    reason = proposal.reason
    if len(kinds) * len(fitting) > 1:
        reason += ", not checked" + (" for want of evaluation images" if images else "")
    return Verdict(fitting[0].arch, proposal.kind, reason)


def _notes(weights: Weights | None, candidate: _Candidate, verdict: Verdict) -> list[str]:
    note = f" ({candidate.note})" if candidate.note else ""
    format = f"{weights.format}, {len(weights.state)} tensors" if weights else candidate.arch
    return [
        f"format: {format}",
        f"network: {candidate.arch}, {candidate.recipe['num_classes']} outputs{note}",
        f"normalisation: {verdict.kind} ({verdict.reason})",
    ]
