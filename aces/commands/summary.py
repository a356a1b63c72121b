"""`aces summary`: the finished run in one table, and where to look next."""

import json
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from aces import params as parameters
from aces.console import console
from aces.errors import InputError
from aces.rule.statistics import floor_digits

EXAMPLE = "aces summary"
NEXT = (
    ("the report", "open reports/index.html"),
    ("every run", "mlflow ui"),
    ("every experiment", "dvc exp show"),
    ("another noise level", "dvc exp run -S sigma=0.5"),
)


def configure(parser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the rows of the table and the metrics as JSON"
    )


def run(args) -> int:
    params = parameters.load()
    curve, metrics = read_results(Path("results"))
    rows = curve[curve["theta"].round(9).isin([round(theta, 9) for theta in params.report.thetas])]
    if args.json:
        print(json.dumps({"metrics": metrics, "curve": rows.to_dict("records")}, indent=2))
        return 0
    console.print(
        f"{params.dataset.name}, {params.certify.method}, sigma {params.sigma:g}: "
        f"certified accuracy at radius r, in percent"
    )
    console.print(table(rows, metrics))
    console.print("NAC: natural accuracy; core, abstain: shares of images")
    console.print(
        f"ACR: average certified radius, {floor_digits(metrics['acr_ceiling'], 3)} at most "
        f"with n = {params.sample.n:,} and alpha = {params.combine.alpha:g}"
    )
    console.print()
    for what, command in NEXT:
        console.print(f"  {what:<20} [bold]{command}[/bold]")
    return 0


def read_results(folder: Path) -> tuple[pd.DataFrame, dict]:
    """The curve and the metrics of the stage `combine`."""
    try:
        return pd.read_csv(folder / "curve.csv"), json.loads((folder / "metrics.json").read_text())
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename} does not exist: `make repro` or `dvc repro` makes it"
        ) from None


def table(rows: pd.DataFrame, metrics: dict) -> Table:
    """The curve's rows, with the two networks alone above and below them."""
    radii = [
        column
        for column in rows.columns
        if column.startswith("certified_accuracy@") and rows[column].any()
    ]
    made = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    made.add_column("θ", no_wrap=True)
    for name in (
        "NAC",
        "ACR",
        *(f"r = {column.split('@')[1]}" for column in radii),
        "core",
        "abstain",
    ):
        made.add_column(name, justify="right", no_wrap=True)
    core, alone = metrics["core"]["nac"], metrics["certify"]
    made.add_row(
        "core alone",
        *_cells({"nac": core, "acr": 0.0, "certified_accuracy@0": core}, radii),
        style="dim",
    )
    for _, row in rows.iterrows():
        shares = _percent(row["core_rate"]), _percent(row["abstention"])
        made.add_row(f"{row['theta']:.2f}", *_cells(row, radii), *shares)
    made.add_row("certify alone", *_cells(alone, radii), style="dim")
    return made


def _cells(row, radii: list[str]) -> list[str]:
    return [
        _percent(row["nac"]),
        floor_digits(row["acr"], 3),
        *(_percent(row.get(column, 0)) for column in radii),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
