"""Errors that the user can mend, and the one place that turns an exception into a line of text."""

import errno
from importlib.util import find_spec
from typing import NamedTuple

# What the user can mend: a full disk, a folder that may not be written, a path that is no folder.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
MOST_CHARACTERS = 300

# extra of pyproject.toml -> the modules that it brings and `pip install .` alone does not
EXTRAS = {
    "pipeline": (
        "dvc",
        "matplotlib",
        "mlflow",
        "pandas",
        "psutil",
        "pyarrow",
        "sklearn",
        "torchvision",
    ),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("openvino",),
    "ray": ("ray",),
    "timm": ("timm",),
    "hf": ("datasets", "transformers"),
}


class InputError(ValueError):
    """What the user gave cannot be used. The message names it, its value, and the remedy.

    Commands and stages print it as one line, without a traceback, and exit with status 2.
    Everything else that is raised is a defect and keeps its traceback.
    """


class Explanation(NamedTuple):
    """One line for the user, and the exit status that goes with it."""

    text: str
    status: int


def explain(error: BaseException) -> Explanation | None:
    """What to tell the user about an exception that ends a command or a stage; None for a defect."""
    if isinstance(error, InputError):
        return Explanation(str(error), 2)
    if isinstance(error, KeyboardInterrupt):
        return Explanation("interrupted; what is finished is kept, run it again to go on", 130)
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name)):
        return Explanation(missing(error.name, extra), 2)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = error.filename or "the disk"
        return Explanation(
            f"{where}: {error.strerror}: make room and run it again; what is finished is kept", 2
        )
    if isinstance(error, OSError) and error.errno in _NO_ACCESS and error.filename is not None:
        return Explanation(
            f"{error.filename}: {error.strerror}: make it writable, or choose another place", 2
        )
    return None


def extra_of(module: str | None) -> str | None:
    """The extra that brings a module which is not installed; None if no extra does."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if package in modules), None)


def is_installed(extra: str) -> bool:
    """Whether all modules that an extra brings are installed."""
    return all(find_spec(module) is not None for module in EXTRAS[extra])


def missing(module: str | None, extra: str) -> str:
    """The line that says how to install a module which an extra brings."""
    return f"this needs {module}, which is not installed: `pip install 'aces[{extra}]'` brings it"


def one_line(error: object) -> str:
    """The first line of an error's text, or of any text, that is not blank. It is cut if it is long;
    an error without a text is named by its class.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:MOST_CHARACTERS]
