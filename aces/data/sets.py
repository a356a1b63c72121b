"""Images as arrays, and their files."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aces.errors import InputError


@dataclass(frozen=True)
class EvalSet:
    """The images that are certified, in the order of the test set."""

    image: np.ndarray  # (N, H, W, C) uint8
    label: np.ndarray  # (N,) int64
    index: np.ndarray  # (N,) int64: the image's place in the test set
    classes: list[str]  # K names


@dataclass(frozen=True)
class TrainSet:
    """The images that are trained on: one array, or the paths of a folder too large for memory."""

    image: np.ndarray | list[Path]  # (N, H, W, C) uint8, or N paths
    label: np.ndarray  # (N,) int64


def to_tensor(image: np.ndarray):
    """(N, H, W, C) uint8 -> (N, C, H, W) float32 tensor in [0, 1]."""
    import torch

    assert image.dtype == np.uint8 and image.ndim == 4, (image.dtype, image.shape)
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2))).float().div_(255)


def write_eval(path: str | Path, data: EvalSet) -> None:
    """Write `data` as npz: the same images give the same bytes."""
    write_arrays(
        path,
        image=data.image,
        label=data.label,
        index=data.index,
        classes=np.array(data.classes, dtype=str),
    )


def read_eval(path: str | Path) -> EvalSet:
    """Read what `write_eval` wrote."""
    arrays = _read_arrays(path)
    return EvalSet(
        image=arrays["image"],
        label=arrays["label"],
        index=arrays["index"],
        classes=arrays["classes"].tolist(),
    )


def write_train(path: str | Path, data: TrainSet) -> None:
    """Write `data` as npz: the same images give the same bytes. Of a folder only the paths below it
    are kept.
    """
    if isinstance(data.image, np.ndarray):
        write_arrays(path, image=data.image, label=data.label)
    else:
        root = _image_folder() if data.image else Path()
        names = [os.fsencode(image.relative_to(root)) for image in data.image]
        write_arrays(path, path=np.array(names, dtype=bytes), label=data.label)


def read_train(path: str | Path) -> TrainSet:
    """Read what `write_train` wrote."""
    arrays = _read_arrays(path)
    if len(arrays["label"]) == 0:
        raise InputError(
            f"{path} has no training images: complete the dataset (its folder train) and run "
            "`dvc repro -f subsample`, or name published checkpoints in params.yaml"
        )
    if "image" in arrays:
        return TrainSet(image=arrays["image"], label=arrays["label"])
    root = _image_folder()
    return TrainSet(
        image=[root / os.fsdecode(name) for name in arrays["path"].tolist()], label=arrays["label"]
    )


def _image_folder() -> Path:
    """Where the images of the one dataset lie that is not an array. It may be elsewhere on another
    machine.
    """
    from aces.data import imagenet

    return imagenet.folder()


def write_arrays(path: str | Path, /, **arrays: np.ndarray) -> None:
    """Write an uncompressed npz under a temporary name first, so that no reader ever sees half of
    it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: run `dvc repro subsample` first") from None
    except Exception as error:
        raise InputError(
            f"{path} is not a dataset file ({error}): run `dvc repro -f subsample`"
        ) from None
