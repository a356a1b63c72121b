"""Files with weights, read without running anything in them and without trusting what they claim.

Pickles are read with `weights_only=True` alone, so a file that holds anything but tensors and plain
values is refused before any of it runs. Sizes are checked against the size of the file before
memory is taken. Every kind of damage becomes one line.
"""

import json
import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from aces.errors import InputError, one_line

MOST_EXPANSION = 8  # torch does not compress; weights that someone zipped shrink by far less
COUNTER = "num_batches_tracked"  # of batch norm: whole numbers, absent in old files, not used here
OWN_HEADER = "aces"  # the entry of a safetensors header that holds all of ours
# What training scripts save beside the weights: options, counts, lists of what was pruned. A
# placeholder that does nothing stands for each, so that nothing of them is built.
BOOKKEEPING = (
    "argparse.Namespace",
    "distiller.thinning.ThinningRecipe",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",  # its name in files that Python 3.13 writes
    "pathlib.WindowsPath",
    "pathlib._local.WindowsPath",
    "numpy.dtype",
    "numpy.ndarray",
    *(
        f"numpy.{core}.multiarray.{name}"
        for core in ("core", "_core")
        for name in ("scalar", "_reconstruct")
    ),
    "_codecs.encode",  # the bytes of such a number
)
# PyTorch Lightning's hyperparameters; they are read as plain dictionaries.
DICTIONARIES = (
    "lightning_fabric.utilities.data.AttributeDict",
    "lightning.fabric.utilities.data.AttributeDict",
    "pytorch_lightning.utilities.parsing.AttributeDict",
)


class Placeholder:
    """Stands for a value that is no weight; nothing of it is kept."""

    def __new__(cls, *args: object, **options: object) -> "Placeholder":
        return super().__new__(cls)

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def read_tree(path: Path) -> Any:
    """The content of a file that `torch.save` wrote: tensors in dictionaries and lists."""
    check_sizes(path)
    harmless: list[Any] = [(Placeholder, name) for name in BOOKKEEPING]
    harmless += [(dict, name) for name in DICTIONARIES]
    try:
        with torch.serialization.safe_globals(harmless):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reasons = [line.strip() for line in str(error).splitlines() if "nsupported" in line]
        raise InputError(
            f"checkpoint {path} is refused, since it holds more than tensors; nothing of it was "
            f"run ({one_line(reasons[0]) if reasons else 'not a pickle of tensors'}): where you "
            "trust it, save its state dict alone, `torch.save(model.state_dict(), ...)`"
        ) from None
    except (Exception, MemoryError) as error:  # each kind of damage raises another exception
        raise InputError(
            f"checkpoint {path} is damaged or truncated ({one_line(error)}): get it again"
        ) from None


def check_sizes(path: Path) -> None:
    """Refuse an archive that would unpack to far more than it is, before anything is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        return  # torch's older format, which is not an archive; torch judges it
    except Exception as error:
        raise InputError(
            f"checkpoint {path} is damaged or truncated ({one_line(error)}): get it again"
        ) from None
    size = path.stat().st_size
    if claimed > MOST_EXPANSION * size:
        raise InputError(
            f"checkpoint {path} is refused: its {size:,} bytes would unpack to {claimed:,}; files "
            "of weights do not shrink like that"
        )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. The library checks the header against the file's size."""
    with _as_one_line(path):
        return safetensors.torch.load_file(path)


def read_own_header(path: Path) -> dict[str, str] | None:
    """What `save_model` noted in a safetensors file; None for a file of another project."""
    with _as_one_line(path), safetensors.safe_open(path, framework="pt") as file:
        header = (file.metadata() or {}).get(OWN_HEADER)
    if header is None:
        return None
    try:
        found = json.loads(header)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"{path} has a damaged header: train or import the network again")
    return found


def recipe_of(header: Mapping[str, str], path: Path) -> dict[str, Any]:
    """The arguments of `build` in a header; InputError where one is missing or makes no sense."""
    try:
        recipe: dict[str, Any] = {
            "arch": header["arch"],
            "num_classes": int(header["num_classes"]),
            "mean": [float(value) for value in json.loads(header["mean"])],
            "std": [float(value) for value in json.loads(header["std"])],
        }
        if "options" in header:
            recipe["options"] = dict(json.loads(header["options"]))
        mean, std = recipe["mean"], recipe["std"]
        sound = (
            2 <= recipe["num_classes"] <= 10**6
            and 0 < len(mean) == len(std) <= 64
            and all(map(math.isfinite, (*mean, *std)))
            and min(std) > 0
        )
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError):
        sound = False
    if not sound:
        raise InputError(
            f"{path} has a damaged header (arch, num_classes, mean or std): train or import the "
            "network again"
        )
    return recipe


@contextmanager
def _as_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist: run `dvc repro`, or `aces import` a checkpoint"
        ) from None
    except (Exception, MemoryError) as error:  # each kind of damage raises another exception
        raise InputError(
            f"{path} is not a safetensors file, or is damaged or truncated ({one_line(error)}): "
            "get it again, or convert another kind of file with `aces import`"
        ) from None


def is_safetensors(path: Path) -> bool:
    """Whether the file begins like safetensors: eight bytes of length, then JSON."""
    with path.open("rb") as file:
        start = file.read(9)
    return path.suffix == ".safetensors" or (len(start) == 9 and start[8:] == b"{")


def checked_tensors(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors, real ones as float32; InputError for what is no weight.

    A network computes something with NaN, or with complex numbers cast to real ones, but not what
    its author trained. Integers are left: `check_kinds` knows where a network has some.
    """
    size, total = path.stat().st_size, 0
    found = {}
    for name, tensor in state.items():
        total += tensor.numel() * tensor.element_size()
        problem = _problem(tensor)
        if problem is None and total > MOST_EXPANSION * size:
            problem = f"has {tensor.numel():,} values, more than a file of {size:,} bytes holds"
        if problem is None:
            found[name] = tensor.detach().float() if tensor.is_floating_point() else tensor.detach()
            if not found[name].isfinite().all():  # also float64 beyond the range of float32
                problem = "has values that are NaN or infinite in float32"
        if problem is not None:
            raise _no_weight(path, name, problem)
    return found


def check_kinds(expected: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    """InputError where the file has integers for a network's real numbers, or the reverse."""
    for name, tensor in given.items():
        if name in expected and not name.endswith(COUNTER):
            real = expected[name].is_floating_point()
            if tensor.is_floating_point() != real:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise _no_weight(
                    path, name, f"holds {'integers' if real else 'no integers'} ({kind})"
                )


def _problem(tensor: Tensor) -> str | None:
    """Why this is no tensor of weights, if it is none."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
        return f"is a {type(tensor).__name__} of layout {tensor.layout}"
    if tensor.is_quantized:
        return "is quantized"
    if tensor.device.type != "cpu":
        return f"has no values (device {tensor.device.type})"
    if tensor.is_complex():
        return f"is complex ({str(tensor.dtype).removeprefix('torch.')})"
    return None


def _no_weight(path: Path, name: str, problem: str) -> InputError:
    return InputError(
        f"checkpoint {path}: the tensor {name} {problem}: expected finite real weights; get the "
        "file again, or save the state dict of the trained network"
    )
