"""Arrays in npz files: `image` (N, H, W, C) uint8 and `label` (N,), for training and for test.

Either a folder with `train.npz` and `test.npz`, or one file with `train_image`, `train_label`,
`test_image`, `test_label` (or the same in the plural, as MedMNIST has them), or one file with
`image` and `label`, of which a share `dataset.split` becomes test images. An array `classes` may
hold the names of the classes.
"""

from pathlib import Path

import numpy as np

from aces import params
from aces.data.options import options, path_of
from aces.data.splits import Part, Splits, divide
from aces.errors import InputError
from aces.files import read_npz

Arrays = dict[str, np.ndarray]
EXPECTED = "arrays image (N, height, width, channels) uint8 and label (N,)"


def load(dataset: params.Dataset) -> Splits:
    settings = options(dataset, seed=0, mirror=None)
    path = path_of(dataset)
    parts: tuple[Part, ...]
    if path.is_dir():
        train, test = (_file(path / f"{part}.npz") for part in ("train", "test"))
        parts = _part(train, "", path / "train.npz"), _part(test, "", path / "test.npz")
        arrays = train | test
    else:
        arrays = _file(path)
        if any(name.startswith("train_") for name in arrays):
            parts = _part(arrays, "train_", path), _part(arrays, "test_", path)
        else:
            parts = (_part(arrays, "", path),)
    classes = _classes(arrays, parts, path)
    if len(parts) == 1:
        parts = divide(parts[0], classes, share=dataset.split, seed=settings["seed"])
    return Splits(*parts, classes, mirror=settings["mirror"])


def _file(path: Path) -> Arrays:
    return read_npz(path, what="an npz file", remedy=f"expected {EXPECTED}")


def _part(arrays: Arrays, prefix: str, path: Path) -> Part:
    image, label = (_array(arrays, f"{prefix}{name}", path) for name in ("image", "label"))
    if image.ndim == 3:  # grey images without a dimension for the channel
        image = image[..., None]
    if label.ndim == 2 and label.shape[1] == 1:
        label = label[:, 0]
    if label.shape != image.shape[:1] or label.dtype.kind not in "iu":
        raise InputError(
            f"{path}: {prefix}label is {label.dtype} of shape {label.shape}, {prefix}image has "
            f"shape {image.shape}: expected one whole number for each image"
        )
    return Part(image, label)


def _array(arrays: Arrays, name: str, path: Path) -> np.ndarray:
    for known in (name, f"{name}s"):
        if known in arrays:
            return arrays[known]
    found = ", ".join(arrays) or "nothing"
    raise InputError(f"{path} lacks the array {name} (it has {found}): expected {EXPECTED}")


def _classes(arrays: Arrays, parts: tuple[Part, ...], path: Path) -> list[str]:
    if "classes" in arrays:
        return [str(name) for name in arrays["classes"].tolist()]
    if not len(parts[0]):
        raise InputError(f"{path} has no training images: expected {EXPECTED}")
    return [str(number) for number in range(int(parts[0].label.max()) + 1)]
