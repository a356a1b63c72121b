"""`aces import CHECKPOINT`: a published checkpoint becomes a file that params.yaml can name."""

import argparse
import json
from pathlib import Path

from aces import params
from aces.console import console
from aces.errors import InputError

EXAMPLE = "aces import aces-models/cifar10/gaussian/noise_0.25/checkpoint.pth.tar --dataset cifar10"

NORMALIZATIONS = (
    "auto",
    "full",
    "center",
    "none",
)  # as in aces.networks.evidence, which is slow to import


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a file of Cohen et al., SmoothAdv, MACER, Consistency, ACES, LaNet, torchvision, or a "
        "state dict",
    )
    parser.add_argument(
        "--dataset",
        help="what it was trained on (default: the dataset of params.yaml)",
    )
    parser.add_argument("--arch", help="its network, where the file does not say")
    parser.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        default="auto",
        help="full: (x - mean) / std; center: x - mean; none: x (default: auto, by evidence)",
    )
    parser.add_argument(
        "--sigma",
        type=float,
        help="the noise it was trained with, for the check (default: what its path says)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="the file to write (default: checkpoints/<dataset>-<network>-<hash>.safetensors)",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    findings, notes = _convert(args)
    if args.json:
        print(json.dumps(findings | {"notes": notes}, indent=2))
    else:
        for note in notes:
            console.print(note, markup=False, soft_wrap=True)
    return 1 if findings["near_chance"] else 0


def _convert(args: argparse.Namespace) -> tuple[dict, list[str]]:
    """Write the converted file; what was found, for scripts and for people."""
    from aces import networks
    from aces.networks.checkpoints import evaluation_images
    from aces.networks.evidence import accuracy_of
    from aces.networks.formats import UNCHECKED

    dataset = args.dataset or params.load().dataset.name
    evaluation = evaluation_images(dataset)
    found = networks.import_checkpoint(
        args.checkpoint,
        dataset=dataset,
        normalization=args.normalization,
        arch=args.arch,
        sigma=args.sigma,
        evaluation=evaluation,
    )
    fingerprint = networks.fingerprint(found.module)
    if args.out is not None and args.out.is_dir():
        raise InputError(
            f"--out={args.out} is a folder: name the file to write, such as {args.out / 'network.safetensors'}"
        )
    out = args.out or Path("checkpoints") / f"{dataset}-{found.arch}-{fingerprint[:8]}.safetensors"
    networks.save_model(
        out,
        found.module,
        arch=found.arch,
        num_classes=found.num_classes,
        mean=found.mean,
        std=found.std,
        dataset=dataset,
        source=args.checkpoint.name,
        format=found.format,
        **{} if found.checked else {"normalization": UNCHECKED},
    )
    findings = {
        "out": str(out),
        "format": found.format,
        "arch": found.arch,
        "num_classes": found.num_classes,
        "parameters": sum(weight.numel() for weight in found.module.parameters()),
        "normalization": found.normalization,
        "mean": found.mean,
        "std": found.std,
        "sigma": found.sigma,
        "accuracy_by_normalization": found.accuracy,
        "accuracy": accuracy_of(found.module, evaluation) if found.accuracy else None,
        "near_chance": found.near_chance,
        "fingerprint": fingerprint,
    }
    notes = list(found.notes)
    if found.accuracy:
        notes.append(
            f"accuracy on all {len(evaluation.label)} images, without noise: {findings['accuracy']:.1%}"
        )
    if found.near_chance:
        notes.append(
            "warning: hardly better than chance; are the dataset, the network and the normalisation right?"
        )
    if not found.checked and found.num_classes > 2:
        notes.append(
            "the pipeline will try the other normalisations on its evaluation images; to try them now, run "
            "`dvc repro subsample` and import it again"
        )
    roles = (
        "select.checkpoint" if found.num_classes == 2 else "core.checkpoint or certify.checkpoint"
    )
    notes.append(
        f"written: {out}; name it as {roles} in params.yaml, with arch {found.arch} (`dvc add {out}` lets "
        "queued runs see it)"
    )
    return findings, notes
