"""What the sections of params.yaml have in common.

Every key has a default, so a file may leave out what it does not change, and a new key breaks no
old file. Constraints on one key stand with the key; constraints between keys are validators. A
validator's message begins with the name of the key, without the section it is in: `reading` adds
it.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

NONE = "checkpoints/none"  # an empty file: in dvc.yaml it stands for "no such file"

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A frozen section without unknown keys. Text is not read as a number, nor true as 1."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def replace(self, **changes: Any) -> Self:
        """The same section with other values, validated."""
        return type(self)(**{**dict(self), **changes})


def must(condition: bool, key: str, value: object, expected: str) -> None:
    if not condition:
        raise ValueError(f"{key}={value!r}: expected {expected}")


def choices(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}, or package.module:function"


def is_ascending(values: list) -> bool:
    return values == sorted(set(values))
