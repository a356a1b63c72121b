"""`aces scratch`: list or remove the partial work of long stages.

Partial work survives kills and restarts, and stays until it is removed by this command.
"""

import argparse
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from aces import paths
from aces.console import say
from aces.errors import InputError

EXAMPLE = "aces scratch --remove 3f2a"
KINDS = ("sampling", "training")


@dataclass(frozen=True)
class Entry:
    kind: str
    name: str  # sampling: the fingerprint of what the draws depend on
    size: int  # bytes
    age: float  # seconds since it last grew
    about: dict | None  # sampling: the settings
    draws: int | None  # sampling: draws kept
    total: int | None  # sampling: draws of the whole run


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--remove",
        metavar="NAME|all",
        help="remove the entry whose name starts with NAME, or all of them",
    )
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")


def run(args: argparse.Namespace) -> int:
    root = paths.scratch()
    if args.remove is not None:
        removed = [remove(root, entry) for entry in _chosen(root, args.remove)]
        say(f"removed {len(removed)} of {root}, {_bytes(sum(entry.size for entry in removed))}")
    elif args.json:
        print(json.dumps([asdict(entry) for entry in entries(root)], indent=2))
    else:
        _show(root)
    return 0


def entries(root: Path) -> list[Entry]:
    """What is kept under the scratch folder, oldest first."""
    paths = [
        (kind, path)
        for kind in KINDS
        for path in sorted((root / kind).glob("*"))
        if path.suffix != ".lock"
    ]
    return sorted((_entry(kind, path) for kind, path in paths), key=lambda entry: -entry.age)


def remove(root: Path, entry: Entry) -> Entry:
    path = root / entry.kind / entry.name
    lock = path / "lock" if path.is_dir() else path.with_suffix(".lock")
    try:
        with FileLock(lock, timeout=0):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except Timeout:
        raise InputError(f"{path} is in use: end the process that writes it first") from None
    lock.unlink(missing_ok=True)
    return entry


def _entry(kind: str, path: Path) -> Entry:
    files = [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    about = _about(path)
    return Entry(
        kind=kind,
        name=path.name,
        size=sum(file.stat().st_size for file in files),
        age=max(
            0.0,
            time.time()
            - max((file.stat().st_mtime for file in files), default=path.stat().st_mtime),
        ),
        about=about,
        draws=_drawn(path) if about else None,
        total=about["images"] * (about["n0"] + about["n"] + about["n_predict"]) if about else None,
    )


def _about(path: Path) -> dict | None:
    """What the draws in a folder depend on; None where the description is missing or damaged."""
    try:
        about = json.loads((path / "about.json").read_text())
        whole = all(type(about[name]) is int for name in ("images", "n0", "n", "n_predict", "seed"))
        words = all(type(about[name]) is str for name in ("precision", "backend", "model"))
        sigma = about["sigma"]
        return about if whole and words and type(sigma) is float and sigma > 0 else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _drawn(path: Path) -> int | None:
    from aces.sampling.shards import read_keys
    from aces.sampling.units import draws_of

    try:
        return sum(map(draws_of, read_keys(path)))
    except ValueError:  # a record that is no unit of draws, though its checksum is right
        return None


def _chosen(root: Path, name: str) -> list[Entry]:
    found = [entry for entry in entries(root) if name == "all" or entry.name.startswith(name)]
    if name != "all" and len(found) != 1:
        problem = "no entry" if not found else f"{len(found)} entries"
        raise InputError(
            f"--remove {name!r}: {problem} in {root} with that name; `aces scratch` lists them"
        )
    return found


def _show(root: Path) -> None:
    found = entries(root)
    for entry in found:
        size, age = _bytes(entry.size), _span(entry.age)
        say(f"{entry.kind}  {entry.name}  {size}, {age} old{_described(entry)}")
    say(f"{root}: {len(found)} entries, {_bytes(sum(entry.size for entry in found))}")


def _described(entry: Entry) -> str:
    about = entry.about
    if about is None or entry.draws is None or entry.total is None:
        return ""
    return (
        f", {entry.draws / max(entry.total, 1):.0%} of {entry.total:,} draws: "
        f"{about['images']} images, sigma {about['sigma']:g}, n {about['n']:,}, "
        f"seed {about['seed']}, {about.get('score', '?')}, {about['precision']}, "
        f"{about['backend']}, network {about['model'][:8]}"
    )


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _span(seconds: float) -> str:
    for length, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
