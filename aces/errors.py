"""The one exception that speaks to the user."""

import errno

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class InputError(ValueError):
    """What the user gave cannot be used; the message names it, its value, and the remedy.

    Commands and stages print it as one line, without a traceback, and exit with status 2.
    Everything else that is raised is a defect and keeps its traceback.
    """


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
