"""`aces compare`: several runs of the MLflow store in one page and one table."""

from rich.box import SIMPLE
from rich.table import Table

from aces.console import console
from aces.errors import InputError

EXAMPLE = "aces compare cifar10-gaussian-0.25 3f2a91 --out reports/compare"


def configure(parser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN",
                        help="a run's name or the beginning of its id (default: all finished runs)")
    parser.add_argument("--out", default="reports/compare", metavar="DIR",
                        help="where index.html, compare.csv and compare.md go (default reports/compare)")
    parser.add_argument("--loss", type=float, default=5.0, metavar="POINTS",
                        help="natural accuracy, in points, that ACES may give up in the table (default 5)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args) -> int:
    from aces import tracking
    from aces.reporting import compare
    if not 0 <= args.loss <= 100:
        raise InputError(f"--loss={args.loss:g}: expected points between 0 and 100")
    finished = tracking.finished_runs()
    if not finished:
        raise InputError(f"no finished run in {tracking.tracking_uri()}: `dvc repro` makes one")
    curves = [curve for curve in map(compare.read_curve, chosen(finished, args.runs)) if curve is not None]
    if not curves:
        raise InputError("none of these runs kept results/curve.csv and results/metrics.json: run `dvc repro` again")
    curves = curves if args.runs else compare.distinct(curves)
    compare.write_comparison(args.out, curves, loss=args.loss / 100)
    table = compare.summary(curves, loss=args.loss / 100)
    if args.json:
        print(table.to_json(orient="records", indent=2))
    else:
        table = compare.for_terminal(table)
        show(compare.headings(table), compare.as_text(table), out=args.out, loss=args.loss)
    return 0


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
    console.print(f"ACES at the largest ACR within {loss:g} points of the core network's natural accuracy ")
    console.print(table)
    console.print(f"page: {out}/index.html   curves: {out}/compare.csv", markup=False)
