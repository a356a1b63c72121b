"""Puts into a page what is never out of date because it is made here: the text of `aces COMMAND
--help` for `<!-- help: COMMAND -->`, and a list of all modules for `<!-- modules -->`.
"""

import ast
import contextlib
import io
import os
import re
import unittest.mock
from pathlib import Path

HELP = re.compile(r"<!-- help: ([a-z]*) -->")
MODULES = "<!-- modules -->"
LIBRARY = Path(__file__).parent.parent / "aces"


def on_page_markdown(markdown: str, **_) -> str:
    if MODULES in markdown:
        markdown = markdown.replace(MODULES, modules())
    return HELP.sub(lambda match: f"```text\n{help_of(match[1])}\n```", markdown)


def help_of(command: str) -> str:
    from aces import cli

    text = io.StringIO()
    with (
        unittest.mock.patch.dict(os.environ, COLUMNS="100", NO_COLOR="1"),
        contextlib.redirect_stdout(text),
    ):
        with contextlib.suppress(SystemExit):
            cli.main([command, "--help"] if command else ["--help"])
    return text.getvalue().strip()


def modules() -> str:
    """One table per room: each module, and the first paragraph of its docstring."""
    rooms = [LIBRARY, *sorted(path.parent for path in LIBRARY.glob("*/__init__.py"))]
    return "\n\n".join(map(_table, rooms))


def _table(room: Path) -> str:
    name = "The last row, and the command line" if room == LIBRARY else f"`{room.name}`"
    rows = [
        f"| `{path.stem}` | {_purpose(path)} |"
        for path in sorted(room.glob("*.py"))
        if path.stem != "__init__"
    ]
    head = [f"### {name}", "", _purpose(room / "__init__.py"), "", "| module | |", "|---|---|"]
    return "\n".join([*head, *rows])


def _purpose(path: Path) -> str:
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(words.partition("\n\n")[0].split()).replace("|", r"\|").replace("<", "&lt;")
