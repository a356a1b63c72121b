"""`aces certify`: class, radius and route of image files."""

import argparse
import functools
import json
import math
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aces.commands import answering
from aces.commands.answering import Answered
from aces.commands.table import SETTINGS, AnswerTable
from aces.console import say
from aces.errors import InputError
from aces.files import digest

if TYPE_CHECKING:
    from aces.model.composed import ACES
    from aces.params import Params

EXAMPLE = """aces certify photo.png
  aces certify *.png --theta 0.3 --radius 0.25 --json
  aces certify photos/ --out results.csv"""
COLUMNS = (
    "image",
    "sha256",
    "prediction",
    "class",
    "radius",
    "route",
    "p_select",
    "p_class",
    "draws",
    "invalid",
    "error",
    *SETTINGS,
)


def configure(parser: argparse.ArgumentParser) -> None:
    answering.add_file_options(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write a CSV table, one row per image, as the answers come; started again, it goes on "
        "where it was",
    )
    answering.add_model_options(parser)
    parser.add_argument(
        "--radius",
        type=float,
        metavar="R",
        help="ask only whether the images are certified within R, and stop when that is sure; "
        "exit status 1 if one is not",
    )
    parser.add_argument(
        "--n0", type=int, help="draws for the guesses (default: as params.yaml says, or 100)"
    )
    parser.add_argument(
        "--n",
        type=int,
        help="draws for the bounds, at most (default: as params.yaml says, or 100,000)",
    )
    answering.add_draw_options(
        parser,
        adaptive="stop an image early, with the same alpha (default: only with --radius)",
    )


def run(args: argparse.Namespace) -> int:
    if args.radius is not None and not args.radius > 0:
        raise InputError(
            f"--radius={args.radius:g}: expected a number above 0, in [0, 1] pixel units"
        )
    files = answering.find_files(args.images)
    model, settings = answering.load_model(args)
    options = draw_options(args, settings)
    if args.out is not None:
        return _run_table(args, files, model, options)
    ask = functools.partial(model.certify, **options)
    answered = list(answering.answer_files(files, model, ask, quiet=args.json))
    if args.json:
        print(json.dumps([_record(it) for it in answered], indent=2))
    elif any(it.answer is not None for it in answered):
        _show(answered, model, options["alpha"])
    status = answering.report_broken("certify", answered)
    return status or _below(args.radius, answered)


def draw_options(args: argparse.Namespace, settings: "Params | None") -> dict[str, Any]:
    """The options of ACES.certify: those given, else the pipeline's, else the library's."""
    options: dict[str, Any] = {"n0": 100, "n": 100_000, "alpha": 0.001}
    if settings is not None:
        options = {
            "n0": settings.sample.n0,
            "n": settings.sample.n,
            "alpha": settings.combine.alpha,
            "multiplicity": settings.combine.multiplicity,
        }
    options |= answering.given(n0=args.n0, n=args.n, alpha=args.alpha, seed=args.seed)
    radius = getattr(args, "radius", None)
    if args.adaptive or (args.adaptive is None and radius is not None):
        options |= {"adaptive": True, "radius": radius}
    return options


def _run_table(
    args: argparse.Namespace, files: list[str], model: "ACES", options: dict[str, Any]
) -> int:
    """The answers as a table that grows, and is continued by the next call."""
    table = AnswerTable(Path(args.out), COLUMNS)
    options["seed"] = options.get("seed", table.seed)
    if options["seed"] is None:
        options["seed"] = secrets.randbits(53)
    settings = _settings(model, options)
    table.check(settings)
    digests = {file: _digest(file) for file in files}
    missing, seen = table.begin(digests), []
    ask = functools.partial(model.certify, **options)
    for it in answering.answer_files(missing, model, ask, quiet=False):
        table.add(_record(it) | settings | {"sha256": digests[it.file]})
        seen.append(it)
    table.finish(files)
    done = len(files) - sum(it.error is not None for it in seen)
    say(f"{args.out}: {done:,} of {len(files):,} images, {len(files) - len(missing):,} from before")
    return answering.report_broken("certify", seen) or _below(args.radius, seen)


def _digest(file: str) -> str:
    """sha256 of a file, before it is read as an image: one that changes later is another file."""
    try:
        return digest(file)
    except OSError:  # reading the image will say what is wrong
        return ""


def _settings(model: "ACES", options: dict[str, Any]) -> dict[str, Any]:
    """What all rows of a table have in common."""
    return {
        "model": model.digest[:16],
        "sigma": model.sigma,
        "theta": model.theta,
        "rule": model.rule,
        "noise": model.noise,
        "precision": model.precision,
        "asked": options.get("radius"),
        "adaptive": options.get("adaptive", False),
    } | {name: options[name] for name in ("alpha", "n0", "n", "seed")}


def _below(radius: float | None, answered: list[Answered]) -> int:
    """Exit status 1 if an image is not certified within the radius that was asked for."""
    found = [it.answer for it in answered if it.answer is not None]
    return int(radius is not None and any(getattr(it, "radius", 0.0) < radius for it in found))


def _record(it: Answered) -> dict[str, Any]:
    record = answering.record(it)
    if it.answer is not None:
        record["grey_levels"] = it.answer.grey_levels  # type: ignore[union-attr]
    return record


def _show(answered: list[Answered], model: "ACES", alpha: float) -> None:
    from aces.model.certificates import change
    from aces.rule.statistics import floor_digits

    assert model.shape is not None
    values = math.prod(model.shape)
    table = answering.new_table(model, alpha)
    for name in ("radius", "one value", f"all {values:,}"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("route", no_wrap=True)
    table.add_column("draws", justify="right", no_wrap=True)
    for it in answered:
        if it.answer is None:
            continue
        radius = it.answer.radius  # type: ignore[union-attr]
        table.add_row(
            _escaped(it.file),
            answering.class_cell(it),
            *((floor_digits(radius, 4), *change(radius, values=values)) if radius else [""] * 3),
            it.answer.route.name.lower(),
            f"{it.answer.draws:,}",
        )
    answering.show_table(table)
    say(
        "radius: l2, pixels in [0, 1]. Within it one value may change by so many of 255 grey "
        "levels,"
        f" or all {values:,} at once. Rounded down."
    )


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
