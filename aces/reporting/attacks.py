"""What `aces attack` found, for the report."""

import html
import json
import math
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from aces.errors import InputError

CURVE = ("radius", "certified_accuracy", "empirical_accuracy")
KINDS = ("class", "selection", "random", "any")  # the attacks, and any of them


def read_attack(path: Path, files: Mapping[str, str]) -> dict[str, Any] | None:
    """The attack in `path`; None if there is none, or if it is about other networks or images.

    files: path -> digest of the files that the report is about.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        about = content["files"]
        if not about or any(files.get(name) != value for name, value in about.items()):
            return None
        return {
            "theta": _number(content["theta"]),
            "images": int(content["images"]),
            "certified": int(content["certified"]),
            "breaches": [str(name) for name in content["breaches"]],
            "scales": [
                {"scale": _number(row["scale"]), **{kind: int(row[kind]) for kind in KINDS}}
                for row in content["scales"]
            ],
            "curve": {name: [_number(row[name]) for row in content["curve"]] for name in CURVE},
        }
    except Exception:  # each kind of damage raises another one
        raise InputError(
            f"{path} cannot be read: run `aces attack` again, or remove the file"
        ) from None


def _number(value: str | float) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"{found} stands where a number is expected")
    return found


def section(attack: Mapping[str, Any] | None, template: str) -> str:
    """The part of the page on attacks; empty where there is none."""
    if attack is None:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{row['scale']:g}</th>"
        + "".join(f"<td>{row[kind]}</td>" for kind in KINDS)
        + "</tr>"
        for row in attack["scales"]
    )
    breaches = ", ".join(map(html.escape, attack["breaches"]))
    return Template(template).substitute(
        theta=f"{attack['theta']:g}",
        images=f"{attack['images']:,}",
        certified=f"{attack['certified']:,}",
        head="".join(f"<th scope=col>{words}</th>" for words in KINDS),
        rows=rows,
        inside=(
            f"<b>Inside the certified radius an attack succeeded on {breaches}: these certificates "
            "are false.</b>"
            if breaches
            else "Inside the certified radius no attack succeeded, as certified."
        ),
    )
