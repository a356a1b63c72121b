"""`aces compare`: several runs of the MLflow store in one page and one table."""

import argparse
import logging
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from aces.console import console, say, warn
from aces.errors import InputError

if TYPE_CHECKING:
    from aces.reporting.runs import RunCurve

EXAMPLE = "aces compare cifar10-gaussian-0.25 3f2a91 --out reports/compare"


def configure(parser: argparse.ArgumentParser) -> None:
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
        metavar="POINTS",
        help="show ACES at the largest ACR that gives up at most so many points of natural "
        "accuracy (default: each run at its own working point)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: argparse.Namespace) -> int:
    from aces import tracking
    from aces.reporting import compare
    from aces.reporting.runs import distinct

    if args.loss is not None and not 0 <= args.loss <= 100:
        raise InputError(f"--loss={args.loss:g}: expected points between 0 and 100")
    loss = None if args.loss is None else args.loss / 100
    finished = read_store()
    if not finished:
        raise InputError(
            f"no finished run in {tracking.public(tracking.tracking_uri())}: `dvc repro` makes one"
        )
    curves = read_curves(chosen(finished, args.runs), named=bool(args.runs))
    curves = curves if args.runs else distinct(curves)
    try:
        compare.write_comparison(args.out, curves, loss=loss)
    except OSError as error:
        raise InputError(
            f"--out={args.out}: cannot be written ({error.strerror}): give another folder"
        ) from None
    if args.json:
        print(compare.summary(curves, loss=loss).to_json(orient="records", indent=2))
    else:
        show(curves, out=args.out, loss=loss)
    return 0


def read_store() -> list:
    """The finished runs, or one line on why they cannot be had."""
    from aces import tracking

    logging.disable(logging.ERROR)  # MLflow and urllib3 would report every attempt
    try:
        return tracking.finished_runs()
    except Exception as error:  # of MLflow, of its database, of its HTTP library, of the server
        why = tracking.reason(error)
        remedy = "" if "MLFLOW_TRACKING_URI" in why else "; MLFLOW_TRACKING_URI names another one"
        raise InputError(f"the MLflow store cannot be read: {why}{remedy}") from None
    finally:
        logging.disable(logging.NOTSET)


def read_curves(runs: list, *, named: bool) -> list:
    """The runs' results. One without any is an error if it was asked for by name, else it is left
    out.
    """
    from aces.reporting.runs import read_curve

    curves = [read_curve(run) for run in runs]
    without = [
        f"{run.name} ({run.id[:8]})"
        for run, curve in zip(runs, curves, strict=True)
        if curve is None
    ]
    if without and (named or len(without) == len(runs)):
        raise InputError(
            f"no results/curve.csv and results/summary.json with {', '.join(without)}: "
            "run `dvc repro` again"
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


def show(curves: list["RunCurve"], *, out: str, loss: float | None) -> None:
    """The tables of all datasets on the terminal, and where the page is."""
    from aces.reporting import compare
    from aces.reporting.runs import grouped

    say(f"ACES at {compare.standing(loss)}")
    for dataset, group in grouped(curves).items():
        headings, rows = compare.composed(group, loss=loss)
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0), title=Text(dataset), title_justify="left")
        kept = fitting(headings, rows, console.width)
        for place, heading in enumerate(headings[:kept]):
            table.add_column(
                Text(narrow(heading)), justify="right" if place else "left", no_wrap=bool(place)
            )
        for row in rows:
            table.add_row(*map(Text, row[:kept]))
        console.print(table)
        if words := compare.early(group):
            say(words)
        if kept < len(headings):
            say(f"a wider terminal also shows {', '.join(headings[kept:])}")
    say(f"page: {out}/index.html   curves: {out}/compare.csv   to print: {out}/trade-off-*.pdf")


def narrow(heading: str) -> str:
    """A heading in two lines: `core NAC`, `r ≈ 2 σ`."""
    first, _, rest = heading.removeprefix("r ").partition(" ")
    return f"r {first}\n{rest}" if heading.startswith("r ") else f"{first}\n{rest}".rstrip()


def fitting(headings: list[str], rows: list[list[str]], width: int) -> int:
    """How many columns fit into the terminal; those with the largest radii are left out first."""
    used = min(24, max(len(row[0]) for row in rows)) + 4
    for place, heading in enumerate(headings[1:], start=1):
        longest = max(
            len(text) for text in (*narrow(heading).split("\n"), *(r[place] for r in rows))
        )
        used += longest + 2
        if used > width and place > 8:
            return place
    return len(headings)
