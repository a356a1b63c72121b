"""The paper's figures for this run: a PNG to look at, and a CSV of what it shows.

Each figure is a function from the inputs to the frame behind it, and one that draws that frame.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aces.reporting.inputs import RULES, Inputs

# Okabe and Ito's colours: one for each actor, as on the page.
ACES, CORE, CERTIFY, BASELINE = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
OTHER, QUIET = "#57606a", "#c9ced4"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8b949e",
    "axes.grid": True,
    "grid.color": "#eceef1",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "font.family": "DejaVu Sans",
}
ENTROPY_BINS = 25
PANELS = 6  # panels of the trade-off, at most
THETAS = (0.1, 0.3, 0.5, 0.7, 0.9)  # shown in the figures with several thresholds


def write_figures(folder: Path, inputs: Inputs) -> None:
    """Write `<name>.png` and `<name>.csv` for each figure."""
    with matplotlib.rc_context(STYLE):
        for name, (frame, draw) in FIGURES.items():
            data = frame(inputs)
            data.to_csv(folder / f"{name}.csv", index=False)
            figure = draw(inputs, data)
            # Without the version of matplotlib in it, the same figure is the same file.
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})


def trade_off(inputs: Inputs) -> pd.DataFrame:
    """Natural and certified accuracy with their intervals: a row for each rule and theta."""
    return _with_intervals(inputs, "certified_accuracy@")


def acr(inputs: Inputs) -> pd.DataFrame:
    """Natural accuracy and average certified radius with their intervals: a row for each rule and
    theta.
    """
    return _with_intervals(inputs, "acr")


def correctness(inputs: Inputs) -> pd.DataFrame:
    """How many images are certifiable, and how many not, by their median score."""
    edges = np.linspace(0, 1, ENTROPY_BINS + 1)
    certified, _ = np.histogram(inputs.median_score[inputs.certifiable], edges)
    other, _ = np.histogram(inputs.median_score[~inputs.certifiable], edges)
    return pd.DataFrame(
        {"low": edges[:-1], "high": edges[1:], "certified": certified, "other": other}
    )


def selection_radii(inputs: Inputs) -> pd.DataFrame:
    """The sorted certified radii of the selection, below 0 where the core network is selected: a
    row for each percentile of images, a column for each theta that is shown.
    """
    percentile = np.arange(101)
    signed = inputs.outcomes.signed_selection(inputs.steps)
    ordered = np.percentile(signed, percentile, axis=0, method="closest_observation")
    columns = {f"{inputs.thetas[step]:g}": ordered[:, s] for s, step in enumerate(inputs.steps)}
    return pd.DataFrame({"percentile": percentile, **columns})


def ecdf(inputs: Inputs) -> pd.DataFrame:
    """Shares of images with p_A, and with p_S at each theta that is shown, of at most p."""
    grid = np.linspace(0.5, 1, 101)

    def at_most(values: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.sort(values), grid + 1e-12, side="right") / len(values)

    columns = {
        f"p_select@{inputs.thetas[step]:g}": at_most(inputs.p_select[:, s])
        for s, step in enumerate(inputs.steps)
    }
    return pd.DataFrame({"p": grid, "p_class": at_most(inputs.p_class), **columns})


def _draw_trade_off(inputs: Inputs, data: pd.DataFrame) -> Figure:
    radii = _some(inputs.shown_radii, PANELS)
    columns = min(3, max(1, len(radii)))
    rows = -(-max(1, len(radii)) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.9 * rows + 0.5))
    _margins(figure, left=0.65, right=0.15, bottom=0.6, top=0.85, gap=0.35)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for panel, radius in zip(panels, radii, strict=False):
        _draw_curve(panel, inputs, data, f"certified_accuracy@{radius:g}", scale=100)
        panel.set_title(f"r = {radius:g}", loc="left", fontsize=9)
        panel.set_ylim(bottom=0)
    for panel in list(figure.axes)[len(radii) :]:
        panel.axis("off")
    figure.supxlabel("natural accuracy, %", fontsize=9)
    figure.supylabel("certified accuracy, %", fontsize=9)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="upper left",
        ncols=1 if columns == 1 else 3,
    )
    return figure


def _draw_acr(inputs: Inputs, data: pd.DataFrame) -> Figure:
    figure, panel = _single()
    _draw_curve(panel, inputs, data, "acr", scale=1)
    panel.axhline(inputs.ceiling, color="#57606a", dashes=(6, 4), linewidth=1)
    words = f"ceiling at n = {inputs.params.sample.n:,}, α = {inputs.params.combine.alpha:g}"
    panel.annotate(
        words,
        (0.02, inputs.ceiling),
        xycoords=("axes fraction", "data"),
        xytext=(0, -11),
        textcoords="offset points",
        fontsize=8,
        color="#57606a",
    )
    panel.set(
        xlabel="natural accuracy, %",
        ylabel="average certified radius",
        ylim=(0, inputs.ceiling * 1.06),
    )
    panel.legend()
    return figure


def _draw_curve(
    panel: Axes, inputs: Inputs, data: pd.DataFrame, metric: str, *, scale: float
) -> None:
    """ACES between its two networks, by either rule: `metric` over natural accuracy."""
    mine = data[data["rule"] == inputs.rule]
    others = data[data["rule"] != inputs.rule]
    low, high = scale * mine[f"{metric}_low"], scale * mine[f"{metric}_high"]
    panel.fill_between(100 * mine["nac"], low, high, color=ACES, alpha=0.14, linewidth=0)

    def draw(series: pd.DataFrame, label: str, **style: Any) -> None:
        panel.plot(100 * series["nac"], scale * series[metric], label=label, **style)

    if inputs.other_rule is not None:
        name, dashes = RULES[inputs.other_rule], (0, (6, 2))
        draw(others, f"ACES, {name}", color=OTHER, linestyle=dashes, linewidth=1.3)
    draw(mine, f"ACES, {RULES[inputs.rule]}", color=ACES, linewidth=1.8)
    _draw_networks(panel, inputs, metric, scale=scale)
    thin: dict[str, Any] = {"markersize": 3.5, "linewidth": 1.2}
    if len(inputs.varying_noise):
        style = {"linestyle": ":", "marker": "D", "color": BASELINE}
        draw(inputs.varying_noise, "other noise levels", **style, **thin)
    if len(inputs.entropy_selection):
        draw(inputs.entropy_selection, "selecting by entropy", linestyle="--", color=ACES, **thin)


def _draw_networks(panel: Axes, inputs: Inputs, metric: str, *, scale: float) -> None:
    """The two networks alone, as points at the ends of the curve."""
    point: dict[str, Any] = {
        "linestyle": "none",
        "markersize": 7,
        "clip_on": False,
        "zorder": 4,
        "markeredgecolor": "white",
    }
    core, certify = 100 * inputs.metrics["core"]["nac"], 100 * inputs.alone["nac"]
    panel.plot(core, 0, marker="s", color=CORE, label="core network", **point)
    label = "certification network alone"
    panel.plot(
        certify, scale * inputs.alone[metric], marker="^", color=CERTIFY, label=label, **point
    )


def _draw_correctness(inputs: Inputs, data: pd.DataFrame) -> Figure:
    figure, panel = _single()
    width = data["high"] - data["low"]
    panel.bar(
        data["low"],
        data["certified"],
        width,
        align="edge",
        color=CERTIFY,
        edgecolor="white",
        label=f"certified correctly at r = {inputs.middle_radius:g}",
    )
    panel.bar(
        data["low"],
        data["other"],
        width,
        align="edge",
        color=QUIET,
        edgecolor="white",
        hatch="///",
        bottom=data["certified"],
        label="all others",
    )
    room = 1.25 * max(
        1, (data["certified"] + data["other"]).max()
    )  # for the legend, above the bars
    panel.set(xlabel=f"median {inputs.score}", ylabel="images", xlim=(0, 1), ylim=(0, room))
    panel.legend()
    return figure


def _draw_selection_radii(inputs: Inputs, data: pd.DataFrame) -> Figure:
    figure, panel = _single()
    colours = (CORE, BASELINE, "#1c2126", CERTIFY, ACES)
    found = _nearest(data.columns[1:], THETAS)  # fewer than THETAS on a coarse grid
    for theta, colour, dash in zip(found, colours, _DASHES, strict=False):
        panel.plot(
            data["percentile"], data[theta], color=colour, linestyle=dash, label=f"θ = {theta}"
        )
    panel.set(xlabel="percentile of images", ylabel="certified radius of the selection")
    panel.legend(fontsize=8)
    return figure


def _draw_ecdf(inputs: Inputs, data: pd.DataFrame) -> Figure:
    figure, panel = _single()
    panel.plot(
        data["p"], 100 * data["p_class"], color=CERTIFY, linewidth=2.2, label="$p_A$, the class"
    )
    thetas = [name.removeprefix("p_select@") for name in data.columns[2:]]
    for theta, dash in zip(_nearest(thetas, THETAS[::2]), _DASHES[1:], strict=False):
        panel.plot(
            data["p"],
            100 * data[f"p_select@{theta}"],
            color=ACES,
            linestyle=dash,
            label=f"$p_S$ at θ = {theta}",
        )
    panel.set(
        xlabel="share of draws p",
        ylabel="images with a share of at most p, %",
        xlim=(0.5, 1),
        ylim=(0, 101),
    )
    panel.legend(loc="upper left", fontsize=8)
    return figure


def _with_intervals(inputs: Inputs, prefix: str) -> pd.DataFrame:
    """The curve, with intervals; and that of the other rule, without, where it is known."""
    ends = inputs.intervals.drop(columns="theta")
    shown = inputs.curve.iloc[inputs.steps].reset_index(drop=True)
    both = pd.concat([shown, ends], axis=1).assign(rule=inputs.rule)
    if inputs.other_rule is not None:
        both = pd.concat([both, inputs.other_curve.assign(rule=inputs.other_rule)])
    names = [name for name in both.columns if name.startswith(("nac", prefix))]
    return both[["rule", "theta", *names]]


_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))


def _some(values: list[float], most: int) -> list[float]:
    """All of them, or evenly spaced ones."""
    if len(values) <= most:
        return values
    return [values[k] for k in np.linspace(0, len(values) - 1, most).round().astype(int)]


def _single() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 3.2))
    _margins(figure, left=0.65, right=0.15, bottom=0.5, top=0.1)
    return figure, figure.subplots()


def _margins(
    figure: Figure, *, left: float, right: float, bottom: float, top: float, gap: float = 0
) -> None:
    """Margins in inches. Known ones take half the time that finding them takes."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=0.08,
        hspace=gap / 2.5,
    )


def _nearest(names: Iterable[str], thetas: Iterable[float]) -> list[str]:
    """The thetas on the grid that are nearest to those wanted, each once; names: the grid, as
    columns are named.
    """
    names = list(names)
    return list(
        dict.fromkeys(min(names, key=lambda name: abs(float(name) - theta)) for theta in thetas)
    )


FIGURES = {
    "tradeoff": (trade_off, _draw_trade_off),
    "acr": (acr, _draw_acr),
    "correctness": (correctness, _draw_correctness),
    "selection-radii": (selection_radii, _draw_selection_radii),
    "ecdf": (ecdf, _draw_ecdf),
}
