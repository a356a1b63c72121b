"""`aces attack`: how certified images fare under attack, inside and outside of their radius."""

import argparse
import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aces import paths
from aces.commands import answering
from aces.commands.certify import draw_options
from aces.console import console, fail, progress, say
from aces.errors import InputError
from aces.files import atomic, digest, make_folder, write_json, write_text

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from aces.model.attack import Attacked
    from aces.model.composed import ACES
    from aces.params import Params

EXAMPLE = """aces attack
  aces attack --images 50 --scales 0.98 1.5 2 --out attack
  aces attack photos/*.png --model my-model"""
IMAGES = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="IMAGE",
        help="image files or folders (default: images that the pipeline evaluates)",
    )
    answering.add_model_options(parser)
    parser.add_argument(
        "--images",
        type=int,
        default=IMAGES,
        metavar="N",
        help=f"how many of the pipeline's images, spread evenly (default {IMAGES})",
    )
    parser.add_argument(
        "--scales",
        type=float,
        nargs="+",
        metavar="M",
        help="sizes of the attacks, as multiples of each image's certified radius "
        "(default 0.5 0.98 1.5 2 3 4)",
    )
    parser.add_argument("--steps", type=int, help="of gradient descent (default 20)")
    parser.add_argument(
        "--draws", type=int, help="of noise for the gradient of a step (default 32)"
    )
    parser.add_argument("--directions", type=int, help="random directions (default 16)")
    parser.add_argument("--n0", type=int, help="draws for the guesses of the certificates")
    parser.add_argument("--n", type=int, help="draws for their bounds, at most")
    answering.add_draw_options(parser, adaptive="stop a certificate early")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="reports/attack",
        help="where attack.json, attack.csv, trials.csv and attack.png go (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="also print the JSON")


def run(args: argparse.Namespace) -> int:
    from aces.model.attack import SCALES, Effort, attack

    if args.images < 1:
        raise InputError(f"--images={args.images}: expected a whole number of at least 1")
    effort = Effort(
        **answering.given(
            steps=args.steps, draws=args.draws, directions=args.directions, seed=args.seed
        )
    )
    folder = make_folder(args.out)
    model, settings = answering.load_model(args)
    names, images, labels = _images(args, model)
    certificates = model.certify(images, **draw_options(args, settings), progress=not args.json)
    scales = tuple(args.scales or SCALES)
    targets = sum(it.radius > 0 for it in certificates)
    steps = targets * len(scales) * (2 + effort.directions)
    with progress("attacking", steps, "attacked images") as bar:
        result = attack(
            model,
            images,
            certificates,
            labels=labels,
            scales=scales,
            effort=effort,
            gradients=_gradients(settings),
            advance=bar.advance,
        )
    summary = _summary(result, names, model) | {"files": _pipeline_files(args)}
    _write(folder, result, names, summary)
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        _show(result, folder)
    for it in result.breaches:
        fail(
            f"aces attack: {names[it.image]}: certified within "
            f"{certificates[it.image].radius:.6g}, but at distance {it.distance:.6g} ACES answers "
            f"{it.answer} instead of {certificates[it.image].prediction} (attack {it.attack}): "
            "this certificate is false, which happens by chance with probability "
            f"{certificates[it.image].alpha:g} at most"
        )
    return int(bool(result.breaches))


def _gradients(settings: "Params | None") -> "nn.Module | None":
    """The float32 network behind the pipeline's int8 network, which has no gradients itself."""
    from aces.networks import load_model

    if settings is None or settings.sample.precision != "int8":
        return None
    return load_model(paths.network("certify"))


def _images(
    args: argparse.Namespace, model: "ACES"
) -> "tuple[list[str], np.ndarray, np.ndarray | None]":
    """Names, images (N, H, W, C) and, where they are known, labels."""
    import numpy as np

    from aces import data, params
    from aces.data.images import read_images

    if args.files:
        files = answering.find_files(args.files)
        if model.shape is None:
            raise InputError("the model does not say which images it takes: save it with a shape")
        return files, read_images(files, shape=model.shape, resize=model.resize), None
    evaluation = data.read_eval(paths.evaluation_images(params.load().dataset.name))
    count = min(args.images, len(evaluation.label))
    chosen = np.linspace(0, len(evaluation.label) - 1, count).round().astype(int)
    names = [f"image {evaluation.index[i]}" for i in chosen]
    return names, evaluation.image[chosen], evaluation.label[chosen]


def _summary(result: "Attacked", names: list[str], model: "ACES") -> dict[str, Any]:
    first = result.certificates[0]
    return {
        "sigma": model.sigma,
        "theta": model.theta,
        "rule": model.rule,
        "alpha": first.alpha,
        "seed": first.seed,
        "images": len(names),
        "certified": len(result.targets),
        "breaches": [names[it.image] for it in result.breaches],
        "scales": result.by_scale(),
        "curve": result.curve(),
    }


def _pipeline_files(args: argparse.Namespace) -> dict[str, str]:
    """The digests of the networks and images of the pipeline, if these were attacked: the report
    shows an attack only beside the numbers of the same networks.
    """
    from aces import params

    if args.files or args.model is not None:
        return {}
    images = paths.evaluation_images(params.load().dataset.name)
    files = (paths.network("core"), paths.network("certify"), images)
    return {str(path): digest(path) for path in files}


def _write(folder: Path, result: "Attacked", names: list[str], summary: dict[str, Any]) -> None:
    write_json(folder / "attack.json", summary)
    write_text(folder / "attack.csv", _csv(result.curve()))
    trials = [
        {
            "image": names[it.image],
            "radius": result.certificates[it.image].radius,
            "certified": result.certificates[it.image].prediction,
            "attack": it.attack,
            "scale": it.scale,
            "distance": it.distance,
            "answer": it.answer,
            "changed": it.changed,
        }
        for it in result.trials
    ]
    write_text(folder / "trials.csv", _csv(trials))
    _draw(folder / "attack.png", result)


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _draw(path: Path, result: "Attacked") -> None:
    """The curve as a picture, where matplotlib is installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        say("attack.png is left out: it needs matplotlib (`pip install matplotlib`)")
        return
    curve = result.curve()
    radius = [row["radius"] for row in curve]
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    for key, label, colour in (
        ("empirical_accuracy", "no attack found", "#e69f00"),
        ("certified_accuracy", "certified", "#0072b2"),
    ):
        values = [100 * row[key] for row in curve]
        panel.plot(radius, values, drawstyle="steps-post", label=label, color=colour)
    panel.set_xlabel("l2 radius, pixels in [0, 1]")
    panel.set_ylabel("right answers, %")
    panel.set_ylim(0, None)
    panel.legend(frameon=False)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=150, metadata={"Software": None})


def _show(result: "Attacked", folder: Path) -> None:
    from rich.table import Table

    from aces.model.attack import ATTACKS

    say(
        f"{len(result.targets)} certified of {len(result.certificates)} images; "
        "how many answers each attack changed:"
    )
    table = Table()
    for name in ("multiple of the radius", *ATTACKS, "any"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.by_scale():
        table.add_row(f"{row['scale']:g}", *(str(row[name]) for name in (*ATTACKS, "any")))
    console.print(table)
    say(f"written to {folder}")
