"""Dataset files: images, labels and what they are have to fit together."""

import io
import random
from pathlib import Path

import numpy as np

from aces import data

from .damage import damaged_bytes
from .engine import expect

CLASSES = ["a", "b", "c"]
READERS = {"eval": data.read_eval, "train": data.read_train, "files": data.read_train}


class DatasetFiles:
    name = "datasets"

    def prepare(self, folder: Path) -> None:
        generator = np.random.default_rng(0)
        about = {"classes": CLASSES, "mean": (0.5,), "std": (0.2,), "resize": 9, "name": "made"}
        image = generator.integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)
        label = np.arange(6) % len(CLASSES)
        files = [folder / f"{number}.png" for number in range(6)]
        own = {"core_image": image.repeat(2, 1)}
        evaluation = data.EvalSet(image, label, 3 * np.arange(6), **own, **about)
        data.write_eval(folder / "eval.npz", evaluation)
        training = data.TrainSet(image, label, mirror=True, **own, **about)
        data.write_train(folder / "train.npz", training)
        listed = data.TrainSet(
            files, label, root=str(folder), file_shape=(1, 4, 4), mirror=False, **about
        )
        data.write_train(folder / "files.npz", listed)
        self._files = {}
        for kind in READERS:
            content = (folder / f"{kind}.npz").read_bytes()
            with np.load(io.BytesIO(content)) as file:
                self._files[kind] = content, {name: file[name] for name in file.files}

    def run(self, rng: random.Random, folder: Path) -> str:
        kind = rng.choice(sorted(READERS))
        content, arrays = self._files[kind]
        path = folder / f"{kind}.npz"
        if rng.random() < 0.2:
            path.write_bytes(damaged_bytes(content, rng))
        else:
            changed = dict(arrays)
            for _ in range(rng.choice((1, 1, 2))):
                _damage(changed, rng)
            with path.open("wb") as file:
                np.savez(file, allow_pickle=True, **changed)
        if rng.random() < 0.2:
            info = data.read_info(path)
        else:
            found = READERS[kind](path)
            problem = inconsistency(found)
            expect(problem is None, str(problem))
            info = found.info
        expect(_is_description(info), f"the description {info}")
        return "accepted"


def _damage(arrays: dict[str, np.ndarray], rng: random.Random) -> None:
    """One change to one array."""
    name = rng.choice(sorted(arrays))
    array = np.array(arrays[name])
    kind = rng.randrange(8)
    if kind <= 1 and array.size and array.dtype.kind in "iuf":
        place = np.unravel_index(rng.randrange(array.size), array.shape)
        odd = (0, 1, 3, 200) if array.dtype.kind == "u" else (-1, 0, 3, 2**40)
        array[place] = rng.choice((np.nan, np.inf, -1.0, 0.0) if array.dtype.kind == "f" else odd)
    elif kind == 2 and array.ndim:
        axis = rng.randrange(array.ndim)
        array = np.flip(array, axis) if rng.random() < 0.5 else np.delete(array, 0, axis)
    elif kind == 3:
        types = ("float64", "float32", "complex64", "bool", "uint16", "<U9", "S9", "int8", "object")
        array = _cast(array, rng.choice(types))
    elif kind == 4:
        del arrays[name]
        return
    elif kind == 5:
        arrays[rng.choice(("extra", "core_image", "image", "path", "file_shape"))] = array
        return
    elif kind == 6:
        array = rng.choice((array.reshape(-1), array[None], array[:0] if array.ndim else array))
    else:
        array = np.array(rng.choice((0, -5, 2**40, 0.5, "text", b"bytes", True)))
    arrays[name] = array


def _cast(array: np.ndarray, kind: str) -> np.ndarray:
    try:
        return array.astype(kind)
    except ValueError:  # words are no numbers
        return array.astype("object")


def inconsistency(found: data.EvalSet | data.TrainSet) -> str | None:
    """The naive twin of the checks: image by image. None where all agrees."""
    if len(found.image) != len(found.label):
        return "not one label for each image"
    if any(not 0 <= label < len(found.classes) for label in found.label.tolist()):
        return f"labels {found.label.tolist()}"
    if isinstance(found.image, np.ndarray) and found.image.dtype != np.uint8:
        return f"images of {found.image.dtype}"
    if isinstance(found, data.EvalSet):
        index = found.index.tolist()
        if (
            index != sorted(set(index))
            or len(index) != len(found.label)
            or min(index, default=0) < 0
        ):
            return f"the index {index}"
    core = found.core_image
    if core is not None and (core.dtype != np.uint8 or len(core) != len(found.image)):
        return "other images for the core network"
    return None


def _is_description(info: data.Info) -> bool:
    moments = [*info.mean, *info.std]
    return (
        all(isinstance(name, str) for name in info.classes)
        and info.shape[0] in (1, 3)
        and all(0 < side <= 100_000 for side in info.shape)
        and (not moments or len(info.mean) == len(info.std) == info.shape[0])
        and all(np.isfinite(moments))
        and all(value > 0 for value in info.std)
        and (info.resize is None or info.resize > 0)
    )
