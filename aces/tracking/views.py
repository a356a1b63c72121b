"""A view that MLflow's page offers under *Views*: the runs at their working points.

MLflow shows no metric in its table of runs until somebody chooses columns, draws its charts in the
order of the alphabet, and has the step as their axis. A saved view is a tag of the experiment; a
version of MLflow that does not know it shows its usual page.
"""

import json

from aces.tracking import names

TAG = "mlflow.sharedViewState.working-point"
NAME = "Working point"
COLUMNS = (
    "theta",
    "nac",
    "acr",
    "certified@0.5σ",
    "certified@1σ",
    "certified@1.5σ",
    "abstention",
)
BARS = ("nac", "acr", "certified@1σ")
LINES = (("acr", "nac"), ("nac", "theta"), ("acr", "theta"))  # what is drawn, over what


def tags() -> dict[str, str]:
    """The tags of a new experiment that make the view."""
    columns = [f"metrics.`{names.metric_name(name)}`" for name in COLUMNS]
    state = {
        "searchFilter": f"tags.`{names.PIPELINE}` LIKE '%'",  # no stages
        "selectedColumns": columns,
        "columnOrder": columns,
        "isAccordionReordered": True,  # else the sections of charts are sorted by their names
        "compareRunSections": [_section("point", NAME), _section("curve", "Every theta")],
        "compareRunCharts": [*map(_bar, BARS), *(_line(*axes) for axes in LINES)],
    }
    return {TAG: json.dumps({"name": NAME, "createdAt": 0, "state": json.dumps(state)})}


def _section(key: str, name: str) -> dict[str, object]:
    return {"uuid": key, "name": name, "display": True, "isReordered": True}


def _bar(metric: str) -> dict[str, object]:
    return _card("BAR", "point", metric) | {"metricKey": names.metric_name(metric)}


def _line(drawn: str, over: str) -> dict[str, object]:
    metric = f"{names.CURVE}/{drawn}"
    return _card("LINE", "curve", f"{drawn} over {over}") | {
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "yAxisKey": "metric",
        "xAxisKey": "metric",
        "selectedXAxisMetricKey": f"{names.CURVE}/{over}",
        "useGlobalXaxisKey": False,
        "lineSmoothness": 0,
        "useGlobalLineSmoothing": False,
    }


def _card(kind: str, section: str, key: str) -> dict[str, object]:
    return {
        "type": kind,
        "uuid": key,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 10,
    }
