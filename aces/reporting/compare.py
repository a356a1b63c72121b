"""Several runs in one table and one page."""

import html
import json
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pandas as pd

from aces.errors import InputError
from aces.reporting.page import as_json, asset, by_section, listing
from aces.rule.statistics import floor_digits
from aces.rule.working_point import best_within

SCRIPTS = ("chart.js", "compare.js")
ALONE = "The certification networks alone"
SHOWN = 4  # parameters in the name of a run at most
SPEAKING = (
    "dataset.name",
    "core.arch",
    "certify.arch",
    "certify.method",
    "select.score",
)  # values that need no name


@dataclass(frozen=True)
class RunCurve:
    """A finished run: its flattened parameters, its curve and its metrics as the stage `combine`
    wrote them.
    """

    id: str
    name: str
    params: dict[str, str]
    curve: pd.DataFrame
    metrics: dict

    @property
    def radii(self) -> list[str]:
        return [name.split("@")[1] for name in _accuracies(self.curve)]

    def at_loss(self, loss: float) -> pd.Series:
        """ACES where it gives up at most `loss` of the core network's natural accuracy."""
        return self.curve.iloc[
            best_within(
                self.curve["nac"],
                self.curve["acr"],
                core_nac=self.metrics["core"]["nac"],
                loss=loss,
            )
        ]


def read_curve(run) -> RunCurve | None:
    """Read the artifacts of a run of `aces.tracking`; None where it has none."""
    paths = [run.artifact("results/curve.csv"), run.artifact("results/metrics.json")]
    if None in paths:
        return None
    try:
        curve, metrics = (
            pd.read_csv(paths[0]),
            json.loads(Path(paths[1]).read_text(encoding="utf-8")),
        )
        _ = curve[["theta", "nac", "acr"]], metrics["core"]["nac"], metrics["acr_ceiling"]
        _ = [metrics["certify"][name] for name in ("nac", "acr", *_accuracies(curve))]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"run {run.name} ({run.id[:8]}): its results cannot be read ({_one_line(error)}): "
            f"run `dvc repro` again, or name the other runs"
        ) from None
    return RunCurve(id=run.id, name=run.name, params=run.params, curve=curve, metrics=metrics)


def _accuracies(table: pd.DataFrame) -> list[str]:
    return [name for name in table.columns if name.startswith("certified_accuracy@")]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def distinct(runs: list[RunCurve]) -> list[RunCurve]:
    """Without repetitions: of runs with the same parameters and curve the first stays."""
    kept: list[RunCurve] = []
    for run in runs:
        if not any(run.params == other.params and run.curve.equals(other.curve) for other in kept):
            kept.append(run)
    return kept


def differing(runs: list[RunCurve]) -> list[str]:
    """The parameters that are not the same in all runs, in the order of the first."""
    names = list(dict.fromkeys(name for run in runs for name in run.params))
    return [name for name in names if len({run.params.get(name) for run in runs}) > 1]


def labels(runs: list[RunCurve]) -> list[str]:
    """What tells the runs apart: the parameters in which they differ, or their names where these
    are many or none.
    """
    names = differing(runs)
    if 0 < len(names) <= SHOWN:
        found = [
            ", ".join(_spoken(name, run.params.get(name, "none")) for name in names) for run in runs
        ]
    else:
        found = [run.name for run in runs]
    return [
        f"{label} ({run.id[:8]})" if found.count(label) > 1 else label
        for label, run in zip(found, runs, strict=True)
    ]


def _spoken(name: str, value: str) -> str:
    return value if name in SPEAKING else f"{'σ' if name == 'sigma' else name} {value}"


def long_table(runs: list[RunCurve]) -> pd.DataFrame:
    """A row for each run and theta: the curves below each other."""
    identity = (
        "dataset.name",
        "certify.method",
        "select.score",
        "sigma",
        "sample.n",
        "combine.alpha",
    )
    return pd.concat(
        [
            run.curve.assign(
                run=run.id, label=label, **{name: run.params.get(name) for name in identity}
            )
            for run, label in zip(runs, labels(runs), strict=True)
        ],
        ignore_index=True,
    )


def summary(runs: list[RunCurve], *, loss: float) -> pd.DataFrame:
    """A row for each run: its two networks, and ACES where it gives up at most `loss` of natural
    accuracy.
    """
    rows = []
    for run, label in zip(runs, labels(runs), strict=True):
        best, alone = run.at_loss(loss), run.metrics["certify"]
        rows.append(
            {
                "run": label,
                "core_nac": run.metrics["core"]["nac"],
                "certify_nac": alone["nac"],
                "certify_acr": alone["acr"],
                "theta": best["theta"],
                "nac": best["nac"],
                "acr": best["acr"],
                **{name: best[name] for name in _accuracies(run.curve)},
                **{f"certify_{name}": alone[name] for name in _accuracies(run.curve)},
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


def composed(table: pd.DataFrame) -> pd.DataFrame:
    """Of the summary: the runs' two networks, and ACES."""
    return table.drop(
        columns=[name for name in table.columns if name.startswith("certify_certified_accuracy@")]
    )


def alone(table: pd.DataFrame) -> pd.DataFrame:
    """Of the summary: the certification networks by themselves."""
    kept = table[["run", *(name for name in table.columns if name.startswith("certify_"))]]
    return kept.rename(columns=lambda name: name.removeprefix("certify_"))


def as_text(table: pd.DataFrame) -> list[list[str]]:
    """The summary for people: shares in percent, radii rounded down, a dash where a run has no such
    radius.
    """

    def show(name: str, value) -> str:
        if isinstance(value, str):
            return value
        if pd.isna(value):
            return "–"
        if name == "theta":
            return f"{value:.2f}"
        return floor_digits(value, 3) if name.endswith("acr") else f"{100 * value:.1f}"

    return [[show(name, value) for name, value in row.items()] for row in table.to_dict("records")]


def for_terminal(table: pd.DataFrame) -> pd.DataFrame:
    """Without the columns that say nothing: certified accuracy at 0, and at radii that no run
    reaches.
    """
    table = composed(table)
    return table.drop(
        columns=[
            name
            for name in _accuracies(table)
            if name.endswith("@0") or not table[name].fillna(0).any()
        ]
    )


def headings(table: pd.DataFrame) -> list[str]:
    known = {
        "run": "run",
        "core_nac": "core NAC",
        "certify_nac": "certify NAC",
        "certify_acr": "certify ACR",
        "theta": "θ",
        "nac": "NAC",
        "acr": "ACR",
    }
    return [known.get(name, name.replace("certified_accuracy@", "acc@")) for name in table.columns]


def write_comparison(folder: str | Path, runs: list[RunCurve], *, loss: float) -> None:
    """Write `index.html`, `compare.csv` (all curves) and `compare.md` (the two tables) into
    `folder`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table = summary(runs, loss=loss)
    long_table(runs).to_csv(folder / "compare.csv", index=False)
    words = f"{markdown(composed(table))}\n{ALONE}:\n\n{markdown(alone(table))}"
    (folder / "compare.md").write_text(words, encoding="utf-8")
    (folder / "index.html").write_text(_page(runs, table, loss), encoding="utf-8")


def markdown(table: pd.DataFrame) -> str:
    lines = [headings(table), ["---"] + ["--:"] * (len(table.columns) - 1), *as_text(table)]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def _page(runs: list[RunCurve], table: pd.DataFrame, loss: float) -> str:
    return Template(asset("compare.html")).substitute(
        style=asset("page.css"),
        script="".join(map(asset, SCRIPTS)),
        data=as_json(_payload(runs)),
        count=len(runs),
        table=_table(composed(table)),
        alone_title=ALONE,
        alone=_table(alone(table)),
        loss=f"{100 * loss:g}",
        caution=_caution(runs),
        common=_common(runs),
        unreachable=_unreachable(runs),
    )


def _table(table: pd.DataFrame) -> str:
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in headings(table))
    rows = "".join(_row(cells) for cells in as_text(table))
    return (
        f'<table class="results words"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(cells: list[str]) -> str:
    values = "".join(f"<td>{cell}</td>" for cell in cells[1:])
    return f"<tr><th scope=row>{html.escape(cells[0])}</th>{values}</tr>"


def _payload(runs: list[RunCurve]) -> dict:
    radii = [r for r in _radii(runs) if float(r) <= _ceiling(runs)]
    metric = lambda values, r: values.get(f"certified_accuracy@{r}")
    return {
        "radii": radii,
        "runs": [
            {
                "label": label,
                "core": run.metrics["core"]["nac"],
                "thetas": run.curve["theta"].tolist(),
                "nac": run.curve["nac"].tolist(),
                "acr": run.curve["acr"].tolist(),
                "certified_accuracy": {
                    r: run.curve[f"certified_accuracy@{r}"].tolist()
                    for r in radii
                    if r in run.radii
                },
                "alone": {
                    "nac": run.metrics["certify"]["nac"],
                    "acr": run.metrics["certify"]["acr"],
                    "certified_accuracy": {
                        r: metric(run.metrics["certify"], r) for r in radii if r in run.radii
                    },
                },
            }
            for run, label in zip(runs, labels(runs), strict=True)
        ],
    }


def _radii(runs: list[RunCurve]) -> list[str]:
    return sorted({r for run in runs for r in run.radii if float(r) > 0}, key=float)


def _ceiling(runs: list[RunCurve]) -> float:
    return max(run.metrics["acr_ceiling"] for run in runs)


def _unreachable(runs: list[RunCurve]) -> str:
    beyond = [r for r in _radii(runs) if float(r) > _ceiling(runs)]
    if not beyond:
        return ""
    return f'<p class="note">No figure for r = {", ".join(beyond)}: none of these runs can certify it.</p>'


def _caution(runs: list[RunCurve]) -> str:
    """What makes these runs hard to compare."""
    differ = differing(runs)
    words = {
        "dataset.name": "the dataset",
        "dataset.stride": "the images",
        "sample.n": "the number of draws n",
        "combine.alpha": "α",
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
