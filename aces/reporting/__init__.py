"""Frames in, tables, figures and pages out: the same inputs give the same bytes."""

from pathlib import Path

from aces.files import make_folder
from aces.reporting.browser import screenshot
from aces.reporting.inputs import Inputs
from aces.reporting.outcomes import OutcomeTable, read_outcomes, tabulate, write_outcomes

__all__ = [
    "Inputs",
    "OutcomeTable",
    "read_outcomes",
    "screenshot",
    "tabulate",
    "write_outcomes",
    "write_report",
]


def write_report(folder: str | Path, inputs: Inputs) -> None:
    """Write `index.html`, `figures/` and `tables/` into `folder`."""
    from aces.reporting import figures, page, tables  # matplotlib is slow to import

    folder = Path(folder)
    for name in ("figures", "tables"):
        make_folder(folder / name)
    written = tables.write_tables(folder / "tables", inputs)
    figures.write_figures(folder / "figures", inputs)
    page.write_page(folder / "index.html", inputs, tables_written=written)
