"""The page people look at: one file, no network, every number from the inputs."""

import html
import json
import math
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd

from aces.files import write_text
from aces.params import flatten
from aces.reporting import attacks, figures, payload, remarks, tables
from aces.reporting.inputs import RULES, Inputs
from aces.reporting.packing import pack
from aces.reporting.sprite import make_sprite
from aces.rule.counts import Round
from aces.rule.statistics import floor_digits

# One after the other, in one module.
SCRIPTS = (
    "chart.js",
    "run.js",
    "figures.js",
    "wall.js",
    "detail.js",
    "classes.js",
    "address.js",
    "page.js",
)


def write_page(path: str | Path, inputs: Inputs, *, tables_written: list[str]) -> None:
    """Write the report as one HTML file that needs nothing else; `tables_written` lie beside it."""
    shown = payload.shown_images(inputs)
    sprite = make_sprite(inputs.evaluation.image[shown])
    compared = tables.comparison(inputs)
    links = [
        *(f"tables/{name}" for name in tables_written),
        *(f"figures/{name}.png" for name in figures.FIGURES),
    ]
    fields = {
        "title": html.escape(f"ACES on {inputs.dataset}, σ = {inputs.sigma:g}"),
        "heading": _heading(inputs),
        "style": asset("page.css"),
        "script": "".join(map(asset, SCRIPTS)),
        "data": pack(payload.build(inputs, shown=shown, sprite=sprite)),
        "sprite": sprite.uri,
        "sprite_columns": sprite.columns,
        "sprite_rows": sprite.rows,
        "rendering": "pixelated" if sprite.native else "auto",
        "concerns": concerns(inputs.concerns),
        "facts": _facts(inputs),
        "table": _table(inputs),
        "reading": _reading(inputs),
        "provenance": _provenance(inputs),
        "files": ", ".join(f'<a href="{link}"><code>{link}</code></a>' for link in links),
        "comparison": _comparison(compared) if len(compared) else "",
        "same_price": _same_price(inputs),
        "attack": attacks.section(inputs.attack, asset("attack.html")),
        "wall_intro": _wall_intro(len(shown), len(inputs.label)),
        "correctness_radius": f"{inputs.middle_radius:g}",
        "working_point": html.escape(inputs.working_point.words),
        "beyond": _beyond(inputs),
        "early": _note(remarks.stopped_early(inputs.params, inputs.draws)),
        "above_natural": _note(remarks.above_natural(inputs.curve)),
        **_common(inputs),
    }
    write_text(path, Template(asset("page.html")).substitute(fields))


def _heading(inputs: Inputs) -> str:
    words = f"{_capital(inputs.dataset)}, {inputs.method}"
    return f"{html.escape(words)}, <i>σ</i> = {inputs.sigma:g}"


def concerns(found: list[str]) -> str:
    """A box that cannot be missed, if there is anything to say."""
    if not found:
        return ""
    items = "".join(f"<li>{html.escape(concern)}</li>" for concern in found)
    return (
        '<div class="concerns" role="alert"><h2>Do not rely on these numbers yet</h2>'
        f"<ul>{items}</ul></div>"
    )


def _note(words: str | None) -> str:
    return f'<p class="note">{html.escape(words)}</p>' if words else ""


def asset(name: str) -> str:
    return (files("aces.reporting") / "assets" / name).read_text(encoding="utf-8")


def as_json(data: dict) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace(
        "<", "\\u003c"
    )


def _provenance(inputs: Inputs) -> str:
    """Section -> name -> value as HTML: what the caller knows of the run, the draws, all
    parameters.
    """
    settings, draws = inputs.counts.settings, inputs.counts.draws.sum(axis=1)
    noise = {
        "seed": settings.seed,
        "network": settings.model,
        "network run by": f"{settings.backend}, {settings.precision}",
        "draws of all images": int(draws.sum()),
        **{f"round {stage.name.lower()}": int(draws[stage]) for stage in Round},
        "invalid draws": int(inputs.counts.invalid.sum()),
    }
    return listing(inputs.provenance | {"draws": noise} | by_section(flatten(inputs.params)))


def by_section(flat: dict[str, object]) -> dict[str, dict]:
    """`{"sigma": 1, "sample.n": 2}` -> `{"parameters": {"sigma": 1}, "parameters: sample": {"n":
    2}}`.
    """
    sections: dict[str, dict] = {}
    for name, value in flat.items():
        section, _, rest = name.partition(".")
        sections.setdefault(f"parameters: {section}" if rest else "parameters", {})[
            rest or section
        ] = value
    return sections


def listing(sections: dict[str, dict]) -> str:
    """Section -> name -> value as HTML."""
    return (
        '<div class="provenance">'
        + "".join(_group(name, rows) for name, rows in sections.items())
        + "</div>"
    )


def _group(title: str, rows: dict) -> str:
    cells = "".join(
        f"<tr><th scope=row>{_breakable(name)}</th><td>{html.escape(_text(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div><h3>{html.escape(_capital(title))}</h3><table>{cells}</table></div>"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _breakable(name: str) -> str:
    """A dotted name that may wrap after its dots and underscores."""
    return html.escape(str(name)).replace(".", ".<wbr>").replace("_", "_<wbr>")


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _common(inputs: Inputs) -> dict[str, str]:
    """What both the page and its text on reading speak of."""
    report = inputs.params.report
    return {
        "n": f"{inputs.params.sample.n:,}",
        "alpha": f"{inputs.params.combine.alpha:g}",
        "ceiling": floor_digits(inputs.ceiling, 3),
        "count": f"{len(inputs.label):,}",
        "score": inputs.score,
        "bands": (
            "95 % intervals over images (Clopper and Pearson’s for shares; for the ACR a bootstrap "
            f"of {report.bootstrap:,} resamples)"
        ),
    }


def _facts(inputs: Inputs) -> str:
    params = inputs.params
    facts = {
        "images": f"{len(inputs.label):,} of the test set",
        "classes": f"{inputs.counts.classes.shape[2]:,}",
        "core network": params.core.arch,
        "certification network": f"{params.certify.arch}, {inputs.method}",
        "rule": RULES[inputs.rule],
        "compared with θ": inputs.score,
        "noise σ": f"{inputs.sigma:g}",
        "draws n": f"{params.sample.n:,}",
        "failure probability α": f"{params.combine.alpha:g}",
    }
    return "".join(
        f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts.items()
    )


def _wall_intro(shown: int, count: int) -> str:
    return (
        f"All {count:,} evaluation images."
        if shown == count
        else f"{shown:,} of the {count:,} images: evenly spaced ones, and the most telling at the "
        "working point."
    )


def _beyond(inputs: Inputs) -> str:
    if inputs.radii[-1] <= inputs.ceiling:
        return ""
    return (
        f" Certified accuracies beyond {floor_digits(inputs.ceiling, 3)} are zero by construction."
    )


def _table(inputs: Inputs) -> str:
    table = tables.trade_off(inputs)
    groups = {title: tables.radii_of(table, group) for group, title in tables.GROUPS.items()}
    heads = "".join(
        f"<th colspan={len(radii)} scope=colgroup><span>{title}</span></th>"
        for title, radii in groups.items()
    )
    columns = "".join(
        f"<th scope=col>{tables.heading(r)}</th>" for radii in groups.values() for r in radii
    )
    plain = "".join(
        f"<th rowspan=2 scope=col>{tables.KNOWN[name]}</th>"
        for name in table.columns[1:]
        if "@" not in name
    )
    live = "".join(f'<td data-live="{name}"></td>' for name in table.columns[1:])
    rows = "".join(
        _row(theta, cells) for theta, cells in zip(table["theta"], tables.cells(table), strict=True)
    )
    return (
        '<table class="results"><thead><tr><th rowspan=2 scope=col><i>θ</i></th>'
        f"{plain}{heads}</tr><tr>{columns}</tr></thead><tbody>"
        f'<tr class="live"><th scope=row data-live="theta"></th>{live}</tr>{rows}</tbody></table>'
    )


def _comparison(compared: pd.DataFrame) -> str:
    """The trade-off of what ACES is compared with, in numbers."""
    head = "".join(f"<th scope=col>{name}</th>" for name in tables.headings(compared)[1:])
    rows = "".join(
        f"<tr><th scope=row>{html.escape(cells[0])}</th>{_values(cells[1:])}</tr>"
        for cells in tables.cells(compared)
    )
    prices = (
        ", ".join(f"{100 * loss:g}" for loss in tables.LOSSES[:-1])
        + f" and {100 * tables.LOSSES[-1]:g}"
    )
    return Template(asset("comparison.html")).substitute(head=head, rows=rows, prices=prices)


def _same_price(inputs: Inputs) -> str:
    """Both rules at the same loss of natural accuracy, and the interval of their difference."""
    if not inputs.rule_differences or inputs.other_rule is None:
        return ""
    names = (inputs.rule, inputs.other_rule)
    rows = "".join(
        f"<tr><th scope=row>{100 * row['loss']:g}</th>"
        + "".join(f"<td>{floor_digits(row[name], 3)}</td>" for name in names)
        + f"<td>{_signed(row['difference'])}</td>"
        + f"<td>{_signed(row['low'])} to {_signed(row['high'])}</td></tr>"
        for row in inputs.rule_differences
    )
    return Template(asset("same_price.html")).substitute(
        ours=RULES[inputs.rule], theirs=RULES[inputs.other_rule], rows=rows
    )


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _row(theta: float, cells: list[str]) -> str:
    return f'<tr data-theta="{theta:g}"><th scope=row>{cells[0]}</th>{_values(cells[1:])}</tr>'


def _values(cells: list[str]) -> str:
    return "".join(
        f'<td class="zero">{cell}</td>' if cell.strip("0.") == "" else f"<td>{cell}</td>"
        for cell in cells
    )


SELECTS = {
    "entropy": (
        "it counts the noisy copies on which the certification network is sure of itself, with an "
        "entropy of at most <i>θ</i>, and lets it answer where these are provably the majority"
    ),
    "score": (
        "every noisy copy gets a score, and the certification network answers where scores of at "
        "most <i>θ</i> are provably the majority"
    ),
    "confident": (
        "it counts the noisy copies that the certification network gives one class to <em>and</em> "
        "is sure of, with a doubt of at most <i>θ</i>, and lets it answer with that class where "
        "these are provably the majority"
    ),
}
BINDS = {
    "paper": (
        "share of noisy copies with the guessed class, and on the more frequent side of the "
        "threshold. The radius follows from the smaller one’s lower bound"
    ),
    "confident": (
        "share of noisy copies with the guessed class and a doubt of at most <i>θ</i>, and the "
        "larger of this share and the rest. The radius follows from the lower bound of the first"
    ),
}


def _reading(inputs: Inputs) -> str:
    height, width, channels = inputs.evaluation.image.shape[1:]
    values = height * width * channels
    radius = (inputs.reachable_radii or [inputs.ceiling])[0]
    paper = "entropy" if inputs.paper_score == "entropy" else "score"
    return Template(asset("reading.html")).substitute(
        _common(inputs),
        sigma=f"{inputs.sigma:g}",
        selects=SELECTS[inputs.rule if inputs.rule == "confident" else paper],
        binds=BINDS[inputs.rule],
        example=f"{radius:g}",
        one=f"{255 * radius:.0f}",
        values=f"{values:,}",
        all=f"{255 * radius / math.sqrt(values):.2f} of 255",
        shape=f"{width} × {height} pixels",
        confidence=f"{1 - inputs.params.combine.alpha:.12g}",
    )
