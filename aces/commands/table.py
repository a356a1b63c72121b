"""A CSV table of answers that survives a kill: rows are added as they come, a restart goes on.

The table also is the memory of the run. Its rows say with which settings they were made, and of
which files; a restart with other settings is refused, one with the same settings repeats their seed,
and a file that has changed is answered anew. So a run that was killed and started again writes the
same bytes as one that was not.
"""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aces.errors import InputError, one_line
from aces.files import write_text

MOST_DIGITS = 40  # of a seed
# What every row of a table has in common.
SETTINGS = (
    "model",
    "sigma",
    "theta",
    "rule",
    "alpha",
    "noise",
    "precision",
    "n0",
    "n",
    "asked",
    "adaptive",
    "seed",
)


class AnswerTable:
    """The rows of a CSV file, by the name of the image."""

    def __init__(self, path: Path, columns: Sequence[str]):
        self.path, self.columns = path, list(columns)
        self.rows = self._read()

    @property
    def seed(self) -> int | None:
        """The seed of the rows that are there."""
        found = next((row["seed"] for row in self.rows.values() if row["seed"]), None)
        if found is not None and not (found.isdecimal() and len(found) <= MOST_DIGITS):
            raise InputError(
                f"{self.path} has a row of seed={found[:40]}: expected a whole number; remove the "
                "row, or choose another file"
            )
        return None if found is None else int(found)

    def check(self, settings: dict[str, Any]) -> None:
        """InputError unless the rows were made with these settings."""
        for row in self.rows.values():
            for name in SETTINGS:
                if row[name] != _cell(settings[name]):
                    raise InputError(
                        f"{self.path} has rows of {name}={row[name]}, now it is "
                        f"{_cell(settings[name])}: choose another file, or remove this one"
                    )

    def begin(self, digests: Mapping[str, str]) -> list[str]:
        """Keep the rows of these files, in their order; the files that have none yet, or whose
        content was another one. digests: sha256 by file.
        """
        kept = {file: row for file, row in self.rows.items() if row["sha256"] == digests.get(file)}
        self.rows = {file: kept[file] for file in digests if file in kept}
        self._write(self.rows.values())
        return [file for file in digests if file not in kept]

    def add(self, row: dict[str, Any]) -> None:
        """Append a row, so that it is on the disk when this returns."""
        made = {name: _cell(row.get(name)) for name in self.columns}
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            file.write(self._text([made]))
            file.flush()
            os.fsync(file.fileno())
        self.rows[made["image"]] = made

    def finish(self, files: Sequence[str]) -> None:
        """Put the rows into the order of the files."""
        ordered = [file for file in files if file in self.rows]
        if ordered != list(self.rows):
            self.rows = {file: self.rows[file] for file in ordered}
            self._write(self.rows.values())

    def _text(self, rows: Iterable[dict[str, str]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def _write(self, rows: Iterable[dict[str, str]]) -> None:
        write_text(self.path, ",".join(self.columns) + "\n" + self._text(rows))

    def _read(self) -> dict[str, dict[str, str]]:
        """The complete rows of the file that have an answer: files in error are tried again."""
        try:
            text = self.path.read_text(encoding="utf-8")
            complete = text[: text.rfind("\n") + 1]  # a kill may have left half a row
            lines = list(csv.reader(io.StringIO(complete)))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(
                f"{self.path} cannot be read as a table ({one_line(error)}): choose another file"
            ) from None
        if lines and lines[0] != self.columns:
            raise InputError(
                f"{self.path} is not a table of this command: choose another file, or remove this "
                "one"
            )
        rows = [
            dict(zip(self.columns, line, strict=True))
            for line in lines[1:]
            if len(line) == len(self.columns)
        ]
        return {row["image"]: row for row in rows if not row["error"]}


def _cell(value: Any) -> str:
    """A value as text that gives the same value back."""
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
