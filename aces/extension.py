"""Code of the user's own in place of a built-in name: `package.module:function` in params.yaml."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aces.errors import InputError, one_line
from aces.files import digest_of


def is_reference(name: str) -> bool:
    """Whether a name is `package.module:function` and not a built-in one."""
    module, _, function = name.partition(":")
    return bool(function) and all(part.isidentifier() for part in (*module.split("."), function))


def resolve(name: str, *, what: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; `what` is the key of params.yaml, for
    errors.

    The module is looked for in the working directory first, then where Python finds packages.
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # whatever the user's module does when it is imported
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(
            f"{what}={name!r}: the module {module} cannot be imported ({reason}): expected a "
            "module in this folder or an installed package"
        ) from None
    if not callable(found):
        raise InputError(
            f"{what}={name!r}: {module} has no function {function!r}; check the spelling"
        )
    return found


def source_file(thing: object) -> Path | None:
    """The file that a function or class comes from; None if it comes from none."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(thing))  # type: ignore[arg-type]
    except (TypeError, OSError):
        return None
    return Path(file) if file is not None and Path(file).is_file() else None


def source_digest(*things: object) -> str | None:
    """sha256 of the files that functions or classes come from; None if one of them comes from none."""
    files = [source_file(thing) for thing in things]
    if any(file is None for file in files):
        return None
    return digest_of(*(file.read_bytes() for file in sorted(set(filter(None, files)))))


def check_watched(name: str, *, code: str, what: str) -> None:
    """InputError if a function lies in this project and DVC does not watch its file.

    code: the file or folder that params.yaml names beside it and that dvc.yaml depends on. The
    module is located without importing it.
    """
    if not is_reference(name):
        return
    file = _file_of(name.partition(":")[0])
    here = Path.cwd().resolve()
    if file is None or not file.is_relative_to(here):
        return  # an installed package: its source is part of every fingerprint all the same
    watched = (here / code).resolve()
    if not file.is_relative_to(watched):
        section = what.partition(".")[0]
        raise InputError(
            f"{what}={name!r} is in {file.relative_to(here)}: set {section}.code to that file, or to "
            "its folder, so that DVC runs again what depends on it"
        )


def _file_of(module: str) -> Path | None:
    """The file of a module, without importing it."""
    path = Path.cwd().joinpath(*module.split("."))
    local = (path.with_suffix(".py"), path / "__init__.py")
    return next((file.resolve() for file in local if file.is_file()), None)
