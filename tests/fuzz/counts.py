"""counts.npz: numbers may only come from files whose parts agree with each other."""

import io
import json
import random
from pathlib import Path

import numpy as np

from aces.rule import counts as counts_module
from aces.rule.counts import Counts, Round, read_counts, write_counts

from .damage import ODD_NUMBERS, damaged_bytes
from .engine import expect

SETTINGS = "settings"


class CountsFiles:
    name = "counts"

    def prepare(self, folder: Path) -> None:
        from made_counts import random_counts

        self._files: list[tuple[bytes, dict[str, np.ndarray]]] = []
        for number in range(4):
            made = random_counts(np.random.default_rng(number), images=5, looks=number % 2 == 1)
            write_counts(folder / "sound.npz", made)
            data = (folder / "sound.npz").read_bytes()
            with np.load(io.BytesIO(data)) as file:
                self._files.append((data, {name: file[name] for name in file.files}))

    def run(self, rng: random.Random, folder: Path) -> str:
        data, arrays = rng.choice(self._files)
        path = folder / "counts.npz"
        if rng.random() < 0.2:
            path.write_bytes(damaged_bytes(data, rng))
        else:
            changed = dict(arrays)
            for _ in range(rng.choice((1, 1, 2))):
                _damage(changed, rng)
            with path.open("wb") as file:
                np.savez(file, allow_pickle=True, **changed)
        counts = read_counts(path)
        problem = inconsistency(counts)
        expect(problem is None, str(problem))
        return "accepted"


def _damage(arrays: dict[str, np.ndarray], rng: random.Random) -> None:
    """One change to one array."""
    name = rng.choice(sorted(arrays))
    if name == SETTINGS:
        arrays[name] = _other_settings(str(arrays[name][()]), rng)
        return
    array = np.array(arrays[name])
    kind = rng.randrange(10)
    if kind <= 2 and array.size and array.dtype.kind in "if":
        place = np.unravel_index(rng.randrange(array.size), array.shape)
        array[place] += rng.choice((-1, 1, 10, -1000))
    elif kind == 3 and array.size > 1:  # as many draws as before, in other places
        places = [np.unravel_index(rng.randrange(array.size), array.shape) for _ in range(2)]
        array[places[0]], array[places[1]] = array[places[1]], array[places[0]]
    elif kind == 4 and array.ndim:
        axis = rng.randrange(array.ndim)
        array = np.flip(array, axis) if rng.random() < 0.5 else np.delete(array, 0, axis)
    elif kind == 5:
        array = array.astype(rng.choice(("float64", "complex64", "bool", "uint8", "<U5", "object")))
    elif kind == 6:
        del arrays[name]
        return
    elif kind == 7:
        arrays[rng.choice(("extra", "looks_bound_extra", "looks_guess_draws"))] = array
        return
    elif kind == 8 and array.size > 3 and array.dtype.kind == "i":  # the same sum in 64 bits
        array = array.astype(rng.choice(("int64", "uint64")))
        array.reshape(-1)[rng.randrange(array.size - 3) :][:4] += np.array(2**62, array.dtype)
    else:
        array = array.reshape(-1) if rng.random() < 0.5 else np.full_like(array, 7)
    arrays[name] = array


def _other_settings(text: str, rng: random.Random) -> np.ndarray:
    try:
        settings = json.loads(text)
    except ValueError:  # it was damaged before
        return np.array(text[::-1])
    key = rng.choice(sorted(settings))
    odd = [*ODD_NUMBERS, "text", None, True, [], {}]
    kind = rng.randrange(4)
    if kind == 0:
        del settings[key]
    elif kind == 1:
        settings["more"] = 1
    elif kind == 2:
        return np.array(text[: rng.randrange(len(text))])
    else:
        settings[key] = rng.choice(odd)
    return np.array(json.dumps(settings))


def inconsistency(counts: Counts) -> str | None:
    """The naive twin of `check_counts`: every draw by hand. None where all agrees."""
    settings = counts.settings
    _, images, classes = counts.classes.shape
    if len(set(counts.index.tolist())) != images:
        return "an image is there twice"
    for i in range(images):
        first = counts.classes[0, i].tolist()
        if counts.guess[i] != first.index(max(first)):
            return f"the guess of image {i}"
        if not -1 <= counts.label[i] < classes:
            return f"the label of image {i}"
        for round_ in Round:
            made = counts.looks.get(round_)
            expected = settings.draws_of(round_)
            if made is not None:
                expected = int(made.draws[made.made[i] - 1])
            valid = sum(counts.classes[round_, i].tolist())
            if valid + int(counts.invalid[round_, i]) != expected:
                return f"the draws of image {i} in round {round_}"
            of_guess = 0 if round_ == Round.GUESS else counts.classes[round_, i, counts.guess[i]]
            for name in ("score", "doubt"):
                every = getattr(counts, name)[round_, i]
                joint = getattr(counts, f"joint_{name}")[round_, i]
                if every.min() < 0 or joint.min() < 0 or sum(every.tolist()) != valid:
                    return f"the {name} of image {i} in round {round_}"
                if sum(joint.tolist()) != of_guess or (joint > every).any():
                    return f"the joint {name} of image {i} in round {round_}"
    if not (settings.sigma > 0 and np.isfinite(settings.sigma)):
        return "sigma"
    return None if settings.format == counts_module.FORMAT else "the format"
