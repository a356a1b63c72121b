"""Read params.yaml, and say in one line what is wrong with it: the key, the value, what was
expected.
"""

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from aces.errors import InputError, one_line
from aces.params.file import Params
from aces.yaml_text import parse_yaml

MOST_BYTES = 1_000_000
RENAMED = {"mechanism": "score"}  # old key -> what it is called now


def load(path: str | Path = "params.yaml") -> Params:
    """Read and validate a parameter file."""
    path = Path(path)
    try:
        text = _read(path)
        return parse(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse(text: str) -> Params:
    """Validate the text of a parameter file."""
    tree = parse_yaml(text)
    try:
        return Params.model_validate({} if tree is None else tree)
    except ValidationError as error:
        raise InputError(_complaint(error.errors(), tree)) from None


def flatten(params: BaseModel) -> dict[str, object]:
    """`{"sample.n": 2000, ...}`, the form that MLflow logs."""
    return dict(_leaves("", params.model_dump()))


def _read(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path.stat().st_size:,} bytes: expected a parameter file")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("it does not exist: `aces profile use laptop` writes one") from None
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"it cannot be read ({error.strerror})") from None


def _leaves(prefix: str, node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), value)
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        for number, value in enumerate(node):
            yield from _leaves(f"{prefix}.{number}", value)
    else:
        yield prefix, node


# pydantic's name of an error -> what was expected
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys and values",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "one of {expected}",
}


def _complaint(errors: list[ErrorDetails], tree: Any) -> str:
    """The first problem of the file, as one line.

    pydantic reports a value that may be a word or a list twice: as no word, and as no list.
    """
    first, *others = errors
    same = [other for other in others if _path(other["loc"], tree) == _path(first["loc"], tree)]
    if first["type"] == "literal_error" and any(it["type"] == "list_type" for it in same):
        where = ".".join(map(str, _path(first["loc"], tree)))
        word = _plain(first["ctx"])["expected"]
        return f"{where}={_shown(first['input'])}: expected {word}, or a list of numbers"
    if first["type"] == "literal_error" and others:
        first = max(others, key=lambda other: len(_path(other["loc"], tree)))
    return _message(first, tree)


def _message(error: ErrorDetails, tree: Any) -> str:
    where = _path(error["loc"], tree)
    name, value = ".".join(map(str, where)), error["input"]
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":  # from a validator of a section
        # A validator of one key names it again.
        section = where[:-1] if where and _names_itself(str(context["error"]), where[-1]) else where
        return ".".join([*map(str, section), str(context["error"])])
    if kind == "extra_forbidden":
        return _unknown(where)
    if kind == "missing":
        return f"missing key {where[-1]!r} in {'.'.join(map(str, where[:-1]))}: add it"
    if kind in ("model_type", "model_attributes_type"):
        expected = f"the keys {', '.join(_section(where).model_fields)}"
    else:
        expected = _EXPECTED.get(kind, one_line(error["msg"]).lower()).format(**_plain(context))
    if kind == "float_type" and isinstance(value, str):
        expected += " (YAML reads 1e-3 as text: write 0.001 or 1.0e-3)"
    return f"{name or 'the file'}={_shown(value)}: expected {expected}"


def _path(loc: tuple[int | str, ...], tree: Any) -> tuple[int | str, ...]:
    """The keys that lead to an error in the file. pydantic's own list of them also names the branch
    of a union, which is no key.
    """
    found: list[int | str] = []
    for number, part in enumerate(loc):
        last = number == len(loc) - 1
        inside = isinstance(tree, dict) and part in tree
        inside = inside or (isinstance(tree, list) and isinstance(part, int) and part < len(tree))
        if inside:
            tree = tree[part]
            found.append(part)
        elif last and isinstance(tree, dict):
            found.append(part)  # a key that is missing
    return tuple(found)


def _names_itself(text: str, key: object) -> bool:
    return text.startswith(f"{key}=")


def _unknown(where: tuple[int | str, ...]) -> str:
    *above, key = where
    known = list(_section(tuple(above)).model_fields)
    if str(key) in RENAMED and RENAMED[str(key)] in known:
        hint = f"it is called {RENAMED[str(key)]} now"
    else:
        close = difflib.get_close_matches(str(key), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(known)}"
    place = f" in {'.'.join(map(str, above))}" if above else ""
    return f"unknown key {key!r}{place}: {hint}"


def _section(where: tuple[int | str, ...]) -> type[BaseModel]:
    """The class of the section at this place of the file."""
    kind: type[BaseModel] = Params
    for part in where:
        if isinstance(part, str):
            annotation = kind.model_fields[part].annotation
            inner = [annotation, *getattr(annotation, "__args__", ())]
            kind = next(it for it in inner if isinstance(it, type) and issubclass(it, BaseModel))
    return kind


def _plain(context: dict) -> dict:
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value).replace("'", "")
        for name, value in context.items()
    }


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def schema() -> str:
    """The JSON schema of params.yaml, by which editors complete and check it."""
    return json.dumps(Params.model_json_schema(), indent=2) + "\n"
