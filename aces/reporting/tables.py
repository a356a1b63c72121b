"""The trade-off as a table: a row for each theta, in the layout of the paper's Table 1; and what
ACES is compared with.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from aces.reporting.inputs import Inputs
from aces.rule.statistics import floor_digits
from aces.rule.working_point import best_within

GROUPS = {
    "certified_accuracy": "Certified accuracy at radius r",
    "selection_rate": "Certified selection rate at radius r",
}
SHORT = {"certified_accuracy": "acc", "selection_rate": "sel"}
COMPARISON = ("comparison.csv", "comparison.md")
LOSSES = (0.01, 0.05, 0.1)  # of natural accuracy, at which ACES is compared
LATEX = str.maketrans(
    {character: rf"\{character}" for character in "_&%$#{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def write_tables(folder: Path, inputs: Inputs) -> None:
    """Write `tradeoff.csv` (full precision), `.md` and `.tex`, `intervals.csv`, and
    `comparison.csv` and `.md` where ACES is compared with anything.
    """
    table = trade_off(inputs)
    table.to_csv(folder / "tradeoff.csv", index=False)
    inputs.intervals.to_csv(folder / "intervals.csv", index=False)
    (folder / "tradeoff.md").write_text(markdown(table), encoding="utf-8")
    (folder / "tradeoff.tex").write_text(latex(table, caption=caption(inputs)), encoding="utf-8")
    compared = comparison(inputs)
    for name in COMPARISON:
        (folder / name).unlink(missing_ok=True)  # of an earlier run
    if len(compared):
        compared.to_csv(folder / "comparison.csv", index=False)
        (folder / "comparison.md").write_text(markdown(compared), encoding="utf-8")


def trade_off(inputs: Inputs) -> pd.DataFrame:
    """The curve's rows at `report.thetas`, those of them that are on its grid."""
    wanted = np.isclose(inputs.thetas[:, None], inputs.params.report.thetas, atol=1e-9).any(axis=1)
    return inputs.curve[wanted].drop(columns=["abstention", "core_rate"]).reset_index(drop=True)


def comparison(inputs: Inputs) -> pd.DataFrame:
    """ACES, and what it is compared with: system, sigma, theta, nac, acr, certified_accuracy@<r>;
    no rows for nothing.

    ACES stands at the largest ACR that costs at most each of `LOSSES`, so that two mechanisms,
    whose thetas mean different things, are compared at the same price.
    """
    if inputs.comparison is None:
        return pd.DataFrame()
    names = ["nac", "acr", *(f"certified_accuracy@{r:g}" for r in inputs.radii)]
    rows = _at_losses(inputs, inputs.curve, f"ACES, by {inputs.score}")
    if len(inputs.entropy_selection):
        rows += _at_losses(inputs, inputs.entropy_selection, "ACES, by entropy")
    levels = [{"sigma": inputs.sigma, **inputs.alone}, *inputs.varying_noise.to_dict("records")]
    rows += [
        {"system": "certification network alone", **row, "theta": np.nan}
        for row in sorted(levels, key=lambda row: row["sigma"])
    ]
    return pd.DataFrame(rows)[["system", "sigma", "theta", *names]]


def _at_losses(inputs: Inputs, curve: pd.DataFrame, system: str) -> list[dict]:
    places = dict.fromkeys(
        best_within(curve["nac"], curve["acr"], core_nac=inputs.core_nac, loss=loss)
        for loss in LOSSES
    )
    return [
        {"system": system, **curve.iloc[place].to_dict(), "sigma": inputs.sigma} for place in places
    ]


def caption(inputs: Inputs) -> str:
    """What the numbers of the table are."""
    sample = inputs.params.sample
    return (
        f"Natural accuracy (NAC), average certified radius (ACR), and certified accuracy and selection rate at "
        f"various radii on {escaped(inputs.dataset)} with $\\sigma={inputs.sigma:g}$ for a range of thresholds $\\theta$. "
        f"Certification network: {escaped(inputs.params.certify.arch)}, trained with {escaped(inputs.method)}; core network: "
        f"{escaped(inputs.params.core.arch)}; {len(inputs.label)} images, $n_0={sample.n0}$, $n={sample.n}$, "
        f"$\\alpha={inputs.params.combine.alpha:g}$."
    )


def escaped(words: str) -> str:
    """Words for LaTeX: a name such as `cifar_resnet110` has characters that mean something there."""
    return words.translate(LATEX)


def radii_of(table: pd.DataFrame, group: str) -> list[str]:
    """The radii of a group of columns, as they are written in their names."""
    return [name.split("@")[1] for name in table.columns if name.startswith(f"{group}@")]


def heading(radius: str) -> str:
    """Two digits, more where the radius has more: `0.50`, `0.00784314`."""
    two = f"{float(radius):.2f}"
    return two if float(two) == float(radius) else radius


def cells(table: pd.DataFrame) -> list[list[str]]:
    """The table as text: shares in percent with one digit, the average radius rounded down to
    three, a dash for nothing.
    """
    show = {
        "system": str,
        "sigma": "{:g}".format,
        "acr": lambda value: floor_digits(value, 3),
        "theta": lambda value: (
            "–" if np.isnan(value) else f"{value:g}" if value not in (0, 1) else f"{value:.1f}"
        ),
    }
    share = lambda value: f"{100 * value:.1f}"
    columns = [[show.get(name, share)(value) for value in table[name]] for name in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def headings(table: pd.DataFrame) -> list[str]:
    """One row of them: `acc@0.25`, `sel@0.25`."""
    known = {"system": "", "sigma": "σ", "theta": "θ", "nac": "NAC", "acr": "ACR"}
    short = lambda group, r: f"{SHORT[group]}@{r}"
    return [known[name] if name in known else short(*name.split("@")) for name in table.columns]


def markdown(table: pd.DataFrame) -> str:
    """One header row, since Markdown knows no groups."""
    names = headings(table)
    lines = [names, ["--:" if name else "---" for name in names], *cells(table)]
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
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{'c' * (place - 1)}}}",
        r"\toprule",
        " & ".join(left + heads) + r" \\",
        " ".join(rules),
        " & ".join(["", "", ""] + [heading(r) for radii in groups.values() for r in radii])
        + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in cells(table)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
