"""The three sets of images that the stage `subsample` writes, and their files.

Each file also says what the images are (class names, mean and standard deviation, how an image
file becomes one of them). So every later stage works on any dataset without knowing which it is.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aces.data import places
from aces.errors import InputError, one_line
from aces.files import read_npz, write_npz

LARGE = ("image", "core_image", "path")  # arrays that `read_info` does not read
REMEDY = "run `dvc repro -f subsample`"
DESCRIBED = ("label", "classes", "mean", "std", "resize", "name")  # in every file
# Every array that a file may hold: the kinds of type it may have, and its number of dimensions.
ARRAYS = {
    "image": ("u", 4),
    "core_image": ("u", 4),
    "label": ("i", 1),
    "index": ("i", 1),
    "classes": ("U", 1),
    "mean": ("f", 1),
    "std": ("f", 1),
    "resize": ("i", 0),
    "name": ("U", 0),
    "mirror": ("ib", 0),  # true, false, or -1 where nothing is said
    "path": ("S", 1),
    "root": ("U", 0),
    "file_shape": ("i", 1),
}
LONGEST = 100_000  # pixels of a side
FILE_SHAPE = (3, 224, 224)  # what image files become where nothing else is said

Shape = tuple[int, int, int]  # (C, H, W)


@dataclass(frozen=True)
class Info:
    """What a dataset is, without its images."""

    name: str
    classes: list[str]  # K names
    shape: Shape
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    resize: int | None = None  # an image file's shorter side before the crop; None: as the crop

    @property
    def num_classes(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class EvalSet:
    """Test images: those that are certified, or those that calibrate theta."""

    image: np.ndarray  # (N, H, W, C) uint8
    label: np.ndarray  # (N,) int64
    index: np.ndarray  # (N,) int64: position of each image in the whole test set, ascending
    classes: list[str]  # K names
    mean: tuple[float, ...] = ()  # per channel, of the training images, pixels in [0, 1]
    std: tuple[float, ...] = ()
    resize: int | None = None  # an image file's shorter side before the crop; None: as the crop
    name: str = ""  # of the dataset
    core_image: np.ndarray | None = None  # (N, S, S, C) uint8: for a core network with its own size

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def for_core(self) -> np.ndarray:
        """The images as the core network sees them."""
        return self.image if self.core_image is None else self.core_image

    @property
    def shape(self) -> Shape:
        _, height, width, channels = self.image.shape
        return channels, height, width

    @property
    def info(self) -> Info:
        return Info(self.name, self.classes, self.shape, self.mean, self.std, self.resize)


@dataclass(frozen=True)
class TrainSet:
    """Images to train on: one array, or the paths of files where they are too large for memory."""

    image: np.ndarray | list[Path]  # (N, H, W, C) uint8, or N paths
    label: np.ndarray  # (N,) int64
    classes: list[str] = field(default_factory=list)
    mean: tuple[float, ...] = ()  # per channel, of these images, pixels in [0, 1]
    std: tuple[float, ...] = ()
    resize: int | None = None
    name: str = ""
    file_shape: Shape = FILE_SHAPE  # what a file becomes; an array has its own shape
    mirror: bool | None = None  # a mirror image has the same class; None: true of colour images
    root: str = ""  # the folder of the paths, as `aces.data.places.folder` understands it
    core_image: np.ndarray | None = None  # (N, S, S, C) uint8: for a core network with its own size

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> Shape:
        if not isinstance(self.image, np.ndarray):
            return self.file_shape
        _, height, width, channels = self.image.shape
        return channels, height, width

    @property
    def info(self) -> Info:
        return Info(self.name, self.classes, self.shape, self.mean, self.std, self.resize)


@dataclass(frozen=True)
class Prepared:
    """A dataset, ready for the pipeline."""

    evaluation: EvalSet  # every stride-th test image
    calibration: EvalSet  # test images that are not evaluated, spread evenly; possibly none
    training: TrainSet


def to_tensor(image: np.ndarray):
    """(N, H, W, C) uint8 -> (N, C, H, W) float32 tensor in [0, 1]."""
    import torch

    assert image.dtype == np.uint8 and image.ndim == 4, (image.dtype, image.shape)
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2))).float().div_(255)


def write_eval(path: str | Path, data: EvalSet) -> None:
    """Write `data` as npz. The same images give the same bytes."""
    own = {} if data.core_image is None else {"core_image": data.core_image}
    described = _described(data)
    write_arrays(path, image=data.image, label=data.label, index=data.index, **own, **described)


def read_eval(path: str | Path) -> EvalSet:
    """Read what `write_eval` wrote; InputError if the file contradicts itself."""
    arrays = _read_arrays(path, "image", "index")
    data = EvalSet(
        image=arrays["image"],
        label=arrays["label"],
        index=arrays["index"],
        core_image=arrays.get("core_image"),
        **_description(arrays),
    )
    _check_images(path, data.image, data.core_image)
    _check_labels(path, data)
    index = data.index
    ascending = bool((np.diff(index) > 0).all())
    if not ascending or len(index) != len(data.label) or (index < 0).any():
        raise _contradiction(path, "its index is not one ascending position for each image")
    return data


def read_info(path: str | Path) -> Info:
    """What the images of `write_eval` or `write_train` are, without reading them."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name not in LARGE}
            stored = _stored_shape(file) if "image" in file.files else None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: run `dvc repro subsample` first") from None
    except Exception as error:
        raise InputError(f"{path} is not a dataset file ({one_line(error)}): {REMEDY}") from None
    _check_arrays(path, arrays, *(() if stored else ("file_shape",)))
    info = Info(shape=stored or _file_shape(path, arrays), **_description(arrays))
    _check_description(path, info)
    return info


def _stored_shape(file: np.lib.npyio.NpzFile) -> Shape:
    """(C, H, W) of the images, from the header of their array."""
    assert file.zip is not None
    with file.zip.open("image.npy") as stored:
        np.lib.format.read_magic(stored)
        (_, height, width, channels), _, _ = np.lib.format.read_array_header_1_0(stored)
    return channels, height, width


def write_train(path: str | Path, data: TrainSet) -> None:
    """Write `data` as npz. The same images give the same bytes. Of files only the paths are kept,
    relative to their folder, which may lie elsewhere on another machine.
    """
    described = _described(data) | {"mirror": np.array(-1 if data.mirror is None else data.mirror)}
    if isinstance(data.image, np.ndarray):
        own = {} if data.core_image is None else {"core_image": data.core_image}
        write_arrays(path, image=data.image, label=data.label, **own, **described)
        return
    folder = places.folder(data.root) if data.image else Path()
    names = [os.fsencode(image.relative_to(folder)) for image in data.image]
    write_arrays(
        path,
        path=np.array(names, dtype=bytes),
        root=np.array(data.root),
        file_shape=np.array(data.file_shape),
        label=data.label,
        **described,
    )


def read_train(path: str | Path) -> TrainSet:
    """Read what `write_train` wrote; InputError if the file contradicts itself."""
    arrays = _read_arrays(path, "mirror")
    if len(arrays["label"]) == 0:
        raise InputError(
            f"{path} has no training images: complete the dataset (its folder train) and run "
            "`dvc repro -f subsample`, or name published checkpoints in params.yaml"
        )
    about = _description(arrays) | {"mirror": _mirror(arrays["mirror"])}
    if "image" in arrays:
        about |= {"core_image": arrays.get("core_image")}
        data = TrainSet(image=arrays["image"], label=arrays["label"], **about)
        _check_images(path, arrays["image"], data.core_image)
    else:
        _check_arrays(path, arrays, "path", "root", "file_shape")
        about |= {"file_shape": _file_shape(path, arrays), "root": str(arrays["root"])}
        folder = places.folder(about["root"])
        paths = [folder / os.fsdecode(name) for name in arrays["path"].tolist()]
        data = TrainSet(image=paths, label=arrays["label"], **about)
    _check_labels(path, data)
    return data


def _mirror(stored: np.ndarray) -> bool | None:
    return None if int(stored) < 0 else bool(stored)


def _described(data: EvalSet | TrainSet) -> dict[str, np.ndarray]:
    """What both kinds of file say about their images."""
    return {
        "classes": np.array(data.classes, dtype=str),
        "mean": np.array(data.mean, dtype=np.float64),
        "std": np.array(data.std, dtype=np.float64),
        "resize": np.array(data.resize or 0),
        "name": np.array(data.name),
    }


def _description(arrays: dict[str, np.ndarray]) -> dict:
    return {
        "classes": arrays["classes"].tolist(),
        "mean": tuple(arrays["mean"].tolist()),
        "std": tuple(arrays["std"].tolist()),
        "resize": int(arrays["resize"]) or None,
        "name": str(arrays["name"]),
    }


def _file_shape(path: str | Path, arrays: dict[str, np.ndarray]) -> Shape:
    """(C, H, W) that image files become."""
    shape = tuple(arrays["file_shape"].tolist())
    if len(shape) != 3 or shape[0] not in (1, 3) or not 0 < min(shape) <= max(shape) <= LONGEST:
        raise _contradiction(path, f"its files become images of shape {shape}")
    return shape


def _check_images(path: str | Path, image: np.ndarray, core_image: np.ndarray | None) -> None:
    for found in (image,) if core_image is None else (image, core_image):
        if found.dtype != np.uint8 or found.shape[3] not in (1, 3) or 0 in found.shape[1:]:
            raise _contradiction(
                path,
                f"its images are {found.dtype} of shape {found.shape}, expected uint8 (N, H, W, 1 "
                "or 3)",
            )
    if core_image is None:
        return
    if len(core_image) != len(image) or core_image.shape[3] != image.shape[3]:
        raise _contradiction(
            path,
            f"{len(core_image)} images for the core network, of shape {core_image.shape[1:]}, "
            f"beside {len(image)} of shape {image.shape[1:]}",
        )


def _check_labels(path: str | Path, data: EvalSet | TrainSet) -> None:
    label, count = data.label, len(data.image)
    if len(label) != count:
        raise _contradiction(path, f"it has {count} images and labels of shape {label.shape}")
    if count and not (label.min() >= 0 and label.max() < len(data.classes)):
        raise _contradiction(
            path,
            f"its labels are {label.min()} to {label.max()} for {len(data.classes)} classes",
        )
    _check_description(path, data.info)


def _check_description(path: str | Path, info: Info) -> None:
    """Mean and standard deviation, where they are known, are numbers for each channel."""
    moments = np.array([*info.mean, *info.std])
    known = len(info.mean) == len(info.std) == info.shape[0] and min(info.std) > 0
    if len(moments) and not (known and np.isfinite(moments).all()):
        raise _contradiction(
            path, f"mean {info.mean} and std {info.std} for {info.shape[0]} channels"
        )
    if info.resize is not None and not 0 < info.resize <= LONGEST:
        raise _contradiction(path, f"its images are resized to {info.resize} pixels")


def _contradiction(path: str | Path, what: str) -> InputError:
    return InputError(f"{path} contradicts itself ({what}): {REMEDY}")


def write_arrays(path: str | Path, /, **arrays: np.ndarray) -> None:
    """Write an uncompressed npz: images hardly compress, and are read often."""
    write_npz(path, compressed=False, **arrays)


def _read_arrays(path: str | Path, *needed: str) -> dict[str, np.ndarray]:
    arrays = read_npz(path, what="a dataset file", remedy=REMEDY)
    _check_arrays(path, arrays, *needed)
    return arrays


def _check_arrays(path: str | Path, arrays: dict[str, np.ndarray], *needed: str) -> None:
    """InputError unless all arrays are there, and each has the type and dimensions of its kind."""
    missing = [name for name in (*needed, *DESCRIBED) if name not in arrays]
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}: it was written by another version; {REMEDY}"
        )
    for name, array in arrays.items():
        if name not in ARRAYS:
            raise _contradiction(path, f"nothing is known of its array {name[:40]!r}")
        kinds, dimensions = ARRAYS[name]
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            raise _contradiction(path, f"its {name} is {array.dtype} of shape {array.shape}")
