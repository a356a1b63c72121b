"""The figure of several runs, as one would print it: a PDF, and a PNG to look at.

One column of panels per noise level, one line per run: certified accuracy at a radius of sigma, and
the average certified radius, each over natural accuracy. A ring marks the working point.
"""

import re
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from aces.reporting.figures import STYLE
from aces.reporting.results import ACCURACY
from aces.reporting.runs import RunCurve, labels

# Okabe and Ito's colours, those that are read best on white first.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c2126")
STYLES: list[dict[str, Any]] = [
    {"color": colour, "linestyle": dash, "linewidth": 1.4}
    for dash in ("-", "--", ":")
    for colour in COLOURS
]
RING: dict[str, Any] = {"marker": "o", "markersize": 5.5, "markerfacecolor": "white"}
WIDTH, HEIGHT = 2.6, 2.2  # of a panel, in inches
PRINT = STYLE | {"font.size": 8, "savefig.dpi": 200, "pdf.fonttype": 42}


def figure_names(dataset: str) -> list[str]:
    """The files of a dataset's figure: `trade-off-cifar-10.pdf` and `.png`."""
    slug = re.sub(r"\W+", "-", dataset.lower()).strip("-")
    return [f"trade-off-{slug}.{kind}" for kind in ("pdf", "png")]


def write_figure(folder: Path, runs: list[RunCurve], *, loss: float | None) -> None:
    """Write the figure of the runs of one dataset."""
    with matplotlib.rc_context(PRINT):
        figure = draw(runs, loss=loss)
        for name in figure_names(runs[0].dataset):
            # Without dates and versions in it, the same figure is the same file.
            absent = ("CreationDate", "Producer") if name.endswith("pdf") else ("Software",)
            figure.savefig(folder / name, metadata=dict.fromkeys(absent))


def draw(runs: list[RunCurve], *, loss: float | None) -> Figure:
    """loss: where the rings stand, as in the tables (`RunCurve.step`)."""
    sigmas = sorted({run.sigma for run in runs})
    names = labels(runs, without="sigma")
    styles = dict(zip(dict.fromkeys(names), cycle(STYLES), strict=False))
    size = (0.6 + WIDTH * max(2, len(sigmas)), 0.6 + HEIGHT * 2)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2, len(sigmas), sharex=True, sharey="row", squeeze=False)
    for run, name in zip(runs, names, strict=True):
        top, bottom = panels[:, sigmas.index(run.sigma)]
        point = run.step(loss)
        if (radius := run.near(1.0)) is not None:
            _draw_line(top, run, f"{ACCURACY}{radius}", 100, point, styles[name])
        _draw_line(bottom, run, "acr", 1, point, styles[name])
    for sigma, (top, bottom) in zip(sigmas, panels.T, strict=True):
        top.set_title(f"σ = {sigma:g}", loc="left", fontsize=9)
        bottom.set_xlabel("natural accuracy, %")
    panels[0, 0].set_ylabel("certified accuracy\nat r ≈ σ, %")
    panels[1, 0].set_ylabel("average certified radius")
    for panel in panels.flat:
        panel.set_ylim(bottom=0)
    lines = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    ring = Line2D([], [], label="working point", color="#57606a", linestyle="none", **RING)
    figure.legend(handles=[*lines, ring], loc="outside upper left", ncols=4)
    return figure


def _draw_line(
    panel: Axes, run: RunCurve, metric: str, scale: float, point: int, style: dict[str, Any]
) -> None:
    """A metric of a run from its core network to its certification network alone."""
    nac, value = 100 * run.curve["nac"], scale * run.curve[metric]
    panel.plot(nac, value, **style)
    panel.plot(
        nac.iloc[point], value.iloc[point], color=style["color"], zorder=4, clip_on=False, **RING
    )
