"""Datasets of torchvision: `dataset.name: torchvision/<Name>`, such as FashionMNIST or GTSRB.

They are kept in `<datasets>/torchvision`, in torchvision's own layout, and downloaded if they are
not there. The files of MNIST and its relatives may also lie in `dataset.path` or where Debian's
package puts them. `dataset.settings` are further arguments of torchvision's class.
"""

import contextlib
import gzip
import inspect
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aces import params, paths
from aces.console import say
from aces.data import places
from aces.data.collect import collect
from aces.data.options import path_of
from aces.data.splits import Part, Splits, divide
from aces.errors import InputError, one_line
from aces.files import atomic

PREFIX = "torchvision/"
DEBIAN = Path("/usr/share/datasets")  # of packages such as dataset-fashion-mnist
STALL_SECONDS = 30  # for a download to go on

# Which arguments choose the training and the test images; by default `train` or `split` does.
SPLITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FGVCAircraft": ({"split": "trainval"}, {"split": "test"}),
    "OxfordIIITPet": ({"split": "trainval"}, {"split": "test"}),
    "Imagenette": ({"split": "train"}, {"split": "val"}),
    "Places365": ({"split": "train-standard"}, {"split": "val"}),
    "EMNIST": ({"train": True}, {"train": False}),
}
DEFAULTS: dict[str, dict[str, Any]] = {"EMNIST": {"split": "balanced"}}
# A mirror image has another class, or none: letters, digits, traffic signs.
UNMIRRORED = ("MNIST", "EMNIST", "KMNIST", "QMNIST", "USPS", "SVHN", "GTSRB", "SEMEION")


def load(dataset: params.Dataset) -> Splits:
    name = dataset.name.removeprefix(PREFIX)
    kind = _class(name, dataset)
    settings = DEFAULTS.get(name, {}) | dataset.settings
    seed = settings.pop("seed", 0) if "seed" not in inspect.signature(kind).parameters else 0
    chosen = _split_arguments(name, kind)
    root = _root(name, kind, dataset)
    found = [_open(kind, root, dataset, settings | arguments) for arguments in chosen]
    parts = [
        _part(data, dataset, root / "exported" / name / str(number))
        for number, data in enumerate(found)
    ]
    classes = _class_names(found[0], parts)
    if len(parts) == 1:
        parts = list(divide(parts[0], classes, share=dataset.split, seed=seed))
    mirror = False if name in UNMIRRORED else None
    train, test = parts
    return Splits(train, test, classes, mirror=mirror, root=places.describe(root))


def _class(name: str, dataset: params.Dataset) -> type:
    from aces.vision import torchvision

    found = getattr(torchvision.datasets, name, None)
    if not inspect.isclass(found):
        import difflib

        close = difflib.get_close_matches(name, torchvision.datasets.__all__, n=3)
        hint = f": did you mean {PREFIX}{f' or {PREFIX}'.join(close)}?" if close else ""
        raise InputError(f"dataset.name={dataset.name!r} is no dataset of torchvision{hint}")
    return found


def _split_arguments(name: str, kind: type) -> tuple[dict[str, Any], ...]:
    """Arguments for training and test images; one set of them where torchvision has no split."""
    if name in SPLITS:
        return SPLITS[name]
    arguments = inspect.signature(kind).parameters
    if "train" in arguments:
        return {"train": True}, {"train": False}
    if "split" in arguments:
        return {"split": "train"}, {"split": "test"}
    return ({},)


def _root(name: str, kind: type, dataset: params.Dataset) -> Path:
    """The folder that torchvision looks in."""
    root = paths.datasets() / "torchvision"
    given = path_of(dataset) if dataset.path is not None else None
    if hasattr(kind, "resources"):
        kebab = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()  # fashion-mnist
        own = [given] if given is not None else []
        _adopt(name, kind, root, (*own, paths.datasets() / name, DEBIAN / kebab))
        return root
    return given or root


def _adopt(name: str, kind: Any, root: Path, folders: tuple[Path, ...]) -> None:
    """Unpack files of the idx format from one of these folders to where torchvision looks."""
    files = [Path(resource[0]).name.removesuffix(".gz") for resource in _resources(kind)]
    raw = root / name / "raw"
    if all((raw / file).is_file() for file in files):
        return
    for folder in folders:
        sources = [found for file in files if (found := _packed_or_not(folder / file)) is not None]
        if files and len(sources) == len(files):
            for source, file in zip(sources, files, strict=True):
                _unpack(source, raw / file)
            say(f"{name} is from {folder}, and kept in {raw}")
            return


def _resources(kind: Any) -> list[tuple[str, ...]]:
    resources = kind.resources
    return resources if isinstance(resources, list) else []  # of QMNIST and others a mapping


def _packed_or_not(path: Path) -> Path | None:
    packed = path.with_name(f"{path.name}.gz")
    return next((file for file in (path, packed) if file.is_file()), None)


def _unpack(source: Path, target: Path) -> None:
    opener = gzip.open if source.suffix == ".gz" else open
    try:
        with atomic(target) as temporary, opener(source, "rb") as file, temporary.open("wb") as out:
            shutil.copyfileobj(file, out)
    except (OSError, EOFError) as error:
        raise InputError(f"{source} cannot be unpacked ({one_line(error)}): get it again") from None


def _open(kind: Any, root: Path, dataset: params.Dataset, arguments: dict[str, Any]) -> Any:
    """torchvision's dataset: from its files, or downloaded first."""
    download = "download" in inspect.signature(kind).parameters or hasattr(kind, "download")
    try:
        return kind(str(root), **arguments)
    except (RuntimeError, FileNotFoundError) as error:  # so torchvision says that files are missing
        if not download:
            raise InputError(_missing(dataset, root, error)) from None
    except ImportError as error:
        raise InputError(
            f"{dataset.name} needs a library that is not installed ({one_line(error)}): install it"
        ) from None
    except Exception as error:
        if isinstance(error, TypeError) or (isinstance(error, ValueError) and dataset.settings):
            raise InputError(
                f"dataset.settings={dataset.settings} do not suit {dataset.name}: {one_line(error)}"
            ) from None
        raise InputError(
            f"{dataset.name} cannot be read from {root} ({one_line(error)}): make its files "
            "readable, or remove them to get them again"
        ) from None
    say(f"{dataset.name} is not in {root}: downloading it")
    try:
        with _patience():
            return kind(str(root), download=True, **arguments)
    except Exception as error:  # of the network, of archives, of checksums
        raise InputError(_missing(dataset, root, error)) from None


def _missing(dataset: params.Dataset, root: Path, error: Exception) -> str:
    return (
        f"{dataset.name} is not in {root} and cannot be had ({one_line(error)}): connect to a "
        "network, or put torchvision's files there (its documentation says which); dataset.path "
        "may name another folder"
    )


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _part(data: Any, dataset: params.Dataset, folder: Path) -> Part:
    """All images of a torchvision dataset: its array, its files, or one by one."""
    return (
        _array(data)
        or _files(data)
        or collect(len(data), _getter(data, dataset), dataset, folder=folder, title="images")
    )


def _array(data: Any) -> Part | None:
    """The one array that small datasets hold, as (N, H, W, C)."""
    image, label = getattr(data, "data", None), getattr(data, "targets", None)
    label = getattr(data, "labels", None) if label is None else label
    if label is None or not hasattr(image, "shape"):
        return None
    image = np.asarray(image)
    if image.dtype != np.uint8 or len(label) != len(image):
        return None
    if image.ndim == 3:
        return Part(image[..., None], np.asarray(label).astype(np.int64))
    if image.ndim == 4 and image.shape[3] not in (1, 3):  # SVHN and STL10: channels first
        image = image.transpose(0, 2, 3, 1)
    return Part(np.ascontiguousarray(image), np.asarray(label).astype(np.int64))


def _files(data: Any) -> Part | None:
    """The image files that large datasets list; all of them go through our one loader."""
    for name in ("_samples", "samples"):
        if samples := getattr(data, name, None):
            listed = [sample[0] for sample in samples], [sample[1] for sample in samples]
            break
    else:
        listed = next(
            (
                (getattr(data, name), data._labels)
                for name in ("_image_files", "_images")
                if hasattr(data, name) and hasattr(data, "_labels")
            ),
            ([], []),
        )
    files, label = listed
    if not all(isinstance(file, (str, Path)) for file in files):
        return None
    if len(label) != len(data) or not all(
        isinstance(number, (int, np.integer)) for number in label
    ):
        return None
    return Part([Path(file).resolve() for file in files], np.array(label, np.int64))


def _getter(data: Any, dataset: params.Dataset):
    def get(number: int):
        image, label = data[number]
        if not isinstance(label, (int, np.integer)) or not hasattr(image, "mode"):
            raise InputError(
                f"dataset.name={dataset.name!r} is not for classification: its items are not "
                "images with one class each"
            )
        return image, int(label)

    return get


def _class_names(data: Any, parts: list[Part]) -> list[str]:
    """torchvision's names, or else the numbers of the classes."""
    count = 1 + max(int(part.label.max(initial=-1)) for part in parts)
    names = getattr(data, "classes", None) or getattr(data, "categories", None) or []
    if len(names) < count:
        return [str(number) for number in range(count)]
    return [name if isinstance(name, str) else ", ".join(name) for name in names]
