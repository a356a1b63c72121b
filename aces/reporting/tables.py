"""The trade-off as a table, with a row for each theta, in the layout of the paper's Table 1; what
ACES is compared with; and every image's outcome at the working point.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aces.files import write_text
from aces.reporting.inputs import RULES, Inputs
from aces.reporting.outcomes import ROUTES
from aces.rule.splits import LOSSES
from aces.rule.statistics import floor_digits
from aces.rule.working_point import best_within

GROUPS = {
    "certified_accuracy": "Certified accuracy at radius r",
    "selection_rate": "Certified selection rate at radius r",
}
SHORT = {"certified_accuracy": "acc", "selection_rate": "sel"}
KNOWN = {
    "system": "",
    "sigma": "σ",
    "theta": "θ",
    "nac": "NAC",
    "acr": "ACR",
    "core_rate": "core",
    "abstention": "abstain",
}
ALWAYS = ("tradeoff.csv", "tradeoff.md", "tradeoff.tex", "intervals.csv", "outcomes.csv")
# Only where there is something to compare: they are removed if an earlier run left them.
SOMETIMES = (
    "comparison.csv",
    "comparison.md",
    *(f"tradeoff-{rule}.{kind}" for rule in RULES for kind in ("csv", "md")),
)
LATEX = str.maketrans(
    {character: rf"\{character}" for character in "_&%$#{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def write_tables(folder: Path, inputs: Inputs) -> list[str]:
    """Write the tables that this run has, and give their names.

    `tradeoff.csv` (full precision), `.md` and `.tex`; `intervals.csv`; `outcomes.csv`; and, where
    ACES is compared with anything, `comparison.csv` and `.md`, and the other rule's table.
    """
    table = trade_off(inputs)
    table.to_csv(folder / "tradeoff.csv", index=False)
    inputs.intervals.to_csv(folder / "intervals.csv", index=False)
    outcomes(inputs).to_csv(folder / "outcomes.csv", index=False)
    write_text(folder / "tradeoff.md", markdown(table))
    write_text(folder / "tradeoff.tex", latex(table, caption=caption(inputs)))
    for name in SOMETIMES:
        (folder / name).unlink(missing_ok=True)
    extra = {"comparison": comparison(inputs)}
    if inputs.other_rule is not None:
        extra[f"tradeoff-{inputs.other_rule}"] = _at_thetas(inputs, inputs.other_curve)
    written = [*ALWAYS]
    for name, found in extra.items():
        if len(found):
            found.to_csv(folder / f"{name}.csv", index=False)
            write_text(folder / f"{name}.md", markdown(found))
            written += [f"{name}.csv", f"{name}.md"]
    return written


def trade_off(inputs: Inputs) -> pd.DataFrame:
    """The curve's rows at `report.thetas`, those of them that are on its grid."""
    return _at_thetas(inputs, inputs.curve)


def _at_thetas(inputs: Inputs, curve: pd.DataFrame) -> pd.DataFrame:
    thetas = curve["theta"].to_numpy(dtype=float)
    wanted = np.isclose(thetas[:, None], inputs.params.report.thetas, atol=1e-9).any(axis=1)
    first = [name for name in ("theta", "nac", "acr", "core_rate", "abstention") if name in curve]
    radii = [name for name in curve.columns if "@" in name]
    return curve.loc[wanted, first + radii].reset_index(drop=True)


def outcomes(inputs: Inputs) -> pd.DataFrame:
    """One row for each image: what ACES answers at the working point, and what its networks say."""
    step, table = inputs.working_point.step, inputs.outcomes
    return pd.DataFrame(
        {
            "index": table.index,
            "label": inputs.label,
            "theta": inputs.working_point.theta,
            "route": np.array(ROUTES)[table.route[:, step]],
            "prediction": table.prediction[:, step],
            "radius": table.radius[:, step],
            "natural_prediction": table.natural_prediction[:, step],
            "core": inputs.core,
            "certify": inputs.counts.guess,
            "certify_radius": inputs.alone_radius,
            "draws": inputs.draws,
        }
    )


def comparison(inputs: Inputs) -> pd.DataFrame:
    """ACES, and what it is compared with: system, sigma, theta, nac, acr, certified_accuracy@<r>;
    no rows for nothing.

    ACES stands at the largest ACR that costs at most each of `LOSSES`, so that rules and scores,
    whose thetas mean different things, are compared at the same price.
    """
    if inputs.comparison is None:
        return pd.DataFrame()
    names = ["nac", "acr", *(f"certified_accuracy@{r}" for r in inputs.radius_names)]
    rows = _at_losses(inputs, inputs.curve, f"ACES, {RULES[inputs.rule]}")
    if inputs.other_rule is not None:
        rows += _at_losses(inputs, inputs.other_curve, f"ACES, {RULES[inputs.other_rule]}")
    if len(inputs.entropy_selection):
        rows += _at_losses(inputs, inputs.entropy_selection, "ACES, the paper's rule, by entropy")
    own: dict = {"sigma": inputs.sigma, **inputs.alone}
    levels = [own, *inputs.varying_noise.to_dict("records")]
    rows += [
        {"system": "certification network alone", **row, "theta": np.nan}
        for row in sorted(levels, key=lambda row: row["sigma"])
    ]
    return pd.DataFrame(rows)[["system", "sigma", "theta", *names]]


def _at_losses(inputs: Inputs, curve: pd.DataFrame, system: str) -> list[dict]:
    nac, acr = curve["nac"].to_numpy(), curve["acr"].to_numpy()
    steps = dict.fromkeys(
        best_within(nac, acr, core_nac=inputs.core_nac, loss=loss) for loss in LOSSES
    )
    return [
        {"system": system, **curve.iloc[step].to_dict(), "sigma": inputs.sigma} for step in steps
    ]


def caption(inputs: Inputs) -> str:
    """What the numbers of the table are."""
    sample, params = inputs.params.sample, inputs.params
    return (
        "Natural accuracy (NAC), average certified radius (ACR), and certified accuracy and "
        f"selection rate at various radii on {escaped(inputs.dataset)} with "
        f"$\\sigma={inputs.sigma:g}$ for a range of thresholds $\\theta$, by "
        f"{RULES[inputs.rule]}. Certification network: {escaped(params.certify.arch)}, trained "
        f"with {escaped(inputs.method)}; core network: {escaped(params.core.arch)}; "
        f"{len(inputs.label)} images, $n_0={sample.n0}$, $n={sample.n}$, "
        f"$\\alpha={params.combine.alpha:g}$."
    )


def escaped(words: str) -> str:
    """Words for LaTeX, where characters of names such as `cifar_resnet110` have a meaning."""
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
    show: dict[str, Callable[[Any], str]] = {
        "system": str,
        "sigma": "{:g}".format,
        "acr": lambda value: floor_digits(value, 3),
        "theta": lambda value: (
            "–" if np.isnan(value) else f"{value:g}" if value not in (0, 1) else f"{value:.1f}"
        ),
    }
    columns = [[show.get(name, _share)(value) for value in table[name]] for name in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def headings(table: pd.DataFrame) -> list[str]:
    """One row of them: `acc@0.25`, `sel@0.25`."""
    return [KNOWN[name] if name in KNOWN else _short(name) for name in table.columns]


def _short(name: str) -> str:
    group, _, radius = name.partition("@")
    return f"{SHORT[group]}@{radius}"


def markdown(table: pd.DataFrame) -> str:
    """One header row, since Markdown knows no groups."""
    names = headings(table)
    lines = [names, ["--:" if name else "---" for name in names], *cells(table)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: pd.DataFrame, *, caption: str) -> str:
    """Table 1 of the paper; needs the packages booktabs and multirow."""
    table = table.drop(columns=["core_rate", "abstention"], errors="ignore")
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
