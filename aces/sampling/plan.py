"""A plan of draws: every number that the counts of a network depend on, checked in one place."""

from dataclasses import dataclass

import numpy as np

from aces.errors import InputError
from aces.params import Adaptive

CHUNK = 1000
NOISES = ("exact", "float")
PRECISIONS = ("float32", "bfloat16", "float16", "int8")


@dataclass(frozen=True)
class DrawPlan:
    """How many noisy copies of each image are drawn, with which noise, and in which precision the
    network sees them.

    A plan says what the result depends on; what changes only the speed is an `aces.Runtime`.
    """

    sigma: float  # standard deviation of the noise, for pixels in [0, 1]
    n0: int = 100  # draws that fix the guesses
    n: int = 100_000  # draws that bound the probabilities of the guesses
    n_predict: int = 0  # draws of their own for PREDICT; 0: it uses the n draws
    seed: int = 0
    chunk: int = CHUNK  # draws that share one random stream; also the smallest unit of work
    noise: str = "exact"  # whole numbers on a lattice; "float": as earlier versions, for comparison
    precision: str = "float32"
    adaptive: Adaptive | None = None  # stop an image early once more draws change no answer

    def __post_init__(self):
        _check(
            "sigma",
            self.sigma,
            0 < self.sigma < float("inf"),
            "a number above 0, in [0, 1] pixel units",
        )
        for name, least in (("n0", 0), ("n", 0), ("n_predict", 0), ("seed", 0), ("chunk", 1)):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            _check(name, value, whole and value >= least, f"a whole number of at least {least}")
            object.__setattr__(self, name, int(value))
        object.__setattr__(self, "sigma", float(self.sigma))
        _check(
            "n0",
            self.n0,
            self.n0 > 0 or self.n == 0,
            "at least 1 draw for the guess, since n is above 0",
        )
        _check("n", self.n, self.n + self.n_predict > 0, "draws in some round")
        # The cipher's counter, the counts and their files have 32 bits.
        for name in ("n0", "n", "n_predict", "chunk"):
            value = getattr(self, name)
            _check(name, value, value < 2**31, "less than 2^31 draws")
        _check("noise", self.noise, self.noise in NOISES, "one of " + ", ".join(NOISES))
        _check(
            "precision",
            self.precision,
            self.precision in PRECISIONS,
            "one of " + ", ".join(PRECISIONS),
        )
        if self.adaptive is not None:
            _check(
                "adaptive",
                self.adaptive,
                isinstance(self.adaptive, Adaptive),
                "an aces.params.Adaptive, or None",
            )

    @property
    def draws(self) -> int:
        """The draws of one image in all rounds; fewer are made where images stop early."""
        return self.n0 + self.n + self.n_predict


def _check(name: str, value: object, condition: bool, expected: str) -> None:
    if not condition:
        raise InputError(f"{name}={value!r}: expected {expected}")
