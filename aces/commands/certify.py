"""`aces certify`: class, radius and route of image files."""

import argparse
import json

from aces.console import console
from aces.errors import InputError

EXAMPLE = """aces certify photo.png
  aces certify *.png --theta 0.3 --radius 0.25 --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
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
    add_draw_options(
        parser,
        adaptive="stop an image early, with the same confidence (default: only with --radius)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="image files of any size and mode"
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="a folder written by ACES.save (default: the networks of the pipeline in this folder)",
    )
    parser.add_argument(
        "--theta",
        type=float,
        metavar="T",
        help="the certification network is selected where the score is at most T "
        "(default: the model's; the pipeline's: 0.5)",
    )


def add_draw_options(parser: argparse.ArgumentParser, *, adaptive: str) -> None:
    parser.add_argument(
        "--alpha",
        type=float,
        help="probability with which an answer may be wrong (default: as params.yaml says, or 0.001)",
    )
    parser.add_argument("--adaptive", action=argparse.BooleanOptionalAction, help=adaptive)
    parser.add_argument(
        "--seed", type=int, help="repeat the draws of an earlier answer (default: fresh ones)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, with radii in full precision"
    )


def run(args: argparse.Namespace) -> int:
    if args.radius is not None and not args.radius > 0:
        raise InputError(
            f"--radius={args.radius:g}: expected a number above 0, in [0, 1] pixel units"
        )
    model, settings = load_model(args)
    options = chosen(n0=args.n0, n=args.n, alpha=args.alpha, seed=args.seed)
    if settings is not None:
        options = {
            "n0": settings.sample.n0,
            "n": settings.sample.n,
            "alpha": settings.combine.alpha,
            "multiplicity": settings.combine.multiplicity,
        } | options
    if args.adaptive or (args.adaptive is None and args.radius is not None):
        options |= {"adaptive": True, "radius": args.radius}
    certificates = model.certify(read(model, args.images), **options, progress=not args.json)
    if args.json:
        print(
            json.dumps(
                [_record(path, it, model) for path, it in zip(args.images, certificates)], indent=2
            )
        )
    else:
        console.print(_table(args.images, certificates, model))
    return int(args.radius is not None and any(it.radius < args.radius for it in certificates))


def load_model(args: argparse.Namespace):
    """The model asked for, and the parameters of the pipeline if it is the pipeline's."""
    from aces import params, runtime
    from aces.model.composed import ACES

    environment = runtime.from_environment()
    where = {"device": environment.device, "workers": environment.workers}
    settings = params.load() if args.model is None else None
    model = ACES.from_pipeline(**where) if args.model is None else ACES.load(args.model, **where)
    return (model if args.theta is None else model.at(theta=args.theta)), settings


def read(model, paths: list[str]):
    """(N, H, W, C) uint8: the image files as the model sees them."""
    from aces.data.images import read_images

    if model.shape is None:
        raise InputError(
            "the model does not say which images it takes: give ACES(shape=(C, H, W)) and save it again"
        )
    return read_images(paths, shape=model.shape, resize=model.resize)


def chosen(**options) -> dict:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def percent(confidence: float) -> str:
    """0.999 is "99.9 %"."""
    return f"{100 * confidence:.10g} %"


def cells(path: str, prediction: int, name: str) -> tuple[str, str]:
    """What a table shows of an image and its class."""
    from rich.markup import escape

    from aces.rule.smoothing import ABSTAIN

    return escape(path), "abstains" if prediction == ABSTAIN else escape(
        name or str(int(prediction))
    )


def _record(path: str, it, model) -> dict:
    return {
        "image": path,
        "prediction": it.prediction,
        "class": it.name or None,
        "radius": it.radius,
        "grey_levels": it.grey_levels,
        "route": it.route.name.lower(),
        "p_select": it.p_select,
        "p_class": it.p_class,
        "confidence": 1 - it.alpha,
        "draws": it.draws,
        "invalid": it.invalid,
        "seed": it.seed,
        "sigma": model.sigma,
        "theta": model.theta,
    }


def _table(paths: list[str], certificates: list, model):
    from rich.table import Table

    from aces.rule.statistics import floor_digits

    table = Table(
        title=f"sigma {model.sigma:g}, theta {model.theta:g}",
        caption="radius: l2, pixels in [0, 1]; grey levels: of 255; both rounded down",
    )
    for name in ("image", "class"):
        table.add_column(name, overflow="fold")
    for name in ("radius", "grey levels"):
        table.add_column(name, justify="right")
    table.add_column("route")
    for name in ("confidence", "draws"):
        table.add_column(name, justify="right")
    for path, it in zip(paths, certificates):
        table.add_row(
            *cells(path, it.prediction, it.name),
            floor_digits(it.radius, 4),
            floor_digits(it.grey_levels, 1),
            it.route.name.lower(),
            percent(1 - it.alpha),
            f"{it.draws:,}",
        )
    return table
