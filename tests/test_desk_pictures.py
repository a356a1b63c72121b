"""The desk after three experiments: `dvc exp show`, MLflow's runs, charts and model, as pictures.

`ACES_PICTURES=docs/images pytest tests/test_desk_pictures.py` writes the pictures of the
documentation; `ACES_PROJECT=folder` takes a project where three experiments have run already.
"""

import os
import shlex
import urllib.parse
from pathlib import Path

import pytest

from aces import tracking
from aces.tracking import names
from headless import needs_browser
from mlflow_page import opened_page, runs_address, served
from projects import Project

# Three experiments take minutes, and what they show is tested faster elsewhere.
asked_for = pytest.mark.skipif(
    "ACES_PICTURES" not in os.environ, reason="set ACES_PICTURES to the folder of the pictures"
)
pytestmark = [pytest.mark.slow, needs_browser, asked_for]

EXPERIMENTS = (
    ["sigma=0.5"],
    ["sigma=0.25", "combine.rule=paper"],
    ["sigma=0.5", "combine.rule=paper"],
)
SHOW = ("--only-changed", "--drop", ".*/|Created|State|Executor")
COLUMNS = 160
METRICS = ("theta", "nac", "acr", "certified/r_0.5sigma", "certified/r_1sigma", "abstention")
MOST_BYTES = 150_000
# One page per picture: MLflow's charts are drawn when they come into view.
WIDTH, HEIGHT = 1300, 800
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


def keep(page, path: Path, *, locator: str | None = None) -> None:
    (page.locator(locator) if locator else page).screenshot(path=path)
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
    only_pipelines = urllib.parse.quote(f"tags.`{names.PIPELINE}` LIKE '%'")
    with (
        served(project.folder) as address,
        opened_page(chromium, address, width=WIDTH, height=HEIGHT) as page,
    ):
        runs = runs_address(page, address, tracking.EXPERIMENT)
        page.goto(f"{runs}?searchFilter={only_pipelines}")
        page.get_by_role("link", name="digits-gaussian-0.5").first.wait_for()
        close_assistant(page)
        show_only(page, METRICS)
        settle(page)
        for name in METRICS:
            assert page.get_by_role("columnheader", name=name, exact=True).count() == 1, name
        keep(page, pictures / "mlflow-runs.png")

        page.goto(f"{runs}?compareRunsMode=CHART&searchFilter={only_pipelines}")
        page.get_by_placeholder("Search metric charts").fill(f"^({'|'.join(METRICS)})$")
        page.locator(".js-plotly-plot").first.wait_for()
        settle(page)
        keep(page, pictures / "mlflow-charts.png")

        page.goto(f"{address}/#/models/aces-digits")
        page.get_by_text("natural accuracy", exact=True).wait_for()
        settle(page)
        assert page.get_by_role("columnheader", name="certified at").count() == 3
        keep(page, pictures / "mlflow-model.png")


def show_only(page, metrics: tuple[str, ...]) -> None:
    """Let the table of runs have these columns, as a person would: by the menu of columns."""
    page.get_by_role("button", name="Columns").click()
    search = page.get_by_placeholder("Search columns")
    for name in ("Dataset", "Source", "Models", *metrics):  # the first three are shown by default
        search.fill(name)
        page.get_by_text(name, exact=True).last.click()  # the menu is the last part of the page
    page.keyboard.press("Escape")


def close_assistant(page) -> None:
    """The panel that MLflow opens on the right at the first visit."""
    button = page.get_by_role("button", name="Close")
    if button.count():
        button.first.click()


def settle(page) -> None:
    page.wait_for_timeout(5000)  # animations of charts; the page asks for news all the time
