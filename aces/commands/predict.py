"""`aces predict`: the class of image files, without a radius, with as few draws as it takes."""

import argparse
import json

from aces.commands.certify import (
    add_draw_options,
    add_model_options,
    cells,
    chosen,
    load_model,
    percent,
    read,
)
from aces.console import console

EXAMPLE = """aces predict photo.png
  aces predict *.png --no-adaptive --n 10000 --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--n", type=int, help="draws, at most (default: as params.yaml says, or 10,000)"
    )
    add_draw_options(
        parser, adaptive="stop an image when its class is sure, with the same confidence (default)"
    )


def run(args: argparse.Namespace) -> int:
    model, settings = load_model(args)
    options = {"adaptive": True} | chosen(
        n=args.n, alpha=args.alpha, adaptive=args.adaptive, seed=args.seed
    )
    if settings is not None:
        options = {"n": settings.sample.n_predict, "alpha": settings.combine.alpha} | options
    predictions = model.predict(read(model, args.images), **options, progress=not args.json)
    if args.json:
        print(
            json.dumps(
                [_record(path, it, model) for path, it in zip(args.images, predictions)], indent=2
            )
        )
    else:
        console.print(_table(args.images, predictions, model))
    return 0


def _record(path: str, it, model) -> dict:
    return {
        "image": path,
        "prediction": int(it),
        "class": it.name or None,
        "confidence": 1 - it.alpha,
        "draws": it.draws,
        "seed": it.seed,
        "sigma": model.sigma,
        "theta": model.theta,
    }


def _table(paths: list[str], predictions: list, model):
    from rich.table import Table

    table = Table(title=f"sigma {model.sigma:g}, theta {model.theta:g}")
    for name in ("image", "class"):
        table.add_column(name, overflow="fold")
    for name in ("confidence", "draws"):
        table.add_column(name, justify="right")
    for path, it in zip(paths, predictions):
        table.add_row(*cells(path, it, it.name), percent(1 - it.alpha), f"{it.draws:,}")
    return table
