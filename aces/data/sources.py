"""Where each dataset comes from, by the name in params.yaml."""

import difflib

from aces import extension, params
from aces.data import (
    cifar10,
    digits,
    folder,
    huggingface,
    imagenet,
    npz,
    own,
    torchvision_sets,
)
from aces.data.splits import Splits
from aces.errors import InputError

BUILT_IN = {"cifar10": cifar10.load, "imagenet": imagenet.load, "digits": digits.load}
OF_THE_USER = {"folder": folder.load, "npz": npz.load}
PREFIXES = {torchvision_sets.PREFIX: torchvision_sets.load, huggingface.PREFIX: huggingface.load}


def load(dataset: params.Dataset) -> Splits:
    """The whole dataset."""
    name = dataset.name
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name in OF_THE_USER:
        return OF_THE_USER[name](dataset)
    for prefix, source in PREFIXES.items():
        if name.startswith(prefix):
            return source(dataset)
    if extension.is_reference(name):
        return own.load(dataset)
    known = [*BUILT_IN, *OF_THE_USER]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(
        f"dataset.name={name!r}: expected one of {', '.join(known)}, torchvision/<Name>, hf/<name> "
        f"or package.module:function{hint}"
    )
