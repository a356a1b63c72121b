"""The trade-off as a table: a row for each theta, in the layout of the paper's Table 1."""

from pathlib import Path

import numpy as np
import pandas as pd

from aces.reporting.inputs import Inputs
from aces.statistics import floor_digits

GROUPS = {"certified_accuracy": "Certified accuracy at radius r",
          "selection_rate": "Certified selection rate at radius r"}


def write_tables(folder: Path, inputs: Inputs) -> None:
    """Write `tradeoff.csv` (full precision), `.md` and `.tex`, and `intervals.csv`."""
    table = trade_off(inputs)
    table.to_csv(folder / "tradeoff.csv", index=False)
    inputs.intervals.to_csv(folder / "intervals.csv", index=False)
    (folder / "tradeoff.md").write_text(markdown(table), encoding="utf-8")
    (folder / "tradeoff.tex").write_text(latex(table, caption=caption(inputs)), encoding="utf-8")


def trade_off(inputs: Inputs) -> pd.DataFrame:
    """The curve's rows at `report.thetas`, those of them that are on its grid."""
    wanted = np.isclose(inputs.thetas[:, None], inputs.params.report.thetas, atol=1e-9).any(axis=1)
    return inputs.curve[wanted].drop(columns=["abstention", "core_rate"]).reset_index(drop=True)


def caption(inputs: Inputs) -> str:
    """What the numbers of the table are."""
    sample = inputs.params.sample
    return (f"Natural accuracy (NAC), average certified radius (ACR), and certified accuracy and selection rate at "
            f"various radii on {inputs.dataset} with $\\sigma={inputs.sigma:g}$ for a range of thresholds $\\theta$. "
            f"Certification network: {inputs.params.certify.arch}, trained with {inputs.method}; core network: "
            f"{inputs.params.core.arch}; {len(inputs.label)} images, $n_0={sample.n0}$, $n={sample.n}$, "
            f"$\\alpha={inputs.params.combine.alpha:g}$.")


def radii_of(table: pd.DataFrame, group: str) -> list[str]:
    """The radii of a group of columns, as they are written in their names."""
    return [name.split("@")[1] for name in table.columns if name.startswith(f"{group}@")]


def cells(table: pd.DataFrame) -> list[list[str]]:
    """The table as text: shares in percent with one digit, the average radius rounded down to three."""
    shares = [column for column in table.columns if column not in ("theta", "acr")]
    columns = {name: [f"{100 * value:.1f}" for value in table[name]] for name in shares}
    columns["theta"] = [f"{value:g}" if value not in (0, 1) else f"{value:.1f}" for value in table["theta"]]
    columns["acr"] = [floor_digits(value, 3) for value in table["acr"]]
    return [list(row) for row in zip(*(columns[name] for name in table.columns), strict=True)]


def markdown(table: pd.DataFrame) -> str:
    """One header row, since Markdown knows no groups: `acc@0.25`, `sel@0.25`."""
    short = {"certified_accuracy": "acc", "selection_rate": "sel"}
    names = ["θ", "NAC", "ACR", *(f"{short[group]}@{r}" for group in GROUPS for r in radii_of(table, group))]
    lines = [names, ["--:"] * len(names), *cells(table)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: pd.DataFrame, *, caption: str) -> str:
    """Table 1 of the paper; needs the packages booktabs and multirow."""
    groups = {title: radii_of(table, group) for group, title in GROUPS.items()}
    heads, rules, place = [], [], 4
    for title, radii in groups.items():
        heads.append(rf"\multicolumn{{{len(radii)}}}{{c}}{{{title}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + len(radii) - 1}}}")
        place += len(radii)
    left = [rf"\multirow{{2.6}}{{*}}{{{name}}}" for name in (r"$\theta$", "NAC", "ACR")]
    lines = [
        r"\begin{table}[t]", r"\centering", rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{'c' * (place - 1)}}}", r"\toprule",
        " & ".join(left + heads) + r" \\", " ".join(rules),
        " & ".join(["", "", ""] + [f"{float(r):.2f}" for radii in groups.values() for r in radii]) + r" \\", r"\midrule",
        *(" & ".join(row) + r" \\" for row in cells(table)), r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
