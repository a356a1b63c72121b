"""Damaged input of every kind is read rightly or refused in one line: the short version.

`make fuzz` runs ten thousand cases. Here each target gets a few, and stops after some seconds on a
slow machine; the first case is always run.
"""

import time

import pytest

from fuzz import engine
from fuzz.engine import run_target
from fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

SEED = 20
CASES = 120
SECONDS = 4.0  # for each target


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_rightly_or_refused_in_one_line(name):
    report = run_target(TARGETS[name](), seed=SEED, cases=range(CASES), seconds=SECONDS)
    assert not report.failures, "\n".join(report.failures)
    assert report.verdicts.total() > 0


def test_the_judge_notices_what_is_wrong(tmp_path):
    class Bad:
        name = "bad"

        def prepare(self, folder):
            pass

        def run(self, rng, folder):
            from aces.errors import InputError
            from fuzz.damage import Malicious
            from fuzz.engine import expect

            kind = rng.randrange(4)
            if kind == 0:
                raise InputError("two\nlines")
            if kind == 1:
                raise KeyError("a defect")
            if kind == 2:
                import pickle

                pickle.loads(pickle.dumps(Malicious()))
            expect(kind == 2, "not consistent")
            return "accepted"

    report = run_target(Bad(), seed=0, cases=range(40))
    assert set(report.verdicts) == {"unreadable", "traceback", "executed", "wrong"}
    assert len(report.failures) == 40


@pytest.mark.parametrize(
    "case, verdict", [("works", "hangs"), ("waits", "hangs"), ("is kept waiting", "accepted")]
)
def test_a_case_hangs_by_its_own_time_not_by_that_of_others(monkeypatch, case, verdict):
    """On a busy machine, ten sound cases of 2,800 once took more than 20 s on the clock."""
    monkeypatch.setattr(engine, "CASE_SECONDS", 0.2)
    monkeypatch.setattr(engine, "WAITING_SECONDS", 1.0 if case == "waits" else 60.0)

    class Slow:
        name = "slow"

        def prepare(self, folder):
            pass

        def run(self, rng, folder):
            try:
                while case == "works":
                    pass
                time.sleep(30.0 if case == "waits" else 0.5)
            except OSError:
                pass  # as code that reads a file; the judge is not deceived
            return "accepted"

    report = run_target(Slow(), seed=0, cases=range(1))
    assert set(report.verdicts) == {verdict}
