"""Puts the text of `aces COMMAND --help` where a page says `<!-- help: COMMAND -->`, so that it is
never out of date.
"""

import contextlib
import io
import os
import re
import unittest.mock

MARK = re.compile(r"<!-- help: ([a-z]*) -->")


def on_page_markdown(markdown: str, **_) -> str:
    return MARK.sub(lambda match: f"```text\n{help_of(match[1])}\n```", markdown)


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
