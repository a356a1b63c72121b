"""What the stage `publish` adds to a pipeline's run, so that MLflow tells its whole story.

The working point under plain names, the trade-off curve with theta on its axis, the report with
what only this run knows (how long the stages took, the git revision), and the registered model.
"""

import html
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aces import paths
from aces.tracking import names
from aces.tracking.stage import StageRun

MODEL_SECONDS = 240.0  # to store and check the model, beyond the allowance of every stage
HEADLINE = ("theta", "nac", "acr", "abstention", "core_rate")
RADIUS_METRICS = ("certified@", "certified_accuracy@", "selection_rate@")
PROVENANCE = '<div class="provenance">'  # where the page lists what the run is made of
STEPS = 1000  # a step of a series is theta times this: MLflow's steps are whole numbers


def log_working_point(run: StageRun, metrics: Mapping[str, Any]) -> None:
    """The numbers at the chosen theta, which lead results/metrics.json, under their plain names."""
    found = {
        name: value
        for name, value in names.numbers(metrics).items()
        if name in HEADLINE or name.startswith(RADIUS_METRICS)
    }
    run.log_headline(found)


def log_curve(run: StageRun, curve: Mapping[str, Sequence[float]]) -> None:
    """The trade-off curve: as series `curve/...`, and as a table with theta in its first column.

    MLflow's charts have whole steps as their axis. `curve/theta` is logged with the others, so that
    it can be chosen as the axis of a chart.
    """
    columns = {name: [float(value) for value in values] for name, values in curve.items()}
    thetas = columns["theta"]
    rows = [
        {f"{names.CURVE}/{name}": values[place] for name, values in columns.items()}
        for place in range(len(thetas))
    ]
    run.log_series(rows, steps=[round(STEPS * theta) for theta in thetas])
    run.log_table(columns, f"{names.CURVE}/curve.json")


def log_report(
    run: StageRun, folder: Path, *, picture: Callable[[Path, Path], object] | None = None
) -> None:
    """A copy of the report that also says how long the stages took, and from which revision it is.

    Of `folder` only the report of this run is copied, not what other commands have put beside it.

    The page is not rendered again: the copy gets one more group in its list of provenance.
    picture: a function (page, image) that takes a screenshot of the page.
    """
    seconds = {stage: round(value, 1) for stage, value in run.seconds().items()}
    run.log_metrics({f"seconds/{stage}": value for stage, value in seconds.items()})
    copy = run.workspace() / "report"
    copy.mkdir()
    for source in filter(Path.exists, (folder / name for name in paths.REPORT)):
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / source.name)
    page = copy / "index.html"
    if page.exists():
        rows = {
            **run.revision(),
            **{f"{stage}, seconds": value for stage, value in seconds.items()},
        }
        text = page.read_text(encoding="utf-8")
        page.write_text(with_provenance(text, "Run", rows), encoding="utf-8")
        if picture is not None:
            picture(page, copy / "screenshot.png")
    run.log_artifact(copy, "report")


def with_provenance(page: str, title: str, rows: Mapping[str, object]) -> str:
    """A page with one more group in its list of provenance, or at its end if it has no list."""
    cells = "".join(
        f"<tr><th scope=row>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value != ""
    )
    group = f"<div><h3>{html.escape(title)}</h3><table>{cells}</table></div>"
    if PROVENANCE in page:
        return page.replace(PROVENANCE, PROVENANCE + group, 1)
    body, end, rest = page.rpartition("</body>")
    return f"{body}{group}{end}{rest}" if end else page + group


def log_model(
    run: StageRun,
    function: str,
    *,
    card: str,
    tags: Mapping[str, str],
    **options: Any,
) -> None:
    """Store the composed model with the run, register it with its card, and name it `champion`.

    function: the `package.module:function` that logs it and returns MLflow's description of it; it
    is called with `options` in the writer's process.
    """
    run.log_tags({**tags, names.DESCRIPTION: card})
    run.call(
        "aces.tracking.registry:register",
        seconds=MODEL_SECONDS,
        function=function,
        card=card,
        options=options,
    )
