"""A dataset by a function of the user's: `dataset.name: package.module:function`.

The function gets `dataset.settings`, the mapping in params.yaml, and returns `aces.data.Splits`.
What it raises keeps its traceback: it is the user's own code.
"""

from aces import extension, params
from aces.data.splits import Splits
from aces.errors import InputError


def load(dataset: params.Dataset) -> Splits:
    function = extension.resolve(dataset.name, what="dataset.name")
    splits = function(dict(dataset.settings))
    if not isinstance(splits, Splits):
        raise InputError(
            f"dataset.name={dataset.name!r} returned {type(splits).__name__}: expected "
            "aces.data.Splits (examples/own_dataset.py shows one)"
        )
    return splits
