"""Several runs in one table and one page, grouped by dataset."""

import html
import math
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pandas as pd

from aces.files import make_folder, write_text
from aces.reporting.grid_figure import figure_names, write_figure
from aces.reporting.inputs import RULES
from aces.reporting.page import as_json, asset, by_section, listing
from aces.reporting.results import ACCURACY, radii_of
from aces.reporting.runs import RunCurve, differing, grouped, labels
from aces.rule.statistics import floor_digits
from aces.rule.working_point import best_within

SCRIPTS = ("chart.js", "compare.js")
ALONE = "The certification networks alone"
MULTIPLES = (0.5, 1.0, 1.5, 2.0, 2.5)  # of sigma, at which runs of several sigmas are compared
IDENTITY = (
    "dataset.name",
    "certify.method",
    "select.score",
    "combine.rule",
    "sigma",
    "sample.n",
    "combine.alpha",
)


@dataclass(frozen=True)
class Column:
    """A radius at which runs stand beside each other: r itself, or a multiple of each sigma."""

    title: str
    radius: dict[str, str]  # run id -> the radius of its curve, where it has one


def columns_of(runs: list[RunCurve]) -> list[Column]:
    """The radii of a group: absolute where all sigmas are the same, else multiples of sigma."""
    if len({run.sigma for run in runs}) > 1:
        scaled = [
            Column(_multiple(m), {run.id: r for run in runs if (r := run.near(m))})
            for m in MULTIPLES
        ]
        return [column for column in scaled if column.radius]
    ceiling = max(float(run.metrics["acr_ceiling"]) for run in runs)
    radii = sorted({r for run in runs for r in run.radii if 0 < float(r) <= ceiling}, key=float)
    return [Column(f"r = {r}", {run.id: r for run in runs if r in run.radii}) for r in radii]


def _multiple(value: float) -> str:
    return "r ≈ σ" if value == 1 else f"r ≈ {value:g} σ"


def long_table(runs: list[RunCurve]) -> pd.DataFrame:
    """A row for each run and theta: the curves below each other."""
    named = [
        (run, label)
        for group in grouped(runs).values()
        for run, label in zip(group, labels(group), strict=True)
    ]
    return pd.concat(
        [
            run.curve.assign(
                run=run.id, label=label, **{name: run.params.get(name) for name in IDENTITY}
            )
            for run, label in named
        ],
        ignore_index=True,
    )


def summary(runs: list[RunCurve], *, loss: float | None = None) -> pd.DataFrame:
    """A row for each run: its two networks, and ACES at its working point, or where it gives up at
    most `loss` of natural accuracy.
    """
    rows = []
    for dataset, group in grouped(runs).items():
        for run, label in zip(group, labels(group), strict=True):
            best, alone = run.at(loss), run.metrics["certify"]
            accuracies = [f"{ACCURACY}{r}" for r in run.radii]
            rows.append(
                {
                    "dataset": dataset,
                    "run": label,
                    "sigma": run.sigma,
                    "rule": run.rule,
                    "core_nac": run.core_nac,
                    "certify_nac": alone["nac"],
                    "certify_acr": alone["acr"],
                    "theta": best["theta"],
                    "nac": best["nac"],
                    "acr": best["acr"],
                    **{name: best[name] for name in accuracies},
                    **{f"certify_{name}": alone[name] for name in accuracies},
                }
            )
    return _in_order(pd.DataFrame(rows))


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """With the radii of all runs in ascending order, whichever run brought them in."""
    first = [name for name in table.columns if "@" not in name]
    rest = sorted(
        set(table.columns) - set(first),
        key=lambda name: (name.startswith("certify_"), float(name.split("@")[1])),
    )
    return table[first + rest]


def composed(runs: list[RunCurve], *, loss: float | None) -> tuple[list[str], list[list[str]]]:
    """Headings and rows for people: each run's networks, then ACES under either rule."""
    columns = columns_of(runs)
    head = ["run", "core NAC", "alone NAC", "alone ACR", "rule", "θ", "NAC", "ACR"]
    rows = []
    for run, label in zip(runs, labels(runs), strict=True):
        alone = run.metrics["certify"]
        first = [label, _percent(run.core_nac), _percent(alone["nac"]), _radius(alone["acr"])]
        rows.append([*first, run.rule, *_cells(run, run.at(loss), columns)])
        for rule, curve in run.others.items():
            row = _same_accuracy(curve, float(run.at(loss)["nac"]))
            rows.append([label, "", "", "", rule, *_cells(run, row, columns)])
    return [*head, *(column.title for column in columns)], rows


def _same_accuracy(curve: pd.DataFrame, nac: float) -> pd.Series:
    """The other rule's curve at the largest ACR that is no less accurate: the same price."""
    step = best_within(curve["nac"].to_numpy(), curve["acr"].to_numpy(), core_nac=nac, loss=0)
    return curve.iloc[step]


def _cells(run: RunCurve, row: pd.Series, columns: list[Column]) -> list[str]:
    return [
        f"{row['theta']:.2f}",
        _percent(row["nac"]),
        _radius(row["acr"]),
        *(_accuracy(row, column.radius.get(run.id)) for column in columns),
    ]


def _accuracy(row: pd.Series | dict, radius: str | None) -> str:
    value = math.nan if radius is None else row.get(f"{ACCURACY}{radius}", math.nan)
    return "–" if math.isnan(value) else _percent(value)


def alone(runs: list[RunCurve]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows for people: the certification networks by themselves."""
    columns = columns_of(runs)
    rows = []
    for run, label in zip(runs, labels(runs), strict=True):
        found = run.metrics["certify"]
        cells = [_accuracy(found, column.radius.get(run.id)) for column in columns]
        rows.append([label, _percent(found["nac"]), _radius(found["acr"]), *cells])
    return ["run", "NAC", "ACR", *(column.title for column in columns)], rows


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _radius(value: float) -> str:
    return floor_digits(value, 3)


def write_comparison(
    folder: str | Path, runs: list[RunCurve], *, loss: float | None = None
) -> None:
    """Write `index.html`, `compare.csv` (all curves), `compare.md` (the tables), and a figure per
    dataset, as PDF and PNG.
    """
    folder = make_folder(folder)
    for group in grouped(runs).values():
        write_figure(folder, group, loss=loss)
    long_table(runs).to_csv(folder / "compare.csv", index=False)
    words = [
        f"## {_markdown_text(dataset)}\n\n{markdown(*composed(group, loss=loss))}\n"
        f"{ALONE}:\n\n{markdown(*alone(group))}"
        for dataset, group in grouped(runs).items()
    ]
    write_text(folder / "compare.md", "\n".join(words))
    write_text(folder / "index.html", _page(runs, loss))


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(map(_markdown_text, line))} |\n" for line in lines)


def _markdown_text(text: str) -> str:
    """Markdown passes HTML through, so it is escaped here too."""
    return html.escape(text, quote=False).replace("|", "\\|")


def standing(loss: float | None) -> str:
    """Where ACES stands in the tables, in words."""
    if loss is None:
        return "each run’s working point: its calibrated threshold, or the one it was given"
    return (
        f"the threshold with the largest ACR among those that cost at most {100 * loss:g} points "
        "of the core network’s natural accuracy"
    )


def _page(runs: list[RunCurve], loss: float | None) -> str:
    groups = grouped(runs)
    return Template(asset("compare.html")).substitute(
        style=asset("page.css"),
        script="".join(map(asset, SCRIPTS)),
        data=as_json({"groups": [_payload(group, loss) for group in groups.values()]}),
        count=len(runs),
        sections="".join(
            _section(place, dataset, group, loss)
            for place, (dataset, group) in enumerate(groups.items())
        ),
        common=_common(runs),
    )


def _section(place: int, dataset: str, runs: list[RunCurve], loss: float | None) -> str:
    return Template(asset("compared-group.html")).substitute(
        place=place,
        dataset=html.escape(dataset[:1].upper() + dataset[1:]),
        caution=_caution(runs),
        scaling=_scaling(runs),
        early=_early(runs),
        unreachable=_unreachable(runs),
        standing=standing(loss),
        table=_table(*composed(runs, loss=loss)),
        alone_title=ALONE,
        alone=_table(*alone(runs)),
        figure=" or ".join(
            f'<a href="{name}">{name.rpartition(".")[2].upper()}</a>'
            for name in figure_names(dataset)
        ),
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in head)
    body = "".join(_row(cells) for cells in rows)
    return (
        f'<table class="results words"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    )


def _row(cells: list[str]) -> str:
    values = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
    return f"<tr><th scope=row>{html.escape(cells[0])}</th>{values}</tr>"


def _payload(runs: list[RunCurve], loss: float | None) -> dict:
    """What the page's script draws of one dataset."""
    columns = columns_of(runs)
    return {
        "columns": [column.title for column in columns],
        "runs": [
            {
                "label": label,
                "rule": run.rule,
                "core": run.core_nac,
                "start": run.step(loss),
                "radii": [column.radius.get(run.id) for column in columns],
                **_series(run.curve, run, columns),
                "alone": {
                    "nac": run.metrics["certify"]["nac"],
                    "acr": run.metrics["certify"]["acr"],
                    "certified": [
                        run.metrics["certify"].get(f"{ACCURACY}{column.radius.get(run.id)}")
                        for column in columns
                    ],
                },
                "others": [
                    {"rule": RULES[rule], **_series(curve, run, columns)}
                    for rule, curve in run.others.items()
                ],
            }
            for run, label in zip(runs, labels(runs), strict=True)
        ],
    }


def _series(curve: pd.DataFrame, run: RunCurve, columns: list[Column]) -> dict:
    known = radii_of(curve)
    return {
        "thetas": curve["theta"].tolist(),
        "nac": curve["nac"].tolist(),
        "acr": curve["acr"].tolist(),
        "certified": [
            curve[f"{ACCURACY}{r}"].tolist() if (r := column.radius.get(run.id)) in known else None
            for column in columns
        ],
    }


def _scaling(runs: list[RunCurve]) -> str:
    if len({run.sigma for run in runs}) == 1:
        return ""
    return (
        '<p class="note">These runs have different noise levels <i>σ</i>. Radii are therefore '
        "multiples of each run’s own <i>σ</i>; each run stands at the nearest radius it has, which "
        "a tooltip names.</p>"
    )


def early(runs: list[RunCurve]) -> str | None:
    """Which runs stopped drawing early, and at which thresholds their answers are settled."""
    told = []
    for run, label in zip(runs, labels(runs), strict=True):
        if run.params.get("sample.adaptive.enabled") == "True":
            thetas = run.params.get("sample.adaptive.thetas", "all").strip("[]")
            told.append(f"{label} (settled at {'all θ' if thetas == 'all' else f'θ = {thetas}'})")
    if not told:
        return None
    return (
        f"Draws stopped early in {', '.join(told)}. At other thresholds answers are valid too, but "
        "radii may be smaller than all draws would have given."
    )


def _early(runs: list[RunCurve]) -> str:
    words = early(runs)
    return f'<p class="note">{html.escape(words)}</p>' if words else ""


def _unreachable(runs: list[RunCurve]) -> str:
    ceiling = max(float(run.metrics["acr_ceiling"]) for run in runs)
    beyond = sorted({r for run in runs for r in run.radii if float(r) > ceiling}, key=float)
    if not beyond or len({run.sigma for run in runs}) > 1:
        return ""
    radii = ", ".join(beyond)
    return f'<p class="note">No figure for r = {radii}: none of these runs can certify it.</p>'


def _caution(runs: list[RunCurve]) -> str:
    """What makes these runs hard to compare."""
    differ = differing(runs)
    words = {
        "dataset.stride": "the images",
        "sample.n": "the number of draws n",
        "combine.alpha": "α",
        "sample.adaptive.enabled": "whether draws stop early",
    }
    mixed = [word for name, word in words.items() if name in differ]
    if not mixed:
        return ""
    return (
        f'<p class="caveat"><b>Not like with like.</b> These runs differ in {" and ".join(mixed)}, '
        f"on which certified accuracies and the ACR depend by themselves.</p>"
    )


def _common(runs: list[RunCurve]) -> str:
    """The parameters all runs share."""
    differ = set(differing(runs))
    return listing(
        by_section({name: value for name, value in runs[0].params.items() if name not in differ})
    )
