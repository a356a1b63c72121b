"""`aces profile list`, `aces profile use NAME`: complete parameter sets."""

import argparse
import json
from itertools import takewhile
from pathlib import Path
from typing import Any

from aces import files, params, paths
from aces.console import say
from aces.errors import InputError

EXAMPLE = "aces profile use cifar10-gaussian"
PARAMS = paths.PARAMS
SCHEMA = "$schema"  # marks the first line, by which editors find the schema of the file


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the profiles, and which one is in place")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    use = actions.add_parser("use", help="write a profile to params.yaml")
    use.add_argument("name", metavar="NAME", help="a name from `aces profile list`")


def run(args: argparse.Namespace) -> int:
    return _list(as_json=args.json) if args.action == "list" else _use(args.name)


def profiles() -> dict[str, Path]:
    """name -> file, of the profiles in this project."""
    folder = Path("profiles") if Path("profiles").is_dir() else paths.root() / "profiles"
    found = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not found:
        raise InputError(f"{folder} has no profiles: run this in the project's folder")
    return found


def purpose(path: Path) -> str:
    """The comment at the top of a profile, after the line that is for editors."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    return " ".join(line.lstrip("# ") for line in lines if SCHEMA not in line)


def contents(path: Path) -> str:
    """The text of params.yaml for a profile: the same, with the path of the schema as it is from
    one folder higher.
    """
    return path.read_text().replace(f"{SCHEMA}=../", f"{SCHEMA}=")


def _list(*, as_json: bool) -> int:
    current = PARAMS.read_text() if PARAMS.is_file() else None
    rows: list[dict[str, Any]] = [
        {"name": name, "purpose": purpose(path), "in_place": contents(path) == current}
        for name, path in profiles().items()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        mark = "*" if row["in_place"] else " "
        say(f"{mark} {row['name']:{width}}  {row['purpose']}")
    return 0


def _use(name: str) -> int:
    known = profiles()
    if name not in known:
        raise InputError(f"profile {name!r} is unknown: expected one of {', '.join(known)}")
    params.load(known[name])  # refuses a broken profile before anything is replaced
    replaced = _what_is_in_place(known)
    files.write_text(PARAMS, contents(known[name]))
    say(f"params.yaml is now {name}; {replaced}")
    return 0


def _what_is_in_place(known: dict[str, Path]) -> str:
    if not PARAMS.is_file():
        return "there was none before"
    text = PARAMS.read_text()
    for name, path in known.items():
        if contents(path) == text:
            return f"it was {name}"
    try:
        before = params.flatten(params.load(PARAMS))
    except InputError:
        return "it replaced a file that was not valid"
    distance = {
        name: [
            key
            for key, value in params.flatten(params.load(path)).items()
            if before.get(key) != value
        ]
        for name, path in known.items()
    }
    nearest = min(distance, key=lambda name: len(distance[name]))
    changes = ", ".join(f"{key}={before.get(key)}" for key in distance[nearest])
    return (
        f"it replaced {nearest} with {changes}"
        if changes
        else f"it replaced {nearest} in other words"
    )
