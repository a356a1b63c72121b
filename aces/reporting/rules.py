"""The paper's rule and the confident rule at the same price, for several runs: table and figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from aces import grid, params, paths, rule
from aces.files import make_folder, write_text
from aces.reporting.figures import ACES, BASELINE, STYLE
from aces.rule import metrics, samples
from aces.rule.counts import Counts
from aces.rule.splits import SPLITS, Reading, difference, intervals_over_images, read_elsewhere

LOSSES = (0.01, 0.02, 0.03, 0.05, 0.08)
RADIUS = 1.0  # certified accuracy is shown at this multiple of sigma
STEP = 0.002  # of the thetas to choose from


@dataclass(frozen=True)
class Comparison:
    """Both rules on the draws of one run, for each loss."""

    name: str
    settings: params.Params
    images: int
    core_nac: float
    readings: dict[float, dict[str, Reading]]  # loss -> rule -> what it achieves
    # loss -> metric -> interval of the difference, over images
    intervals: dict[float, dict[str, tuple[float, float]]]


def compare_rules(folder: Path, *, name: str) -> Comparison:
    """Both rules on the draws of a finished run; the paper's rule as in the paper (Bonferroni)."""
    settings = params.load(folder / paths.PARAMS)
    counts, core = samples.read_evaluation(folder)
    right, thetas = core == counts.label, grid.thetas(STEP)
    scores = {
        which: _scores(counts, core, settings, rule=which, multiplicity="bonferroni")
        for which in rule.RULES
    }
    readings = {
        loss: {
            which: read_elsewhere(score, right, thetas=thetas, loss=loss)
            for which, score in scores.items()
        }
        for loss in LOSSES
    }
    intervals = intervals_over_images(scores["confident"], scores["paper"], right, losses=LOSSES)
    return Comparison(name, settings, len(core), float(right.mean()), readings, intervals)


def _scores(
    counts: Counts, core: np.ndarray, settings: params.Params, **options: Any
) -> dict[str, np.ndarray]:
    """metric -> (N, T) score of each image by a rule: nac, acr, and `certified` at RADIUS."""
    question: dict[str, Any] = {"alpha": settings.combine.alpha, "thetas": grid.thetas(STEP)}
    outcomes = rule.certify(counts, core, **question, **options)
    natural = rule.predict(counts, core, **question, **options)
    radius = RADIUS * settings.sigma
    every = dict(metrics.scores(outcomes, natural, counts.label, radii=[radius]))
    return {
        "nac": every["nac"],
        "acr": every["acr"],
        "certified": every[f"certified_accuracy@{radius:g}"],
    }


def table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """One row per run and loss: both rules, and their paired differences. `_low` and `_high` are
    the confidence interval over images, `_splits_low` and `_splits_high` where 95 % of the splits
    lie.
    """
    rows = []
    for it in comparisons:
        for loss, by_rule in it.readings.items():
            paper, ours = by_rule["paper"], by_rule["confident"]
            row: dict[str, object] = {"run": it.name, "sigma": it.settings.sigma, "loss": loss}
            for name in ("acr", "certified"):
                mean, low, high = difference(ours, paper, name)
                over_images = it.intervals[loss][name]
                row |= {
                    f"{name}_paper": paper.mean(name),
                    f"{name}_confident": ours.mean(name),
                    f"{name}_difference": mean,
                    f"{name}_low": over_images[0],
                    f"{name}_high": over_images[1],
                    f"{name}_splits_low": low,
                    f"{name}_splits_high": high,
                }
            row |= {"loss_paper": paper.loss.mean(), "loss_confident": ours.loss.mean()}
            rows.append(row)
    return pd.DataFrame(rows)


def markdown(frame: pd.DataFrame) -> str:
    """The table for people; shares in percent."""
    head = (
        "| run | NAC loss allowed | lost: paper | confident | ACR: paper | confident | gain | "
        "difference | certified at r = σ, %: paper | confident | difference, points |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    return head + "".join(
        f"| {row.run} | {100 * row.loss:g} | {100 * row.loss_paper:.1f} | "
        f"{100 * row.loss_confident:.1f} | {row.acr_paper:.3f} | {row.acr_confident:.3f} | "
        f"{_gain(row.acr_confident, row.acr_paper)} | {row.acr_difference:+.3f} "
        f"[{row.acr_low:+.3f}, {row.acr_high:+.3f}] | {100 * row.certified_paper:.1f} | "
        f"{100 * row.certified_confident:.1f} | {100 * row.certified_difference:+.1f} "
        f"[{100 * row.certified_low:+.1f}, {100 * row.certified_high:+.1f}] |\n"
        for row in frame.itertuples()
    )


def runs_table(comparisons: Sequence[Comparison]) -> str:
    """What each run is, for people."""
    head = (
        "| run | core network | its accuracy, % | certification network | n0 + n draws | images |\n"
        "|---|---|--:|---|--:|--:|\n"
    )
    return head + "".join(
        f"| {it.name} | {it.settings.core.arch} | {100 * it.core_nac:.1f} | {_certifier(it)} | "
        f"{it.settings.sample.n0:,} + {it.settings.sample.n:,} | {it.images:,} |\n"
        for it in comparisons
    )


def _certifier(it: Comparison) -> str:
    """The certification network of a run: architecture, training, precision."""
    certify, sample = it.settings.certify, it.settings.sample
    if certify.checkpoint != "checkpoints/none":
        parts = [certify.arch, "trained by others"]
    else:
        parts = [certify.arch, f"{certify.method}, {certify.train.epochs} epochs"]
    if certify.denoiser.arch != "none":
        parts.insert(0, f"{certify.denoiser.arch}, then")
    return f"{' '.join(parts[:-1])}, {parts[-1]}, {sample.precision}"


def _gain(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+.0f} %" if theirs > 0 else "–"


def draw(frame: pd.DataFrame) -> Figure:
    """The average certified radius over the loss of natural accuracy, one panel per run."""
    names = list(dict.fromkeys(frame["run"]))
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * columns, 2.3 * rows), layout="constrained")
        panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
        for panel, name in zip(panels, names, strict=False):
            part = frame[frame["run"] == name]
            for which, colour in (("paper", BASELINE), ("confident", ACES)):
                x, y = 100 * part[f"loss_{which}"], part[f"acr_{which}"]
                panel.plot(x, y, color=colour, marker="o", ms=3, lw=1.4, label=f"{which} rule")
            panel.set_title(name, fontsize=8)
            panel.set_ylim(bottom=0)
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        panels[0].legend(fontsize=7)
        figure.supxlabel("natural accuracy lost, points", fontsize=9)
        figure.supylabel("average certified radius", fontsize=9)
    return figure


def write_rules(out: Path, comparisons: Sequence[Comparison], *, command: str) -> pd.DataFrame:
    """Write `rules.csv`, `rules.md` and `rules.png` into `out`."""
    frame = table(comparisons)
    make_folder(out)
    frame.to_csv(out / "rules.csv", index=False)
    alphas = ", ".join(sorted({f"{it.settings.combine.alpha:g}" for it in comparisons}))
    words = f"""# The two rules at the same price

From the same networks and the same draws, alpha {alphas}. Theta is chosen on a random half of the
images, for the natural accuracy that may be lost, and everything is read on the other half; means
of {SPLITS} splits. The paper's rule uses the entropy and Bonferroni's correction, as in the paper.

In brackets: the 95 % confidence interval of the paired difference, by the bootstrap over images; in
each resample theta is chosen and read on different images too. (`rules.csv` also has where 95 % of
the splits lie. These are splits of the same images: they say how much the choice of theta matters,
not how sure the difference is.)

Made by `{command}`.

{runs_table(comparisons)}
![Average certified radius over the accuracy that is lost](rules.png)

"""
    write_text(out / "rules.md", words + markdown(frame))
    draw(frame).savefig(out / "rules.png", metadata={"Software": None})
    return frame
