"""`aces import CHECKPOINT`: a published checkpoint becomes a file that params.yaml can name."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from aces import params, paths
from aces.console import console, say
from aces.errors import InputError

if TYPE_CHECKING:
    from aces.data import EvalSet
    from aces.networks import Imported

EXAMPLE = "aces import aces-models/cifar10/gaussian/noise_0.25/checkpoint.pth.tar --dataset cifar10"

# As in aces.networks.evidence, which is slow to import.
NORMALIZATIONS = ("auto", "full", "center", "none", "imagenet", "half", "pixels")
NOISE = 0.25  # at which a denoiser is tried, where nothing else is said


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a path, an address (https://...) or a name (resnet20, resnet56, distiller-resnet20, "
        "ffdnet): a state dict (of Cohen et al., SmoothAdv, MACER, Consistency, ACES, LaNet, "
        "torchvision, any CIFAR ResNet, FFDNet, DnCNN), a TorchScript archive or an ONNX model",
    )
    parser.add_argument("--sha256", help="the digest that the file must have, in hexadecimal")
    parser.add_argument(
        "--dataset", help="what it was trained on (default: the dataset of params.yaml)"
    )
    parser.add_argument("--arch", help="its network, where the file does not tell")
    parser.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        default="auto",
        help="full: (x - mean) / std of the dataset; center: x - mean; none: x; imagenet: "
        "ImageNet's mean and std; half: 1/2 and 1/2; pixels: CIFAR-10's over all pixels (default: "
        "auto, by evidence)",
    )
    parser.add_argument(
        "--mean", type=float, nargs="+", help="the mean to subtract: one number, or one per channel"
    )
    parser.add_argument(
        "--std", type=float, nargs="+", help="what to divide by: one number, or one per channel"
    )
    parser.add_argument(
        "--sigma",
        type=float,
        help="the noise it was trained with, for the check (default: what its path says)",
    )
    parser.add_argument(
        "--before",
        type=Path,
        metavar="NETWORK",
        help="for a denoiser: an imported classifier; the accuracy of both together is measured",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="do not fetch the dataset to measure accuracy, if no evaluation images are here",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="the file to write (default: checkpoints/<dataset>-<network>-<hash>.safetensors)",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    from aces.networks import catalogue, denoisers, fetch

    if args.out is not None and args.out.is_dir():
        raise InputError(
            f"--out={args.out} is a folder: name the file to write, such as "
            f"{args.out / 'network.safetensors'}"
        )
    path = fetch.obtain(args.checkpoint, sha256=args.sha256)
    if args.out is None and args.checkpoint in catalogue.CATALOGUE:
        args.out = catalogue.imported(args.checkpoint)
    dataset = args.dataset or _dataset().name
    evaluation = _evaluation(dataset, fetch_it=not args.no_check)
    if denoisers.holds_denoiser(path):
        return _import_denoiser(args, path, evaluation)
    found = _import(args, path, dataset, evaluation)
    findings = _write(args, path, dataset, found, evaluation)
    notes = [*found.notes, *_remarks(found, findings, evaluation)]
    if not args.json:
        _show_trials(found)
    _tell(args, findings, notes)
    return 1 if found.near_chance else 0


def _tell(args: argparse.Namespace, findings: dict, notes: list[str]) -> None:
    if args.json:
        print(json.dumps(findings | {"notes": notes}, indent=2))
    else:
        for note in notes:
            say(note)


def _dataset() -> params.Dataset:
    if not paths.PARAMS.is_file():
        raise InputError(
            "--dataset is not given, and there is no params.yaml here: say what the network was "
            "trained on, such as --dataset cifar10"
        )
    return params.load().dataset


def _evaluation(name: str, *, fetch_it: bool) -> "EvalSet | None":
    """The pipeline's evaluation images; the dataset is fetched if they are not there."""
    from aces import data
    from aces.networks.checkpoints import evaluation_images

    found = evaluation_images(name)
    if found is not None or not fetch_it:
        return found
    dataset = params.Dataset(name=name)
    if paths.PARAMS.is_file() and _dataset().name == name:
        dataset = _dataset()
    try:
        return data.prepare(dataset).evaluation
    except InputError as error:
        say(f"accuracy is not measured, for want of images: {error}")
        return None


def _import(
    args: argparse.Namespace, path: Path, dataset: str, evaluation: "EvalSet | None"
) -> "Imported":
    from aces import networks

    return networks.import_checkpoint(
        path,
        dataset=evaluation.info if evaluation is not None else dataset,
        normalization=args.normalization,
        mean=args.mean,
        std=args.std,
        arch=args.arch,
        sigma=args.sigma,
        evaluation=evaluation,
    )


def _write(
    args: argparse.Namespace,
    path: Path,
    dataset: str,
    found: "Imported",
    evaluation: "EvalSet | None",
) -> dict:
    """Write the converted file; what was found, for scripts."""
    from aces import networks
    from aces.networks.evidence import accuracy_of
    from aces.networks.formats import UNCHECKED

    fingerprint = networks.fingerprint(found.module)
    out = args.out or _default_out(f"{dataset}-{found.arch}", fingerprint)
    about = {"dataset": dataset, "source": path.name, "format": found.format}
    if not found.checked:
        about["normalization"] = UNCHECKED
    networks.save_model(out, found.module, **((found.module.recipe or {}) | about))
    accuracy = found.accuracy
    if found.sigma and found.trials and evaluation is not None:
        accuracy = accuracy_of(found.module, evaluation)  # the evidence was measured under noise
    return {
        "out": str(out),
        "format": found.format,
        "arch": found.arch,
        "num_classes": found.num_classes,
        "parameters": sum(weight.numel() for weight in found.module.parameters()),
        "normalization": found.normalization,
        "mean": found.mean,
        "std": found.std,
        "sigma": found.sigma,
        "accuracy": accuracy,
        "evidence": [
            {
                "arch": trial.arch,
                "normalization": trial.kind,
                "accuracy": trial.accuracy,
                "images": len(trial.correct),
            }
            for trial in found.trials
        ],
        "near_chance": found.near_chance,
        "fingerprint": fingerprint,
    }


def _default_out(name: str, fingerprint: str) -> Path:
    slug = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return Path("checkpoints") / f"{slug}-{fingerprint[:8]}.safetensors"


def _show_trials(found: "Imported") -> None:
    """The evidence as a table, the most accurate candidate first; an arrow marks what was taken.

    Of a network that was hopeless with every normalisation one row is enough.
    """
    from rich.box import SIMPLE
    from rich.table import Table

    from aces.networks.evidence import p_value

    if len(found.trials) < 2:
        return
    several = len({trial.arch for trial in found.trials}) > 1
    ranked = sorted(found.trials, key=lambda trial: (not trial.complete, -trial.accuracy))
    best = {trial.arch: trial.kind for trial in reversed(ranked)}
    shown = [
        trial for trial in ranked if trial.complete or not several or trial.kind == best[trial.arch]
    ]
    title = f"accuracy, one copy of each image at sigma {found.sigma or 0:g}"
    table = Table(title=title, box=SIMPLE, padding=(0, 1))
    for column in ("", *(["network"] if several else []), "normalisation"):
        table.add_column(column, no_wrap=True)
    for column in ("accuracy", "images", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    for trial in shown:
        taken = (trial.arch, trial.kind) == (found.arch, found.normalization)
        p = p_value(ranked[0].correct, trial.correct) if trial.complete else None
        table.add_row(
            ">" if taken else "",
            *([trial.arch] if several else []),
            trial.kind,
            f"{trial.accuracy:.1%}",
            str(len(trial.correct)),
            "" if trial is ranked[0] or p is None else f"{p:.1g}",
            style="bold" if taken else None,
        )
    console.print(table)
    left = len(found.trials) - len(shown)
    others = f"; {left} others were no better on these few" if left else ""
    say(f"p: of a paired test against the first row; few images: clearly worse on these{others}")


def _numbers(values: tuple[float, ...]) -> str:
    """One number for all channels, or one for each, with three digits."""
    distinct = values if len(set(values)) > 1 else values[:1]
    return " ".join(
        f"{value:.3f}".removeprefix("0").rstrip("0").rstrip(".") or "0" for value in distinct
    )


def _remarks(found: "Imported", findings: dict, evaluation: "EvalSet | None") -> list[str]:
    """What a person should know besides what was found."""
    remarks = [
        f"pixels become (x - {_numbers(found.mean)}) / {_numbers(found.std)}",
        *_rivals(found),
    ]
    if findings["accuracy"] is not None and evaluation is not None:
        count = len(evaluation.label)
        remarks.append(f"accuracy on all {count} images, without noise: {findings['accuracy']:.1%}")
    if found.near_chance:
        remarks.append(
            "warning: hardly better than chance; are the dataset, the network and the "
            "normalisation right?"
        )
    if not found.checked and found.num_classes > 2:
        remarks.append(
            "the pipeline will try the other normalisations on its evaluation images; to try them "
            "now, run `dvc repro subsample` and import it again"
        )
    selects = found.num_classes == 2
    roles = "select.checkpoint" if selects else "core.checkpoint or certify.checkpoint"
    remarks.append(_written(findings["out"], f"{roles} in params.yaml, with arch {found.arch}"))
    return remarks


def _rivals(found: "Imported") -> list[str]:
    """The network with the same tensors that these images cannot tell from the one taken."""
    from aces.networks.evidence import LEVEL, p_value

    taken = (found.arch, found.normalization)
    own = next((trial for trial in found.trials if (trial.arch, trial.kind) == taken), None)
    for trial in sorted(found.trials, key=lambda trial: -trial.accuracy):
        if own is None or not trial.complete or trial.arch == found.arch:
            continue
        if p_value(own.correct, trial.correct) >= LEVEL:
            return [
                f"{found.arch} is the usual network with these tensors; {trial.arch} has them too "
                f"and is as accurate on these images ({trial.accuracy:.1%}): --arch {trial.arch} "
                "takes it"
            ]
    return []


def _written(out: str, roles: str) -> str:
    return f"written: {out}; name it as {roles} (`dvc add {out}` lets queued runs see it)"


def _import_denoiser(args: argparse.Namespace, path: Path, evaluation: "EvalSet | None") -> int:
    """Write a denoiser; its effect on the images, and on a classifier behind it, is measured."""
    from aces import networks
    from aces.networks import denoisers
    from aces.networks.denoise import EachChannel
    from aces.networks.evidence import accuracy_of

    channels = evaluation.shape[0] if evaluation is not None else None
    denoiser = networks.load_denoiser(path, channels=channels, arch=args.arch)
    fingerprint = networks.fingerprint(denoiser)
    arch = denoiser.recipe["arch"]  # type: ignore[index]
    out = args.out or _default_out(f"denoiser-{arch}", fingerprint)
    networks.save_denoiser(out, denoiser, source=path.name)
    sigma = args.sigma if args.sigma is not None else NOISE
    findings = {
        "out": str(out),
        "arch": arch,
        "parameters": sum(weight.numel() for weight in denoiser.parameters()),
        "sigma": sigma,
        "fingerprint": fingerprint,
    }
    grey = isinstance(denoiser, EachChannel)
    notes = [
        f"denoiser: {arch}, {findings['parameters']:,} parameters"
        + (", for grey images: each channel is denoised on its own" if grey else "")
    ]
    if evaluation is not None:
        quality = denoisers.quality(denoiser, evaluation, sigma=sigma)
        findings["decibels"] = {"noisy": quality.noisy, "denoised": quality.denoised}
        notes.append(
            f"at sigma {sigma:g} it raises the peak signal-to-noise ratio from {quality.noisy:.1f} "
            f"to {quality.denoised:.1f} dB"
        )
        if quality.denoised <= quality.noisy:
            notes.append(
                "warning: it does not improve these images; was it trained for another noise "
                "(--sigma)?"
            )
    if args.before is not None and evaluation is not None:
        network = networks.before(denoiser, networks.load_model(args.before), sigma=sigma)
        findings["accuracy"] = accuracy_of(network, evaluation, sigma=sigma)
        notes.append(
            f"before {args.before}, accuracy on {len(evaluation.label)} images, one copy each at "
            f"sigma {sigma:g}: {findings['accuracy']:.1%}"
        )
    notes.append(
        _written(str(out), f"certify.denoiser.checkpoint in params.yaml, with arch {arch}")
    )
    _tell(args, findings, notes)
    return 0
