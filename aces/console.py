"""What a person sees in the terminal: progress with rate and ETA, plain lines where there is no
terminal.

Progress goes to the standard error, so that the standard output holds results alone.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

PLAIN_SECONDS = 15  # between two plain lines


class _Bar:
    def __init__(self, progress: Progress, task, unit: str):
        self._progress, self._task, self._unit = progress, task, unit

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._progress.advance(self._task, steps)
        speed = self._progress.tasks[self._task].speed
        rate = f"{speed:,.0f} {self._unit}/s" if speed else ""
        self._progress.update(self._task, note=f"{rate}  {note}".strip())

    def skip(self, steps: int) -> None:
        """So many steps need not be made: they count for neither the rate nor the total."""
        self._progress.update(self._task, total=self._progress.tasks[self._task].total - steps)


class _Lines:
    def __init__(self, title: str, total: int, unit: str):
        self._title, self._total, self._unit = title, total, unit
        self._done, self._start = 0, time.monotonic()
        self._spoke = self._start

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._spoke >= PLAIN_SECONDS or self._done >= self._total:
            self._spoke = now
            rate = self._done / max(now - self._start, 1e-9)
            left = (self._total - self._done) / max(rate, 1e-9)
            print(
                f"{self._title}: {self._done:,} of {self._total:,} {self._unit}, {rate:,.0f}/s, "
                f"{left:,.0f} s left  {note}".rstrip(),
                file=sys.stderr,
                flush=True,
            )

    def skip(self, steps: int) -> None:
        self._total -= steps


@contextmanager
def progress(title: str, total: int, unit: str) -> Iterator[_Bar | _Lines]:
    """`with progress("sampling", total, "draws") as bar: bar.advance(1000, note="loss 0.3")`"""
    if not sys.stderr.isatty():
        yield _Lines(title, total, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=errors) as bars:
        yield _Bar(bars, bars.add_task(title, total=total, note=""), unit)
