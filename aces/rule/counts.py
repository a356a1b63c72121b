"""Counts: the sufficient statistics of the noise draws, the interface between sampling and the
rule.

Every draw is reduced to three values: its class, the bin of its *score* (what the paper's rule
compares with theta: the entropy, or a selection network's output) and the bin of its *doubt* (what
the confident rule compares with theta). The two histograms are counted twice: over all draws, and
over the draws of the guessed class. Any theta on the grid of `BINS` steps is then exact for both
rules, and no draw is ever kept.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum
from pathlib import Path

import numpy as np

from aces.errors import InputError
from aces.files import read_npz, write_npz
from aces.grid import BINS

FORMAT = 4
MOST = 2**31 - 1  # draws of one image in a round: counts are stored with 32 bits
LARGEST = float(np.finfo(float).max)


class Round(IntEnum):
    """The rounds of draws; each is independent of the others."""

    GUESS = 0  # n0 draws fix the guesses
    BOUND = 1  # n draws bound the probabilities of the guesses
    PREDICT = 2  # n_predict draws answer PREDICT; if there are none, those of round BOUND do


@dataclass(frozen=True)
class Settings:
    """What the draws depend on, besides the images."""

    sigma: float
    n0: int
    n: int
    n_predict: int
    seed: int
    chunk: int
    model: str  # sha256 of the network (and the selection network) that was run
    precision: str = "float32"
    backend: str = "torch"  # what ran the network: its logits differ in the last digits
    score: str = "entropy"  # what the paper's rule compares with theta
    noise: str = "float"
    tv: float = 0.0  # total-variation distance of one noisy image from the exact Gaussian law
    format: int = FORMAT

    def draws_of(self, round_: Round) -> int:
        """How many draws of an image a round has, at most."""
        return (self.n0, self.n, self.n_predict)[round_]


@dataclass(frozen=True)
class Looks:
    """The looks at a round of an adaptive run: its pooled counts at moments fixed beforehand.

    Look j is at `draws[j]` draws and spends `spend[j]` of alpha (the fractions sum to at most 1).
    An image that stopped early repeats its last look, so that indexing is uniform; `made` says how
    many looks it had.
    """

    draws: np.ndarray  # (J,) int
    spend: np.ndarray  # (J,) float
    made: np.ndarray  # (N,) int, 1..J
    classes: np.ndarray  # (J, N, K) int
    score: np.ndarray  # (J, N, BINS + 1) int
    doubt: np.ndarray  # (J, N, BINS + 1) int
    joint_doubt: np.ndarray  # (J, N, BINS + 1) int: only draws of the guessed class

    def part(self, images: slice | np.ndarray) -> "Looks":
        """The looks at some of the images."""
        counted = ("classes", "score", "doubt", "joint_doubt")
        return replace(
            self,
            made=self.made[images],
            **{name: getattr(self, name)[:, images] for name in counted},
        )


@dataclass(frozen=True)
class Counts:
    """How often each class, score and doubt was drawn, for N images, K classes and three rounds.

    Bin i of a histogram counts the draws with (i-1)/BINS < value <= i/BINS, bin 0 those with value
    0; so `cumsum` at i is the number of draws whose value is at most i/BINS.
    """

    classes: np.ndarray  # (3, N, K) int
    score: np.ndarray  # (3, N, BINS + 1) int
    doubt: np.ndarray  # (3, N, BINS + 1) int
    joint_score: np.ndarray  # (3, N, BINS + 1) int: only draws of the guessed class; round GUESS: 0
    joint_doubt: np.ndarray  # (3, N, BINS + 1) int: the same for the doubt
    invalid: np.ndarray  # (3, N) int: draws with NaN or infinite logits, in no class and no bin
    index: np.ndarray  # (N,) int: the image's place in the test set
    label: np.ndarray  # (N,) int, -1 where it is not known
    guess: np.ndarray  # (N,) int: the most frequent class of round GUESS, the lowest of a tie
    settings: Settings
    # of an adaptive run: rounds BOUND and PREDICT
    looks: dict[Round, Looks] = field(default_factory=dict)

    @property
    def draws(self) -> np.ndarray:
        """(3, N) draws made, invalid ones included."""
        return self.classes.sum(axis=2) + self.invalid

    @property
    def predict_round(self) -> Round:
        """The round whose draws answer PREDICT.

        CERTIFY and PREDICT promise separately, so the draws of round BOUND may serve both.
        """
        return Round.PREDICT if self.settings.n_predict else Round.BOUND

    def sigma_of(self, sigma: float | None) -> float:
        """The sigma of the draws. A radius for another noise than was drawn would be wrong."""
        drawn = self.settings.sigma
        if sigma is not None and not abs(sigma - drawn) <= 1e-9 * drawn:
            raise InputError(
                f"sigma={sigma}: these draws were made with sigma={drawn:g}; give that, or sample "
                "again"
            )
        return drawn

    def part(self, images: slice | np.ndarray) -> "Counts":
        """The counts of some of the images."""
        arrays = {
            name: getattr(self, name)[images]
            if name in ("index", "label", "guess")
            else getattr(self, name)[:, images]
            for name in _ARRAYS
        }
        looks = {round_: looks.part(images) for round_, looks in self.looks.items()}
        return replace(self, **arrays, looks=looks)


_REQUIRED = {"sigma": float, "n0": int, "n": int, "n_predict": int, "seed": int} | {
    "chunk": int,
    "model": str,
}
_HISTOGRAMS = ("score", "doubt", "joint_score", "joint_doubt")
_ARRAYS = ("classes", *_HISTOGRAMS, "invalid", "index", "label", "guess")
_COUNTED = ("classes", *_HISTOGRAMS, "invalid")  # written as int32: half the memory


def write_counts(path: str | Path, counts: Counts) -> None:
    """Write `counts` as npz: the same counts give the same bytes."""
    arrays = {name: _narrow(name, getattr(counts, name)) for name in _ARRAYS}
    for round_, looks in counts.looks.items():
        arrays |= {
            _look_name(round_, name): _narrow(name, value) for name, value in vars(looks).items()
        }
    settings = json.dumps(asdict(counts.settings), sort_keys=True)
    write_npz(path, **{"settings": np.array(settings), **arrays})  # type: ignore[arg-type]


def read_counts(path: str | Path) -> Counts:
    """Read and check what `write_counts` wrote; an inconsistent file is refused."""
    arrays = read_npz(path, what="a counts file", remedy="run `dvc repro sample`")
    try:
        settings = _settings_of(arrays)
        rounds = [round_ for round_ in Round if _look_name(round_, "draws") in arrays]
        names = [_look_name(round_, each.name) for round_ in rounds for each in fields(Looks)]
        _need(
            set(arrays) == {*_ARRAYS, *names},
            f"it lacks or has too much of {', '.join(sorted(set(arrays) ^ {*_ARRAYS, *names}))}",
        )
        counts = Counts(
            **{name: arrays[name] for name in _ARRAYS},
            settings=settings,
            looks={
                round_: Looks(
                    **{each.name: arrays[_look_name(round_, each.name)] for each in fields(Looks)}
                )
                for round_ in rounds
            },
        )
        check_counts(counts)
    except InputError as error:
        raise InputError(f"{path} is not usable: {error}; run `dvc repro -f sample`") from None
    return counts


def check_counts(counts: Counts) -> None:
    """Raise InputError unless the arrays agree with the settings and with each other."""
    _need(counts.classes.ndim == 3, f"classes has {counts.classes.ndim} dimensions, expected 3")
    images, classes = counts.classes.shape[1:]
    _need(images > 0 and classes > 0, f"classes has shape {counts.classes.shape}")
    for name in _ARRAYS:
        one_each = name in ("index", "label", "guess")
        shape = {"classes": (3, images, classes), "invalid": (3, images)}.get(
            name, (images,) if one_each else (3, images, BINS + 1)
        )
        _check_whole(name, getattr(counts, name), shape=shape, lowest=-1 if name == "label" else 0)
    _need(len(np.unique(counts.index)) == images, "index names an image twice")
    _need(bool((counts.label < classes).all()), f"label has a class above {classes - 1}")
    _need(
        np.array_equal(counts.guess, counts.classes[Round.GUESS].argmax(axis=1)),
        "guess is not the most frequent class of round guess",
    )
    for round_ in Round:
        _check_histograms(
            round_.name.lower(),
            counts.classes[round_],
            {"score": counts.score[round_], "doubt": counts.doubt[round_]},
            {"score": counts.joint_score[round_], "doubt": counts.joint_doubt[round_]},
            guess=None if round_ == Round.GUESS else counts.guess,
        )
        if round_ not in counts.looks:
            expected = counts.settings.draws_of(round_)
            _need(
                bool((counts.draws[round_] == expected).all()),
                f"round {round_.name.lower()} does not hold {expected} draws of each image",
            )
    for round_, looks in counts.looks.items():
        _check_looks(counts, round_, looks)


def _settings_of(arrays: dict[str, np.ndarray]) -> Settings:
    """The settings, taken out of the arrays of a file."""
    try:
        found = json.loads(str(arrays.pop("settings")[()]))
        number = found["format"]
    except (KeyError, TypeError, ValueError, IndexError, RecursionError):
        raise InputError("its settings cannot be read") from None
    _need(number == FORMAT, f"it has format {number}, expected {FORMAT}: it is of another version")
    kinds = {each.name: type(each.default) for each in fields(Settings)} | _REQUIRED
    _need(set(found) == set(kinds), "its settings have other names than expected")
    for name, kind in kinds.items():
        allowed = (int, float) if kind is float else kind
        _need(
            isinstance(found[name], allowed) and not isinstance(found[name], bool),
            f"settings.{name}={found[name]!r}",
        )
    settings = Settings(**found)
    _need(0 < settings.sigma <= LARGEST, f"sigma={settings.sigma}")
    _need(0 <= settings.tv < 0.5, f"tv={settings.tv} not in [0, 0.5)")
    for name in ("n0", "n", "n_predict"):
        _need(0 <= getattr(settings, name) <= MOST, f"{name}={getattr(settings, name)}")
    _need(0 < settings.chunk <= MOST, f"chunk={settings.chunk}")
    return settings


def _check_whole(name: str, array: np.ndarray, *, shape: tuple, lowest: int = 0) -> None:
    _need(array.dtype.kind == "i", f"{name} holds {array.dtype} numbers, expected whole ones")
    _need(array.shape == shape, f"{name} has shape {array.shape}, expected {shape}")
    _need(int(array.min()) >= lowest, f"{name} has a number below {lowest}")
    # Larger ones could have the right sum after 64 bits overflow.
    _need(name == "index" or int(array.max()) <= MOST, f"{name} has a number above {MOST}")


def _check_histograms(
    where: str,
    classes: np.ndarray,
    every: dict[str, np.ndarray],
    joint: dict[str, np.ndarray],
    *,
    guess: np.ndarray | None,
) -> None:
    """Histograms hold each valid draw once, the joint ones each draw of the guessed class.

    classes: (N, K); every, joint: name -> (N, BINS + 1); guess: (N,), or None in round GUESS.
    """
    valid = classes.sum(axis=1)
    of_guess = 0 if guess is None else classes[np.arange(len(guess)), guess]
    for name, histogram in every.items():
        _need(
            np.array_equal(histogram.sum(axis=1), valid),
            f"round {where}: {name} does not hold the draws of classes",
        )
    for name, histogram in joint.items():
        _need(
            bool((histogram.sum(axis=1) == of_guess).all() and (histogram <= every[name]).all()),
            f"round {where}: joint_{name} does not hold the draws of the guessed class",
        )


def _check_looks(counts: Counts, round_: Round, looks: Looks) -> None:
    """The looks are what a run that stopped early records, and the last one made is the total."""
    where = f"looks at round {round_.name.lower()}"
    _need(round_ != Round.GUESS, f"{where}: round guess has none")
    images, classes = counts.classes.shape[1:]
    n, steps = counts.settings.draws_of(round_), looks.draws.size
    _check_whole(f"{where}: draws", looks.draws, shape=(max(steps, 1),), lowest=1)
    _need(
        bool((np.diff(looks.draws) > 0).all()) and looks.draws[-1] == n,
        f"{where}: draws={looks.draws.tolist()}, expected growing numbers up to {n}",
    )
    _need(looks.spend.dtype == np.float64 and looks.spend.shape == (steps,), f"{where}: spend")
    _need(
        bool((looks.spend > 0).all()) and float(looks.spend.sum()) <= 1 + 1e-9,
        f"{where}: spend={looks.spend.tolist()}, expected numbers above 0 whose sum is at most 1",
    )
    _check_whole(f"{where}: made", looks.made, shape=(images,), lowest=1)
    _need(int(looks.made.max()) <= steps, f"{where}: made exceeds the {steps} looks")
    for name in ("classes", "score", "doubt", "joint_doubt"):
        last = classes if name == "classes" else BINS + 1
        array = getattr(looks, name)
        _check_whole(f"{where}: {name}", array, shape=(steps, images, last))
        for j in range(1, steps):
            _need(
                bool((array[j] >= array[j - 1]).all())
                and np.array_equal(array[j, looks.made <= j], array[j - 1, looks.made <= j]),
                f"{where}: {name} is not the sum of more draws at every further look",
            )
        _need(
            np.array_equal(array[-1], getattr(counts, name)[round_]),
            f"{where}: the last {name} are not the total",
        )
    before = np.zeros(images, dtype=np.int64)
    for j in range(steps):
        _check_histograms(
            where,
            looks.classes[j],
            {"score": looks.score[j], "doubt": looks.doubt[j]},
            {"doubt": looks.joint_doubt[j]},
            guess=counts.guess,
        )
        invalid = looks.draws[np.minimum(j, looks.made - 1)] - looks.classes[j].sum(axis=1)
        _need(bool((invalid >= before).all()), f"{where}: classes exceed the draws")
        before = invalid
    _need(
        np.array_equal(before, counts.invalid[round_]),
        f"{where}: made and invalid do not agree with the total",
    )


def _need(condition: bool, problem: str) -> None:
    if not condition:
        raise InputError(problem)


def _narrow(name: str, array: np.ndarray) -> np.ndarray:
    """Counts as int32, everything else with 64 bits: the same counts have the same bytes."""
    array = np.asarray(array)
    if name in _COUNTED:
        assert array.size == 0 or array.max() <= MOST, f"{name} does not fit into int32"
        return array.astype(np.int32)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def _look_name(round_: Round, name: str) -> str:
    return f"looks_{round_.name.lower()}_{name}"
