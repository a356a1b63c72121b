"""The paper's figures from the release: one PNG each, in colours that colour-blind readers can tell
apart.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from aces.paper.analysis import curve_of, individual_of
from aces.paper.release import Key, Release, Run
from aces.reporting.figures import STYLE

CORES = ("efficientnet-b7", "lanet", "resnet50", "resnet110")  # the cores the paper's figures show
NAMES = {
    "efficientnet-b7": "EfficientNet-B7",
    "lanet": "LaNet",
    "resnet50": "ResNet-50",
    "resnet110": "ResNet-110",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    "gaussian": "Gaussian",
    "smoothadv": "SmoothAdv",
    "macer": "MACER",
    "consistency": "Consistency",
}
# Okabe and Ito's colours.
ORANGE, BLUE, GREEN, PINK, GREY = (
    "#d55e00",
    "#0072b2",
    "#009e73",
    "#cc79a7",
    "#8b949e",
)
CORE_COLOURS = {"efficientnet-b7": ORANGE, "lanet": ORANGE, "resnet50": BLUE, "resnet110": BLUE}
SELECTION_COLOURS = {"entropy": ORANGE, "network-0.50": BLUE, "network-0.95": PINK}
LINES = {0.25: ":", 0.5: "--", 1.0: "-"}
RADIUS_THETAS = np.arange(1, 10) / 10  # shown in the figure of the selection's radii
TRADE_OFF_RADII = {0.25: (0.25, 0.5), 0.5: (0.5, 1.0), 1.0: (1.0, 2.0)}  # by the largest sigma


def figures(release: Release) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """(name, draw) of every figure the release has the data for."""
    for (dataset, method), group in groupby(
        release.runs, key=lambda run: (run.key.dataset, run.key.method)
    ):
        runs = list(group)
        by_entropy = [run for run in runs if run.key.selection == "entropy" and run.cores]
        if by_entropy:
            yield f"trade_off_{dataset}_{method}", partial(draw_trade_off, by_entropy)
        for sigma in sorted({run.key.sigma for run in runs if run.key.selection != "entropy"}):
            rivals = [run for run in runs if run.key.sigma == sigma and run.cores]
            if rivals:
                yield (
                    f"selection_mechanism_{dataset}_{method}_{sigma:.2f}",
                    partial(draw_mechanisms, rivals),
                )
        for run in runs:
            name = "_".join([dataset, method, f"{run.key.sigma:.2f}", run.key.selection])
            yield f"selection_radii_{name}", partial(draw_selection_radii, run)
            if run.median_score is not None:
                yield f"certifiable_{name}", partial(draw_certifiable, run)


def write_figure(path: Path, draw: Callable[[], Figure]) -> None:
    with matplotlib.rc_context(STYLE):
        # Without the version of matplotlib in it, the same figure is the same file.
        draw().savefig(path, metadata={"Software": None})


def draw_trade_off(runs: list[Run]) -> Figure:
    """ACR, and certified accuracy at two radii, over natural accuracy: ACES with each core, and the
    networks alone.
    """
    first = runs[0].key
    largest = min(
        TRADE_OFF_RADII, key=lambda sigma: abs(sigma - max(run.key.sigma for run in runs))
    )
    metrics = ["acr", *(f"certified_accuracy@{radius:g}" for radius in TRADE_OFF_RADII[largest])]
    figure, panels = _panels(
        metrics, title=f"{_name(first.dataset)}, {_name(first.method)} training"
    )
    handles: dict[str, Artist] = {}
    for run in runs:
        alone = individual_of(run, radii=TRADE_OFF_RADII[largest])
        for panel, metric in zip(panels, metrics, strict=True):
            for core in _shown_cores(run):
                curve = curve_of(
                    run, core, radii=TRADE_OFF_RADII[largest], abstain_as_selected=False
                )
                colour = CORE_COLOURS.get(core, GREY)
                handles[f"ACES, core {_name(core)}"] = panel.plot(
                    curve["nac"],
                    curve[metric],
                    color=colour,
                    lw=1.6,
                    ls=LINES.get(run.key.sigma, "-"),
                )[0]
                accuracy = 100 * (run.cores[core] == run.label).mean()
                handles[f"{_name(core)} alone"] = panel.scatter(
                    accuracy, 0, marker="s", s=26, color=colour, zorder=3, clip_on=False
                )
            handles["certification network alone"] = panel.scatter(
                alone["nac"], alone[metric], marker="^", s=38, color=GREEN, zorder=4
            )
    sigmas = sorted({run.key.sigma for run in runs})
    handles |= {
        f"$\\sigma$ = {sigma:g}": Line2D([], [], color=GREY, ls=LINES.get(sigma, "-"))
        for sigma in sigmas
    }
    _legend(figure, handles)
    return figure


def draw_mechanisms(runs: list[Run]) -> Figure:
    """Entropy against selection networks: ACR and certified accuracy at r = 2 sigma over natural
    accuracy, the best core.
    """
    key = runs[0].key
    radius = 2 * key.sigma
    metrics = ["acr", f"certified_accuracy@{radius:g}"]
    best = max(runs[0].cores, key=lambda core: (runs[0].cores[core] == runs[0].label).mean())
    figure, panels = _panels(
        metrics,
        title=f"{_name(key.dataset)}, {_name(key.method)} training, $\\sigma$ = {key.sigma:g}, "
        f"core {_name(best)}",
    )
    handles: dict[str, Artist] = {}
    for run in runs:
        curve = curve_of(run, best, radii=[radius], abstain_as_selected=False)
        label = (
            "entropy"
            if run.key.selection == "entropy"
            else f"selection network, $\\eta$ = {run.key.selection.partition('-')[2]}"
        )
        for panel, metric in zip(panels, metrics, strict=True):
            handles[label] = panel.plot(
                curve["nac"],
                curve[metric],
                lw=1.4,
                marker="o",
                ms=2.6,
                color=SELECTION_COLOURS.get(run.key.selection, GREY),
            )[0]
    _legend(figure, handles)
    return figure


def draw_selection_radii(run: Run) -> Figure:
    """The selection's certified radii, sorted: above 0 the certification network, below 0 the core,
    0 an abstention.
    """
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    panel = figure.subplots()
    colours = matplotlib.colormaps["viridis"].resampled(256)
    signed = np.select(
        [run.selection == 1, run.selection == 0], [run.selection_radius, -run.selection_radius], 0.0
    )
    percentile = 100 * (np.arange(len(run.label)) + 0.5) / len(run.label)
    for t in np.flatnonzero(np.isin(run.thetas.round(6), RADIUS_THETAS.round(6))):
        panel.plot(percentile, np.sort(signed[:, t]), lw=1.4, color=colours(0.95 * run.thetas[t]))
    panel.axhline(0, color=GREY, lw=0.8, zorder=1)
    panel.set(
        xlabel="percentile of the images",
        ylabel="certified radius of the selection\n(core < 0 < certification network)",
        xlim=(0, 100),
    )
    panel.set_title(_title(run.key), loc="left", fontsize=9)
    scale = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(0, 1 / 0.95), cmap=colours)
    bar = figure.colorbar(scale, ax=panel, label="$\\theta$", ticks=RADIUS_THETAS[::2], pad=0.02)
    bar.ax.set_ylim(0.05, 0.95)
    bar.outline.set_visible(False)
    return figure


def draw_certifiable(run: Run) -> Figure:
    """How many images the certification network certifies correctly at r = 3 sigma, by their median
    score over noise.
    """
    radius = 3 * run.key.sigma
    certifiable = (run.prediction == run.label) & (run.radius >= radius)
    figure = Figure(figsize=(4.4, 3.1), layout="constrained")
    panel = figure.subplots()
    assert run.median_score is not None
    panel.hist(
        [run.median_score[certifiable], run.median_score[~certifiable]],
        bins=np.linspace(0, 1, 26).tolist(),
        stacked=True,
        color=[BLUE, ORANGE],
        edgecolor="white",
        linewidth=0.5,
        label=[f"certifiably correct at r = {radius:g}", "not certifiably correct"],
    )
    score = "entropy" if run.key.selection == "entropy" else "output of the selection network"
    panel.set(xlabel=f"median {score} over noise", ylabel="images", xlim=(0, 1))
    panel.set_title(_title(run.key), loc="left", fontsize=9)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _panels(metrics: list[str], *, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(3.4 * len(metrics), 3.5), layout="constrained")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    panels = list(np.atleast_1d(figure.subplots(1, len(metrics))))
    for panel, metric in zip(panels, metrics, strict=True):
        name, _, radius = metric.partition("@")
        panel.set(
            xlabel="natural accuracy [%]",
            ylabel="average certified radius"
            if name == "acr"
            else f"certified accuracy at r = {radius} [%]",
        )
        panel.set_ymargin(0.04)
    return figure, panels


def _legend(figure: Figure, handles: dict) -> None:
    for panel in figure.axes:
        panel.set_ylim(bottom=0)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(len(handles), 4),
        fontsize=8,
    )


def _shown_cores(run: Run) -> list[str]:
    return [core for core in run.cores if core in CORES] or list(run.cores)


def _title(key: Key) -> str:
    selection = (
        ""
        if key.selection == "entropy"
        else f", selection network $\\eta$ = {key.selection.partition('-')[2]}"
    )
    return f"{_name(key.dataset)}, {_name(key.method)}, $\\sigma$ = {key.sigma:g}{selection}"


def _name(name: str) -> str:
    return NAMES.get(name, name)
