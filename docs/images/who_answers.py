"""The picture of what-is-this.md: two images, their noisy copies, the votes, and who answers.

The networks and images are those of the default run that the tests keep.

PYTHONPATH=tests python docs/images/who_answers.py    # writes docs/images/who-answers.png
"""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aces import ACES
from aces.rule.statistics import floor_digits
from aces.sampling.tally import doubts
from default_networks import default_images, default_model

IMAGES = (3, 16)  # a horse that is clear under noise, and a cat that is not
THETA, DRAWS, COPIES = 0.45, 1000, 3
SURE, UNSURE, CERTIFY, CORE = "#0072b2", "#c9ced4", "#009e73", "#b36b00"
TITLES = {0: "the image", 3: "1,000 noisy copies", 6: "their votes", 8: "who answers"}
WIDTHS = (1, 0.18, *(1,) * COPIES, 0.28, 2.3, 0.25, 2.7)  # of the columns; the narrow ones are air


def main() -> None:
    model, images = default_model(THETA), default_images().image[list(IMAGES)]
    certificates = model.certify(images, n=DRAWS, seed=0)
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(10, 3.6), facecolor="white")
        grid = figure.add_gridspec(
            2, len(WIDTHS), width_ratios=WIDTHS, left=0.01, right=0.99, top=0.88, bottom=0.1,
            hspace=0.3, wspace=0.08,
        )  # fmt: skip
        for row, (image, certificate) in enumerate(zip(images, certificates, strict=True)):
            panels = [figure.add_subplot(grid[row, column]) for column in range(len(WIDTHS))]
            draw_row(panels, model, image, certificate)
            if row == 0:
                draw_titles(figure, panels)
        path = Path(__file__).with_name("who-answers.png")
        figure.savefig(path, dpi=160, metadata={"Software": None})


def draw_titles(figure: Figure, panels: list[Axes]) -> None:
    for column, title in TITLES.items():
        place = panels[column].get_position()
        left = column == 8
        x = place.x0 if left else (place.x0 + place.x1) / 2
        figure.text(x, 0.93, title, fontweight="bold", ha="left" if left else "center")


def draw_row(panels: list[Axes], model: ACES, image: np.ndarray, certificate) -> None:
    for axes in panels:
        axes.axis("off")
    noisy = noisy_copies(image, model.sigma)
    panels[0].imshow(image)
    for axes, copy in zip(panels[2 : 2 + COPIES], noisy, strict=False):
        axes.imshow(copy.permute(1, 2, 0).clamp(0, 1))
    with torch.no_grad():
        logits = model.networks["certify"].eval()(noisy)
    draw_votes(panels[6], logits, model.classes)
    draw_answer(panels[8], model, certificate)


def noisy_copies(image: np.ndarray, sigma: float) -> torch.Tensor:
    clean = torch.from_numpy(image).permute(2, 0, 1) / 255
    noise = torch.randn((DRAWS, *clean.shape), generator=torch.Generator().manual_seed(0))
    return clean + sigma * noise


def draw_votes(axes: Axes, logits: torch.Tensor, classes: list[str]) -> None:
    """How many copies vote for the three most frequent classes, and how many of them are sure."""
    vote, sure = logits.argmax(dim=1), doubts(logits) <= THETA
    total = torch.bincount(vote, minlength=len(classes))
    certain = torch.bincount(vote[sure], minlength=len(classes))
    axes.set(xlim=(-DRAWS * 0.42, DRAWS * 1.1), ylim=(3.1, -0.6))
    for place, number in enumerate(total.argsort(descending=True)[:3].tolist()):
        if total[number] == 0:
            break
        axes.barh(place, total[number], color=UNSURE, height=0.62)
        axes.barh(place, certain[number], color=SURE, height=0.62)
        axes.text(-25, place, classes[number], ha="right", va="center")
        axes.text(total[number] + 20, place, f"{total[number]}", va="center", color="#57606a")
    axes.text(0, 2.95, "■", color=SURE, fontsize=8, va="center")
    axes.text(75, 2.95, "sure", fontsize=8, va="center")
    axes.text(290, 2.95, "■", color=UNSURE, fontsize=8, va="center")
    axes.text(365, 2.95, "in doubt", fontsize=8, va="center")


def draw_answer(axes: Axes, model: ACES, certificate) -> None:
    certified = certificate.radius > 0
    colour = CERTIFY if certified else CORE
    name = model.classes[certificate.prediction]
    first = "most copies are sure and agree" if certified else "too few copies are sure"
    who = "the certification network answers" if certified else "the core network answers"
    what = (
        f"{name}, radius {floor_digits(certificate.radius, 2)}"
        if certified
        else f"{name}, no radius"
    )
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0.0, 0.82, first, color="#57606a")
    axes.text(0.0, 0.56, who, color=colour)
    axes.text(0.0, 0.18, what, color=colour, fontsize=14, fontweight="bold")


if __name__ == "__main__":
    main()
