"""`aces summary`: the finished run in a few lines and one table, and where to look next."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import HEAVY, SIMPLE
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from aces import params as parameters
from aces.console import console, say

if TYPE_CHECKING:
    import pandas as pd

    from aces.reporting.runs import RunCurve

EXAMPLE = "aces summary"
OTHER_COLUMNS = 44  # characters that the columns beside the certified accuracies take
NEXT = (
    ("the report", "open reports/index.html"),
    ("every run", "mlflow ui"),
    ("every experiment", "dvc exp show --only-changed --drop '.*/'"),
    ("another noise level", "dvc exp run -S sigma=0.5"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the working point, the rows of the table and the metrics as JSON",
    )


def run(args: argparse.Namespace) -> int:
    from aces.reporting.runs import read_results

    params = parameters.load()
    flat = {name: str(value) for name, value in parameters.flatten(params).items()}
    found = read_results(Path(), flat)
    rows = rows_of(found, params.report.thetas)
    if args.json:
        print(json.dumps(as_json(found, rows), indent=2))
        return 0
    show_concerns(found.concerns)
    show_working_point(found)
    console.print(table(found, rows))
    for line in remarks_of(found, params):
        say(line)
    console.print()
    for what, command in NEXT:
        console.print(f"  {what:<20} [bold]{command}[/bold]")
    return 0


def rows_of(found: "RunCurve", thetas: list[float]) -> "pd.DataFrame":
    """The rows of the curve at `report.thetas`, and at the working point."""
    wanted = {round(theta, 9) for theta in (*thetas, found.working_point.theta)}
    return found.curve[found.curve["theta"].round(9).isin(wanted)]


def as_json(found: "RunCurve", rows: "pd.DataFrame") -> dict:
    point = found.working_point
    return {
        "working_point": {
            "theta": point.theta,
            "source": point.source,
            "words": point.words,
            **found.at(None).drop("theta").to_dict(),
        },
        "concerns": found.concerns,
        "metrics": found.metrics,
        "curve": rows.to_dict("records"),
    }


def show_concerns(concerns: list[str]) -> None:
    """A box that cannot be missed."""
    if concerns:
        words = Text("\n").join(Text(f"• {concern}") for concern in concerns)
        title = "Do not rely on these numbers yet"
        console.print(Panel(words, title=title, box=HEAVY, style="bold yellow"))


def show_working_point(found: "RunCurve") -> None:
    """What ACES does at its one theta, and what its two networks do alone."""
    from aces.rule.statistics import floor_digits

    point, row, alone = found.working_point, found.at(None), found.metrics["certify"]
    reached = [r for r in found.radii if float(r) > 0 and row[f"certified_accuracy@{r}"] > 0]
    certified = [f"{_percent(row[f'certified_accuracy@{r}'])} % at r = {r}" for r in reached[:3]]
    say(
        f"{found.dataset}, {found.params.get('certify.method')}, sigma {found.sigma:g}, "
        f"{found.rule} rule, theta {point.theta:g}:"
    )
    say(
        f"  ACES answers {_percent(row['nac'])} % correctly and certifies "
        f"{', '.join(certified) or 'nothing'} (ACR {floor_digits(row['acr'], 3)})"
    )
    say(
        f"  core network alone {_percent(found.core_nac)} %, certification network alone "
        f"{_percent(alone['nac'])} %"
    )
    say(f"  theta is {point.words}")


def fitting_radii(found: "RunCurve", rows: "pd.DataFrame", width: int) -> list[str]:
    """The columns of certified accuracies that fit into the terminal, evenly spaced radii."""
    names = [
        f"certified_accuracy@{r}" for r in found.radii if rows[f"certified_accuracy@{r}"].any()
    ]
    longest = max((len(r) for r in found.radii), default=1)
    room = max(2, (width - OTHER_COLUMNS) // (max(5, longest) + 2))
    if len(names) <= room:
        return names
    above = [name for name in names if float(name.split("@")[1]) > 0]
    step = (len(above) - 1) / max(1, min(room, len(above)) - 1)
    return [above[round(k * step)] for k in range(min(room, len(above)))]


def table(found: "RunCurve", rows: "pd.DataFrame") -> Table:
    """The curve's rows, with the two networks alone above and below them."""
    radii = fitting_radii(found, rows, console.width)
    made = Table(
        box=SIMPLE, padding=(0, 1, 0, 0), caption="in percent; the ACR in pixels of [0, 1]"
    )
    made.add_column("θ", no_wrap=True)
    titles = [f"r =\n{name.split('@')[1]}" for name in radii]
    for title in ("NAC", "ACR", *titles, "core", "abstain"):
        made.add_column(title, justify="right", no_wrap=True)
    core = {"nac": found.core_nac, "acr": 0.0, "certified_accuracy@0": found.core_nac}
    made.add_row("core alone", *_cells(core, radii), style="dim")
    for _, row in rows.iterrows():
        shares = [_percent(row[name]) for name in ("core_rate", "abstention") if name in row]
        here = abs(row["theta"] - found.working_point.theta) < 1e-9
        made.add_row(
            f"{row['theta']:.2f}{' ←' if here else ''}",
            *_cells(row, radii),
            *shares,
            style="bold" if here else "",
        )
    made.add_row("certify alone", *_cells(found.metrics["certify"], radii), style="dim")
    return made


def remarks_of(found: "RunCurve", params: parameters.Params) -> list[str]:
    """What the numbers mean, and what is unusual about them."""
    from aces.reporting.remarks import above_natural, stopped_early
    from aces.rule.statistics import floor_digits

    lines = [
        "NAC: natural accuracy; r: certified accuracy at that radius; core, abstain: shares of "
        "images",
        f"ACR: average certified radius, {floor_digits(found.metrics['acr_ceiling'], 3)} at most "
        f"with n = {params.sample.n:,} and alpha = {params.combine.alpha:g}",
    ]
    lines += [words for words in (above_natural(found.curve), stopped_early(params)) if words]
    lines += [same_price(found, rule) for rule in found.others]
    return lines


def same_price(found: "RunCurve", other: str) -> str:
    """Both rules at the natural accuracy of the working point, each at its best theta there."""
    from aces.rule.statistics import floor_digits
    from aces.rule.working_point import best_within

    nac = float(found.at(None)["nac"])
    best = {}
    for rule, curve in ((found.rule, found.curve), (other, found.others[other])):
        step = best_within(curve["nac"].to_numpy(), curve["acr"].to_numpy(), core_nac=nac, loss=0)
        best[rule] = floor_digits(float(curve["acr"].iloc[step]), 3)
    return (
        f"at {_percent(nac)} % natural accuracy or more, the largest ACR of the {found.rule} rule "
        f"is {best[found.rule]}, of the {other} rule {best[other]}, from the same draws"
    )


def _cells(row, radii: list[str]) -> list[str]:
    from aces.rule.statistics import floor_digits

    return [
        _percent(row["nac"]),
        floor_digits(row["acr"], 3),
        *(_percent(row.get(column, 0)) for column in radii),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
