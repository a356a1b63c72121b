"""`aces predict`: the class of image files, without a radius, with as few draws as it takes."""

import argparse
import functools
import json
from typing import TYPE_CHECKING, Any

from aces.commands import answering
from aces.commands.answering import Answered

if TYPE_CHECKING:
    from aces.model.composed import ACES
    from aces.params import Params

EXAMPLE = """aces predict photo.png
  aces predict photos/ --no-adaptive --n 10000 --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    answering.add_file_options(parser)
    answering.add_model_options(parser)
    parser.add_argument(
        "--n", type=int, help="draws, at most (default: as params.yaml says, or 10,000)"
    )
    answering.add_draw_options(
        parser, adaptive="stop an image when its class is sure, with the same alpha (default)"
    )


def run(args: argparse.Namespace) -> int:
    files = answering.find_files(args.images)
    model, settings = answering.load_model(args)
    options = _draw_options(args, settings)
    ask = functools.partial(model.predict, **options)
    answered = list(answering.answer_files(files, model, ask, quiet=args.json))
    if args.json:
        print(json.dumps([answering.record(it) for it in answered], indent=2))
    elif any(it.answer is not None for it in answered):
        _show(answered, model, options["alpha"])
    return answering.report_broken("predict", answered)


def _draw_options(args: argparse.Namespace, settings: "Params | None") -> dict[str, Any]:
    """The options of ACES.predict: those given, else the pipeline's, else the library's."""
    options: dict[str, Any] = {"n": 10_000, "alpha": 0.001, "adaptive": True}
    if settings is not None:
        # Without draws of its own, PREDICT has those of round BOUND.
        n = settings.sample.n_predict or settings.sample.n
        options |= {"n": n, "alpha": settings.combine.alpha}
    return options | answering.given(
        n=args.n, alpha=args.alpha, adaptive=args.adaptive, seed=args.seed
    )


def _show(answered: list[Answered], model: "ACES", alpha: float) -> None:
    from rich.markup import escape

    table = answering.new_table(model, alpha)
    table.add_column("route", no_wrap=True)
    table.add_column("draws", justify="right", no_wrap=True)
    for it in answered:
        if it.answer is not None:
            table.add_row(
                escape(it.file),
                answering.class_cell(it),
                it.answer.route.name.lower(),
                f"{it.answer.draws:,}",
            )
    answering.show_table(table)
