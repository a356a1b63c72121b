"""The paper's tables from the frame of paper.csv, as Markdown and LaTeX; numbers that differ from
the published are marked.
"""

from collections.abc import Iterator

import pandas as pd

from aces.paper.release import METRICS

THETAS = [i / 10 for i in range(11)]  # the rows of the published tables
TITLES = {"certified_accuracy": "certified accuracy", "selection_rate": "certified selection rate"}
RUN = ["dataset", "method", "sigma", "selection", "core"]


def to_markdown(frame: pd.DataFrame, individual: pd.DataFrame, *, notes: list[str]) -> str:
    """All tables, and the networks on their own; `notes` come first."""
    parts = [
        "# The paper's tables, from the official release",
        *notes,
        "Accuracies and rates are in percent. An asterisk marks a number that differs from the "
        "published one.",
    ]
    for caption, columns, rows in _tables(frame, mark="*"):
        head = "| " + " | ".join(columns) + " |\n|" + "---:|" * len(columns)
        parts += [
            f"## {caption}",
            "\n".join([head, *("| " + " | ".join(row) + " |" for row in rows)]),
        ]
    parts += ["## The certification networks on their own", _individual(individual)]
    return "\n\n".join(parts) + "\n"


def to_latex(frame: pd.DataFrame) -> str:
    """All tables, to be read by a document with the package booktabs."""
    parts = [r"% needs \usepackage{booktabs}"]
    for caption, columns, rows in _tables(frame, mark="$^*$"):
        lines = [" & ".join(row) + r" \\" for row in rows]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"  \centering",
                    rf"  \caption{{{caption}}}",
                    rf"  \begin{{tabular}}{{{'c' * len(columns)}}}",
                    r"    \toprule",
                    "    " + " & ".join(columns) + r" \\",
                    r"    \midrule",
                    *(f"    {line}" for line in lines),
                    r"    \bottomrule",
                    r"  \end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def _tables(frame: pd.DataFrame, *, mark: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Caption, heads and rows of each table: theta, NAC, ACR, and one metric at each radius."""
    frame = frame[frame["theta"].round(6).isin(THETAS)]
    for run, cells in frame.groupby(RUN, sort=False):
        for metric in METRICS:
            part = cells[cells["metric"].isin(["nac", "acr", metric])]
            radii = part["radius"].dropna().unique()
            rows = [
                [f"{theta:.2f}", *(_cell(cell, mark) for cell in row.itertuples())]
                for theta, row in part.groupby("theta")
            ]
            yield (
                _caption(run, metric),
                ["theta", "NAC", "ACR", *(f"{radius:g}" for radius in radii)],
                rows,
            )


def _cell(cell, mark: str) -> str:
    digits = 3 if cell.metric == "acr" else 1
    shown = f"{cell.value:.{digits}f}"
    return (
        shown
        if pd.isna(cell.published) or shown == f"{cell.published:.{digits}f}"
        else shown + mark
    )


def _caption(run: tuple, metric: str) -> str:
    dataset, method, sigma, selection, core = run
    mechanism = (
        "entropy" if selection == "entropy" else f"a network with eta {selection.partition('-')[2]}"
    )
    name = f"{dataset}, {method}, sigma {sigma:g}, selection by {mechanism}, core {core}"
    return f"{name}: {TITLES[metric]} at radius r"


def _individual(individual: pd.DataFrame) -> str:
    lines = [
        "| dataset | method | sigma | logged with | NAC | ACR | abstention |",
        "|---|---|---:|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row.dataset} | {row.method} | {row.sigma:g} | {row.selection} | {row.nac:.1f} | "
        f"{row.acr:.3f} | {row.abstention:.1f} |"
        for row in individual.itertuples()
    ]
    return "\n".join(lines)
