"""What a person sees in the terminal: lines, warnings, and progress with its rate and remaining
time.

Results go to the standard output. Warnings, errors and progress go to the standard error, so that
the output of a command can be piped.
"""

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)

PLAIN_SECONDS = 15  # between two lines of progress in a log, where there is no terminal


def say(text: str) -> None:
    """A line of output, taken literally."""
    _print(console, text)


def warn(text: str) -> None:
    """A line that the user should not miss; the work goes on."""
    _print(stderr, text, style="yellow")


def fail(text: str) -> None:
    """The line that says why a command or a stage ends."""
    _print(stderr, text, style="red")


def _print(where: Console, text: str, *, style: str | None = None) -> None:
    """A terminal gets the line wrapped between words, a pipe or a log as one line. A word longer
    than the terminal, such as a path, is never broken, so that it can be copied.
    """
    if where.is_terminal:
        text = "\n".join(_wrapped(line, where.width) for line in text.split("\n"))
    where.print(text, style=style, markup=False, soft_wrap=True)


def _wrapped(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"  # 0.3 images a second are not 0


class _Bar:
    """A progress bar in a terminal."""

    def __init__(self, progress: Progress, task: TaskID, unit: str):
        self._progress, self._task, self._unit = progress, task, unit

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._progress.advance(self._task, steps)
        speed = self._progress.tasks[self._task].speed
        rate = f"{_rate(speed)} {self._unit}/s" if speed else ""
        self._progress.update(self._task, note=f"{rate}  {note}".strip())

    def skip(self, steps: int) -> None:
        """These steps turned out to be unnecessary: they count for neither the rate nor the total."""
        total = self._progress.tasks[self._task].total or 0
        self._progress.update(self._task, total=total - steps)


class _Lines:
    """Progress as plain lines, in a log."""

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
            line = (
                f"{self._title}: {self._done:,} of {self._total:,} {self._unit}, {_rate(rate)}/s, "
                f"{left:,.0f} s left  {note}"
            )
            print(line.rstrip(), file=sys.stderr, flush=True)

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
    with Progress(*columns, console=stderr) as bars:
        yield _Bar(bars, bars.add_task(title, total=total, note=""), unit)
