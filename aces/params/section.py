"""What the sections of params.yaml have in common.

Every key has a default, so that a new key does not invalidate older files. (DVC knows no defaults:
the keys that dvc.yaml names must stand in the file, which `aces doctor` checks.) Constraints on one
key stand with the key; constraints between keys are validators. The message of a validator begins
with the name of the key, and `reading` puts the name of its section before it.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

NONE = "checkpoints/none"  # an empty file, since DVC needs a path: it stands for "no such file"

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
MOST_DRAWS = 2**31  # below this: the sampler's counters and the files of counts have 32 bits
Draws = Annotated[int, Field(gt=0, lt=MOST_DRAWS)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A frozen section that refuses unknown keys. Types are strict: text is no number, true is not 1."""

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
