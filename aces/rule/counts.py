"""Counts: the sufficient statistics of the noise draws, the interface between sampling and the
rule.

Every draw is reduced to its class and the bin of its score (the entropy, or the selection network's
output), so any theta on the grid of `BINS` steps is exact and no draw is ever kept.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from pathlib import Path

import numpy as np

from aces.errors import InputError

BINS = 1000
FORMAT = 2


class Round(IntEnum):
    """The rounds of draws; each is independent of the others."""

    GUESS = 0  # n0 draws fix the guesses
    BOUND = 1  # n draws bound the probabilities of the guesses
    PREDICT = 2  # n_predict draws answer PREDICT


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
    mechanism: str = "entropy"
    format: int = FORMAT


@dataclass(frozen=True)
class Looks:
    """The looks at a round of an adaptive run: its pooled counts at moments fixed beforehand.

    Look j is at `draws[j]` draws and spends `spend[j]` of alpha (the fractions sum to at most 1).
    An image that stopped early repeats its last look, so that indexing is uniform; `made` says how
    many looks it had.
    """

    draws: np.ndarray  # (J,) int64
    spend: np.ndarray  # (J,) float64
    made: np.ndarray  # (N,) int64, 1..J
    classes: np.ndarray  # (J, N, K) int64
    entropy: np.ndarray  # (J, N, BINS + 1) int64


@dataclass(frozen=True)
class Counts:
    """How often each class and each score was drawn, for N images, K classes and three rounds."""

    classes: np.ndarray  # (3, N, K) int64
    # (3, N, BINS + 1) int64; bin i counts (i-1)/BINS < H <= i/BINS, bin 0 H = 0
    entropy: np.ndarray
    joint: np.ndarray  # (N, BINS + 1) int64: round BOUND, draws of the guessed class only
    invalid: np.ndarray  # (3, N) int64: draws with NaN or infinite logits, in no class and no bin
    index: np.ndarray  # (N,) int64: the image's place in the test set
    label: np.ndarray  # (N,) int64
    guess: np.ndarray  # (N,) int64: the most frequent class of round GUESS, the lowest of a tie
    settings: Settings
    looks: dict[Round, Looks] = field(
        default_factory=dict
    )  # of an adaptive run: rounds BOUND and PREDICT

    @property
    def draws(self) -> np.ndarray:
        """(3, N) draws made, invalid ones included."""
        return self.classes.sum(axis=2) + self.invalid

    def check_sigma(self, sigma: float) -> None:
        """A radius for another noise than was drawn would be wrong."""
        if not sigma > 0 or abs(sigma - self.settings.sigma) > 1e-9 * sigma:
            raise InputError(
                f"sigma={sigma}: these draws were made with sigma={self.settings.sigma:g}; give that, or sample again"
            )


def write_counts(path: str | Path, counts: Counts) -> None:
    """Write `counts` as npz: the same counts give the same bytes."""
    arrays = {
        name: getattr(counts, name)
        for name in ("classes", "entropy", "joint", "invalid", "index", "label", "guess")
    }
    for round_, looks in counts.looks.items():
        arrays |= {_look_name(round_, name): value for name, value in vars(looks).items()}
    settings = json.dumps(asdict(counts.settings), sort_keys=True)
    np.savez_compressed(path, settings=np.array(settings), **arrays)


def read_counts(path: str | Path) -> Counts:
    """Read what `write_counts` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: run `dvc repro sample` first") from None
    except Exception as error:
        raise InputError(
            f"{path} is not a counts file ({error}): run `dvc repro -f sample`"
        ) from None
    settings = json.loads(str(arrays.pop("settings")))
    if settings["format"] != FORMAT:
        raise InputError(f"{path} has format {settings['format']}, expected {FORMAT}: sample again")
    looks = {
        round_: Looks(
            **{each.name: arrays.pop(_look_name(round_, each.name)) for each in fields(Looks)}
        )
        for round_ in Round
        if _look_name(round_, "draws") in arrays
    }
    return Counts(**arrays, settings=Settings(**settings), looks=looks)


def _look_name(round_: Round, name: str) -> str:
    return f"looks_{round_.name.lower()}_{name}"
