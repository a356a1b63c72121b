"""Lines of output: wrapped between words in a terminal, whole everywhere else."""

import io

import pytest
from rich.console import Console

from aces import console

LINE = "  the rule certifies nothing beyond this radius, see /a/very/long/path/that/is/one/word.csv"


@pytest.mark.parametrize(
    ("speak", "name"), [("say", "console"), ("warn", "stderr"), ("fail", "stderr")]
)
@pytest.mark.parametrize("terminal", [True, False])
def test_prose_is_wrapped_between_words_in_a_terminal_only(monkeypatch, speak, name, terminal):
    shown = io.StringIO()
    made = Console(file=shown, force_terminal=terminal, width=30, color_system=None)
    monkeypatch.setattr(console, name, made)
    getattr(console, speak)(LINE)
    lines = shown.getvalue().splitlines()
    assert " ".join(line.strip() for line in lines) == LINE.strip()
    if not terminal:
        assert lines == [LINE]
        return
    assert len(lines) == 3 and all(line.startswith("  ") for line in lines)
    assert lines[-1].strip() == LINE.split()[-1]  # a path stays in one piece
    assert all(len(line) <= 30 for line in lines[:-1])


def test_progress_of_slow_work_is_not_zero_a_second(monkeypatch, capsys):
    now = iter([0.0, 40.0, 80.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    with console.progress("answering", 25_000, "images") as bar:
        bar.advance(12)
        bar.advance(24_988)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("images, ")[2].partition(",")[0] for line in said] == ["0.3/s", "312/s"]
