"""What a target is, and how its cases are judged."""

import contextlib
import faulthandler
import io
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aces.errors import InputError

# A case that takes longer hangs. Time of the processor, since other programs may keep this one
# waiting; the clock on the wall only for a case that itself waits, as for the other end of a pipe.
CASE_SECONDS = 20
WAITING_SECONDS = 300
MOST_CHARACTERS = 1000  # of a line that is meant for a person
CANARY = "ACES_FUZZ_CANARY"  # names the file that code in a damaged file would write


class WrongError(Exception):
    """An input was accepted that must not be, or gave something else than it holds."""


class Hang(BaseException):
    """A case does not end. No Exception and no OSError, which the code under test may catch."""


def expect(condition: bool, problem: str) -> None:
    """Called on what was accepted."""
    if not condition:
        raise WrongError(problem)


class Target(Protocol):
    """Something that reads what users give."""

    name: str

    def prepare(self, folder: Path) -> None:
        """Make what all cases share, once."""

    def run(self, rng: random.Random, folder: Path) -> str:
        """Make one damaged input and use it.

        Returns `accepted` for an input that is sound after all. Raises InputError for one that is
        refused, and WrongError (by `expect`) for one that was accepted but must not be.
        """


@dataclass
class Report:
    """What became of the cases of a target."""

    name: str
    verdicts: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(self.verdicts.items()))
        return f"{self.name:12} {self.verdicts.total():6,} cases: {verdicts} ({self.seconds:.0f} s)"


def run_target(target: Target, *, seed: int, cases: range, seconds: float = float("inf")) -> Report:
    """Judge the cases with these numbers, or as many as fit into so many seconds, at least one."""
    report = Report(target.name)
    with _workplace() as folder:
        target.prepare(folder)
        start = time.monotonic()
        for number in cases:
            if time.monotonic() - start > seconds:
                break
            verdict, detail = judge(target, seed, number, folder)
            report.verdicts[verdict] += 1
            if verdict not in ("accepted", "refused"):
                failure = f"{target.name}, seed {seed}, case {number}: {detail}"
                report.failures.append(failure)
                print(failure, flush=True)
        report.seconds = time.monotonic() - start
    return report


def judge(target: Target, seed: int, number: int, folder: Path) -> tuple[str, str]:
    """The verdict on one case, and for a failure what happened."""
    rng = random.Random(f"{seed}/{target.name}/{number}")
    canary = folder / "canary"
    os.environ[CANARY] = str(canary)
    case = folder / "case"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir()
    output = io.StringIO()
    try:
        with _limit(CASE_SECONDS, WAITING_SECONDS), contextlib.redirect_stderr(output):
            verdict, detail = target.run(rng, case), ""
    except InputError as error:
        verdict, detail = _judge_line(str(error))
    except WrongError as error:
        verdict, detail = "wrong", f"accepted, but {error}"
    except Hang as error:
        verdict, detail = "hangs", "".join(traceback.format_exception(error)[-6:])
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        verdict, detail = "traceback", "".join(traceback.format_exception(error)[-6:])
    if canary.exists():
        canary.unlink()
        verdict, detail = "executed", "code in the file was run"
    return verdict, detail


def _judge_line(text: str) -> tuple[str, str]:
    """A refusal is one line that a person can read."""
    if "\n" in text.strip() or not text.strip() or len(text) > MOST_CHARACTERS:
        return "unreadable", f"refused by {text[:300]!r}"
    return "refused", ""


@contextlib.contextmanager
def _limit(seconds: float, waiting: float) -> Iterator[None]:
    """A case that hangs is a failure, not the end of the run."""

    def stop(number: int, frame: object) -> None:
        what = "of work" if number == signal.SIGPROF else "on the clock"
        limit = seconds if number == signal.SIGPROF else waiting
        raise Hang(f"no end after {limit:g} s {what}")

    timers = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, stop) for number in timers}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, waiting)
    faulthandler.dump_traceback_later(2 * waiting, exit=True)  # it does not return from a library
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, timer in timers.items():
            signal.setitimer(timer, 0.0)
            signal.signal(number, before[number])


@contextlib.contextmanager
def _workplace() -> Iterator[Path]:
    """A folder that is the working directory and the root of a project."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="aces-fuzz-") as folder:
        (Path(folder) / ".dvc").mkdir()
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
