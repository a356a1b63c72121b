"""The desk after three experiments: `dvc exp show`, MLflow's runs, charts and model, as pictures.

`ACES_PICTURES=docs/images pytest tests/test_desk_pictures.py` writes the pictures of the
documentation; `ACES_PROJECT=folder` takes a project where three experiments have run already.
"""

import io
import os
import shlex
from pathlib import Path

import pytest
from PIL import Image

from aces import tracking
from aces.tracking import views
from headless import needs_browser
from mlflow_page import (
    choose_view,
    opened_page,
    runs_address,
    served,
    show_charts,
    wait_for_columns,
)
from projects import Project

# Three experiments take minutes, and what they show is tested faster elsewhere.
asked_for = pytest.mark.skipif(
    "ACES_PICTURES" not in os.environ, reason="set ACES_PICTURES to the folder of the pictures"
)
pytestmark = [pytest.mark.slow, needs_browser, asked_for]

EXPERIMENTS = (
    ["sigma=0.12"],
    ["sigma=0.25", "combine.rule=paper"],
    ["sigma=0.12", "combine.rule=paper"],
)
SHOW = ("--only-changed", "--drop", ".*/|Created|State|Executor")
COLUMNS = 160
MOST_BYTES = 150_000
# One page per picture: MLflow's charts are drawn when they come into view.
WIDTH, HEIGHT = 1400, 1150
TABLE = 470  # the part of the page that has the runs
TERMINAL = """<!doctype html><meta charset=utf-8><style>
body { margin: 0; background: #16191d; } pre { margin: 0; padding: 14px 16px; color: #e6e6e6;
display: inline-block; font: 13px/1.35 "DejaVu Sans Mono", monospace; }</style><pre>%s</pre>"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """Three experiments on the digits, from one commit."""
    if ready := os.environ.get("ACES_PROJECT"):
        return Project(Path(ready), existing=True)
    project = Project(tmp_path_factory.mktemp("project"))
    project("dvc", "repro")
    project.commit()
    for settings in EXPERIMENTS:
        project("dvc", "exp", "run", *(text for pair in settings for text in ("-S", pair)))
    return project


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    chosen = os.environ.get("ACES_PICTURES")
    folder = Path(chosen).absolute() if chosen else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep(page, path: Path, *, locator: str = "body", height: int = HEIGHT) -> None:
    """The upper part of the page, in 256 colours: a third of the bytes, and no difference that one
    can see."""
    image = Image.open(io.BytesIO(page.locator(locator).screenshot())).convert("RGB")
    image = image.crop((0, 0, image.width, min(height, image.height)))
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    assert 5_000 < path.stat().st_size < MOST_BYTES, path


def test_experiments_fit_a_terminal_and_lead_with_the_working_point(project, chromium, pictures):
    shown = project("dvc", "exp", "show", *SHOW, "--no-pager", COLUMNS=str(COLUMNS))
    lines = [line for line in shown.splitlines() if line.strip()]
    assert max(map(len, lines)) <= COLUMNS
    heading = next(line for line in lines if "Experiment" in line).split()
    assert heading[:8] == [
        "Experiment",
        "theta",
        "nac",
        "acr",
        "certified@0.5σ",
        "certified@1σ",
        "certified@1.5σ",
        "abstention",
    ]
    assert heading[-2:] == ["sigma", "combine.rule"] and "…" not in shown
    page = chromium.new_page(viewport={"width": WIDTH, "height": 300})
    page.set_content(TERMINAL % f"$ {shlex.join(('dvc', 'exp', 'show', *SHOW))}\n{shown.rstrip()}")
    keep(page, pictures / "exp-show.png", locator="pre")
    page.close()


def test_mlflow_shows_runs_charts_and_the_model(project, chromium, pictures):
    with (
        served(project.folder) as address,
        opened_page(chromium, address, width=WIDTH, height=HEIGHT) as page,
    ):
        page.goto(runs_address(page, address, tracking.EXPERIMENT))
        page.get_by_role("link", name="digits-gaussian-0.12").first.wait_for()
        close_assistant(page)
        choose_view(page, views.NAME)
        wait_for_columns(page, map(tracking.metric_name, views.COLUMNS))
        settle(page)
        keep(page, pictures / "mlflow-runs.png", height=TABLE)

        show_charts(page)
        page.locator(".js-plotly-plot .xtitle").nth(len(views.LINES) - 1).wait_for()
        settle(page)
        keep(page, pictures / "mlflow-charts.png")

        page.goto(f"{address}/#/models/aces-digits")
        page.get_by_text("natural accuracy", exact=True).wait_for()
        settle(page)
        assert page.get_by_role("columnheader", name="certified at").count() == 3
        keep(page, pictures / "mlflow-model.png")


def close_assistant(page) -> None:
    """The panel that MLflow opens on the right at the first visit."""
    button = page.get_by_role("button", name="Close")
    if button.count():
        button.first.click()


def settle(page) -> None:
    page.wait_for_timeout(5000)  # animations of charts; the page asks for news all the time
