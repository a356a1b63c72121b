"""The files of results/: numbers may only come from files that agree with each other."""

import contextlib
import json
import math
import random
import shutil
from pathlib import Path

from aces import paths
from aces.reporting import results
from aces.reporting.results import Results

from .damage import ODD_NUMBERS, ODD_TEXTS, damaged_bytes
from .engine import expect
from .parameters import _places

ROOT = Path(__file__).parent.parent.parent
FILES = (*results.SHOWN, paths.RESULTS_MANIFEST)
CELLS = ("", "nan", "inf", "-1", "2", "1e309", "high", "<b>", "0x1", "True", "1,5", '"', "0.5")


class ResultFiles:
    name = "results"

    def prepare(self, folder: Path) -> None:
        from test_results import write_results

        self._sound = folder / "sound"
        with contextlib.chdir(ROOT):  # where the profiles are
            write_results(self._sound)
        with contextlib.chdir(self._sound):
            results.record()
        self._content = {path: (self._sound / path).read_bytes() for path in FILES}

    def run(self, rng: random.Random, folder: Path) -> str:
        project = folder / "project"
        shutil.copytree(self._sound, project)
        if rng.random() < 0.7:  # without a manifest only the numbers can tell
            (project / paths.RESULTS_MANIFEST).unlink()
        for _ in range(rng.choice((1, 1, 2))):
            _damage(project / rng.choice(FILES), rng)
        found = results.read_project(project)
        manifest = project / paths.RESULTS_MANIFEST
        if manifest.exists():
            same = all((project / it).read_bytes() == self._content[it] for it in results.SHOWN)
            expect(same, "a file is not the one that the manifest names")
        problem = inconsistency(found)
        expect(problem is None, str(problem))
        return "accepted"


def _damage(path: Path, rng: random.Random) -> None:
    if not path.exists():
        return
    kind = rng.randrange(4)
    if kind == 0:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
    elif kind == 1 and path.name not in (paths.CURVE.name, paths.SUMMARY.name):
        path.unlink()
    elif path.suffix == ".csv":
        _damage_table(path, rng)
    else:
        _damage_object(path, rng)


def _damage_table(path: Path, rng: random.Random) -> None:
    """Cells, columns and rows changed, lost, doubled or in another order."""
    rows = [line.split(",") for line in path.read_text(errors="replace").splitlines()]
    if not rows:
        return
    row = rng.choice(rows)
    kind = rng.randrange(4)
    if kind <= 1:
        row[rng.randrange(len(row))] = rng.choice(CELLS)
    elif kind == 2:
        rows.insert(rng.randrange(len(rows)), row)
    else:
        rng.shuffle(rows)
    path.write_text("\n".join(map(",".join, rows)) + "\n")


def _damage_object(path: Path, rng: random.Random) -> None:
    try:
        tree = json.loads(path.read_text(errors="replace"))
        parent, key = rng.choice(_places(tree))
    except (ValueError, LookupError):  # it was damaged before
        return
    if rng.random() < 0.2:
        del parent[key]
    else:
        parent[key] = rng.choice((*ODD_NUMBERS, *ODD_TEXTS, None, True, [], {}, [1], 0.3))
    path.write_text(json.dumps(tree))


def inconsistency(found: Results) -> str | None:
    """The naive twin of the reader: every number by hand. None where all agrees."""
    rows = found.curve.to_dict("records")
    if [row["theta"] for row in rows] != sorted({row["theta"] for row in rows}):
        return "thetas that do not ascend"
    tables = [rows] if found.comparison is None else [rows, found.comparison.to_dict("records")]
    for row in (row for table in tables for row in table):
        for name, value in row.items():
            if name in ("series", "sigma") or (name == "theta" and row.get("series") == "sigma"):
                continue
            if not (_is_number(value) and 0 <= value and (value <= 1 or name == "acr")):
                return f"{name} = {value!r}"
    summary = found.summary
    for value in (summary["acr_ceiling"], summary["core"]["nac"], summary["certify"]["nac"]):
        if not _is_number(value):
            return f"{value!r} in the summary"
    if summary.get("theta") is not None:
        (row,) = [row for row in rows if math.isclose(row["theta"], summary["theta"], abs_tol=1e-9)]
        for name in ("nac", "acr"):
            if name in summary and not math.isclose(row[name], summary[name], abs_tol=1e-9):
                return f"another {name} than the curve's"
    calibration = found.calibration or {}
    return None if _is_number(calibration.get("theta", 0.0)) else "the calibration's theta"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and value is not True and math.isfinite(value)
