"""The picture of guarantees.md: which draws of an image count, by either rule.

python docs/images/two_events.py    # writes docs/images/two-events.png
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

THETA = 0.55
DRAWS = {"cat": (64, 0.42, 0.17), "dog": (36, 0.30, 0.12)}  # class: draws, mean and spread of doubt
COUNTED, LEFT_OUT = "#0072b2", "#c9ced4"


def main() -> None:
    random = np.random.default_rng(4)
    draws = {
        name: np.clip(random.normal(mean, spread, count), 0.02, 0.98)
        for name, (count, mean, spread) in DRAWS.items()
    }
    with matplotlib.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(9, 2.9), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        total = sum(map(len, draws.values()))
        sure = {name: doubt <= THETA for name, doubt in draws.items()}
        every = {name: np.ones(len(doubt), bool) for name, doubt in draws.items()}
        none = np.zeros(len(draws["dog"]), bool)
        _panel(
            panels[0],
            draws,
            sure,
            total,
            "the paper's rule, selection:\nsure, of any class",
            random,
        )
        _panel(panels[1], draws, every | {"dog": none}, total,
               "the paper's rule, class:\ncat, however sure", random)  # fmt: skip
        _panel(panels[2], draws, sure | {"dog": none}, total,
               "the confident rule:\nsure, and cat", random)  # fmt: skip
        panels[0].set_ylabel("doubt of a draw")
        figure.savefig(
            Path(__file__).with_name("two-events.png"), dpi=160, metadata={"Software": None}
        )


def _panel(axes: Axes, draws: dict, counted: dict, total: int, title: str, random) -> None:
    for place, (name, doubt) in enumerate(draws.items()):
        across = place + random.uniform(-0.3, 0.3, len(doubt))
        colours = np.where(counted[name], COUNTED, LEFT_OUT)
        axes.scatter(across, doubt, c=colours, s=14, linewidths=0)
    axes.axhline(THETA, color="#57606a", lw=0.8, ls="--")
    axes.annotate("θ", (1.42, THETA), va="bottom", ha="right")
    axes.set(xticks=range(len(draws)), xticklabels=draws, xlim=(-0.5, 1.5), ylim=(0, 1))
    share = sum(map(np.sum, counted.values())) / total
    axes.set_title(f"{title}\n{share:.0%} of the draws count", fontsize=9)


if __name__ == "__main__":
    main()
