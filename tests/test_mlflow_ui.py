"""`mlflow ui` on a store of ours, in a real browser: the parent run, its metrics, the report."""

import pytest

from aces import params, tracking
from aces.reporting import write_report
from aces.tracking import publish, views
from headless import needs_browser
from mlflow_page import (
    choose_view,
    opened_page,
    runs_address,
    served,
    show_charts,
    wait_for_columns,
)
from simulated import simulated_run

pytestmark = [pytest.mark.slow, needs_browser]

PARAMETERS = params.flatten(params.load("profiles/laptop.yaml"))
METRICS = {"nac": 0.8125, "acr": 0.2468}
WORKING_POINT = dict(
    zip(views.COLUMNS, (0.46, 0.848, 0.1247, 0.264, 0.218, 0.17, 0.008), strict=True)
)
CURVE = {"theta": [0.0, 0.5, 1.0], "nac": [0.85, 0.84, 0.67], "acr": [0.0, 0.14, 0.3]}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder as `dvc repro` leaves it: one pipeline run with a stage, its metrics and its
    report."""
    folder = tmp_path_factory.mktemp("project")
    (folder / ".dvc").mkdir()
    write_report(folder / "report", simulated_run(images=30, theta_step=0.1))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "DVC_EXP_BASELINE_REV"):
            patch.delenv(name, raising=False)
        patch.setenv("DVC_EXP_NAME", "calm-owl")
        with tracking.track("combine", PARAMETERS) as run:
            run.log_summary(METRICS, "digest")
            publish.log_working_point(run, WORKING_POINT)
            publish.log_curve(run, CURVE)
            run.log_artifact(folder / "report", "report")
        (finished,) = tracking.finished_runs()
    return folder, finished


@pytest.fixture(scope="module")
def address(project):
    folder, _ = project
    with served(folder) as address:
        yield address


def test_runs_and_their_files_are_read_from_a_server(project, address, monkeypatch):
    _, run = project
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    (found,) = tracking.finished_runs()
    assert found == run
    assert found.artifact("report/index.html").stat().st_size > 10_000
    assert found.artifact("report/none.html") is None


def test_ui_lists_the_run_its_metrics_and_its_report(project, address, chromium):
    _, run = project
    with opened_page(chromium, address) as page:
        runs = runs_address(page, address, tracking.EXPERIMENT)
        page.goto(runs)
        page.get_by_role("link", name=run.name).wait_for()
        assert (
            page.get_by_role("link", name="combine").count() == 0
        )  # the stage is folded into its parent

        page.get_by_role("link", name=run.name).click()
        page.get_by_role("link", name="combine", exact=True).wait_for()
        for name, value in METRICS.items():
            row = page.get_by_role("row").filter(
                has=page.get_by_text(f"combine/{name}", exact=True)
            )
            assert str(value) in row.inner_text()

        page.goto(f"{runs}/{run.id}/artifacts/report/index.html")
        report = page.frame_locator("iframe")
        report.locator("html[data-ready]").wait_for()
        assert report.get_by_role("heading", level=1).inner_text() == "CIFAR-10, Gaussian, σ = 0.25"
        report.locator("#theta").press("Home")
        assert report.locator("#theta-value").inner_text() == "0.00"


def test_the_view_shows_the_working_point_and_curves_over_theta(project, address, chromium):
    _, run = project
    # MLflow draws only the columns that fit.
    with opened_page(chromium, address, width=2000) as page:
        page.goto(runs_address(page, address, tracking.EXPERIMENT))
        page.get_by_role("link", name=run.name).wait_for()
        choose_view(page, views.NAME)
        wait_for_columns(page, map(tracking.metric_name, views.COLUMNS))
        for value in WORKING_POINT.values():
            page.get_by_text(str(value), exact=True).first.wait_for()

        show_charts(page)
        page.get_by_text("Every theta").wait_for()
        axes = page.locator(".js-plotly-plot .xtitle")
        axes.nth(len(views.LINES) - 1).wait_for()
        assert axes.all_text_contents() == [f"curve/{over}" for _, over in views.LINES]
