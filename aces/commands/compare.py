"""`aces compare`: several runs of the MLflow store in one page and one table."""

import logging
import os
import re

from rich.box import SIMPLE
from rich.table import Table

from aces.console import console, warn
from aces.errors import InputError

PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}  # with a server that does not answer
EXAMPLE = "aces compare cifar10-gaussian-0.25 3f2a91 --out reports/compare"


def configure(parser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a run's name or the beginning of its id (default: all finished runs)",
    )
    parser.add_argument(
        "--out",
        default="reports/compare",
        metavar="DIR",
        help="where index.html, compare.csv and compare.md go (default reports/compare)",
    )
    parser.add_argument(
        "--loss",
        type=float,
        default=5.0,
        metavar="POINTS",
        help="natural accuracy, in points, that ACES may give up in the table (default 5)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args) -> int:
    from aces import tracking
    from aces.reporting import compare

    if not 0 <= args.loss <= 100:
        raise InputError(f"--loss={args.loss:g}: expected points between 0 and 100")
    finished = read_store()
    if not finished:
        raise InputError(
            f"no finished run in {public(tracking.tracking_uri())}: `dvc repro` makes one"
        )
    curves = read_curves(chosen(finished, args.runs), named=bool(args.runs))
    curves = curves if args.runs else compare.distinct(curves)
    try:
        compare.write_comparison(args.out, curves, loss=args.loss / 100)
    except OSError as error:
        raise InputError(
            f"--out={args.out}: cannot be written ({error.strerror}): give another folder"
        ) from None
    table = compare.summary(curves, loss=args.loss / 100)
    if args.json:
        print(table.to_json(orient="records", indent=2))
    else:
        table = compare.for_terminal(table)
        show(compare.headings(table), compare.as_text(table), out=args.out, loss=args.loss)
    return 0


def read_store() -> list:
    """The finished runs, or one line on why they cannot be had."""
    from aces import tracking

    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    logging.disable(logging.ERROR)  # of each attempt, which MLflow and urllib3 tell
    try:
        return tracking.finished_runs()
    except InputError:
        raise
    except Exception as error:  # of MLflow, of its database, of its HTTP library, of the server
        why = public((str(error).strip().splitlines() or [type(error).__name__])[0])[:200]
        raise InputError(
            f"the MLflow store {public(tracking.tracking_uri())} cannot be read ({why}): "
            f"see that it is whole and reachable, or set MLFLOW_TRACKING_URI"
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def public(uri: str) -> str:
    """Without a user's name and password."""
    return re.sub(r"//[^/@]*@", "//", uri)


def read_curves(runs: list, *, named: bool) -> list:
    """The runs' results. One without any is an error if it was asked for by name, else it is left
    out.
    """
    from aces.reporting import compare

    curves = [compare.read_curve(run) for run in runs]
    without = [
        f"{run.name} ({run.id[:8]})"
        for run, curve in zip(runs, curves, strict=True)
        if curve is None
    ]
    if without and (named or len(without) == len(runs)):
        raise InputError(
            f"no results/curve.csv and results/metrics.json with {', '.join(without)}: run `dvc repro` again"
            + (", or name the other runs by their ids" if len(without) < len(runs) else "")
        )
    if without:
        warn(
            f"left out, without results: {', '.join(without)}",
        )
    return [curve for curve in curves if curve is not None]


def chosen(finished: list, names: list[str]) -> list:
    """The runs that were asked for, by name or by the beginning of the id, in that order."""
    if not names:
        return finished
    found = []
    for name in names:
        matching = [run for run in finished if run.name == name or run.id.startswith(name)]
        if not matching:
            there = ", ".join(sorted({run.name for run in finished}))
            raise InputError(f"no finished run {name!r}: there are {there}")
        found += [run for run in matching if run not in found]
    return found


def show(headings: list[str], rows: list[list[str]], *, out: str, loss: float) -> None:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        narrow = heading.replace(" ", "\n").replace("@", "\n@")
        table.add_column(narrow, justify="right" if place else "left", no_wrap=bool(place))
    for row in rows:
        table.add_row(*row)
    console.print(
        f"ACES at the largest ACR within {loss:g} points of the core network's natural accuracy "
    )
    console.print(table)
    console.print(f"page: {out}/index.html   curves: {out}/compare.csv", markup=False)
