"""The figure to print that `aces compare` writes."""

from itertools import product

import pytest

from aces.reporting import grid_figure
from aces.reporting.runs import read_curve
from stored_runs import stored


@pytest.mark.slow
def test_the_figure_has_a_column_per_sigma_and_a_line_per_method(tmp_path):
    grid = [(sigma, method) for sigma in (0.25, 0.5) for method in ("gaussian", "consistency")]
    curves = [
        read_curve(stored(tmp_path, f"r{i}", "run", seed=i, sigma=s, **{"certify.method": m}))
        for i, (s, m) in enumerate(grid)
    ]
    figure = grid_figure.draw(curves, loss=None)
    top = figure.axes[:2]
    assert [panel.get_title(loc="left") for panel in top] == ["σ = 0.25", "σ = 0.5"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["Gaussian", "Consistency", "working point"]
    for (panel, place), curve in zip(product(top, (0, 2)), curves, strict=True):
        line, ring = panel.lines[place : place + 2]
        radius = curve.near(1.0)
        assert list(line.get_ydata()) == pytest.approx(
            list(100 * curve.curve[f"certified_accuracy@{radius}"])
        )
        assert ring.get_xdata()[0] == pytest.approx(100 * curve.at(None)["nac"])
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        grid_figure.write_figure(tmp_path / folder, curves, loss=None)
    for name in ("trade-off-cifar-10.pdf", "trade-off-cifar-10.png"):
        written = (tmp_path / "first" / name).read_bytes()
        assert written == (tmp_path / "second" / name).read_bytes() and len(written) > 5_000
