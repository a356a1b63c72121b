"""The exact noise: Gaussian noise rounded to a lattice, so that no addition rounds.

A float32 sum x + g is rounded, and how it was rounded betrays x: a network can tell two images
apart that are nearly equal, for every draw of the noise, and a certificate for one of them is false
(Voracek and Hein, ICLR 2023). Here images and noise are whole numbers of lattice steps, one step
being 1 / (255 * 2^s) of a pixel's range:

    z = 2^s * x_255 + k,    Pr[k] = Phi((k + 1/2) / S) - Phi((k - 1/2) / S),    S = 255 * 2^s *
    sigma.

k is the rounding of S * g to a whole number, for a standard normal g. For a lattice point x,
x + round(S g) = round(x + S g). So z is a fixed function (the rounding) of the image plus true
Gaussian noise, and Cohen's theorem holds for "network after rounding" without any allowance. Every
z is a whole number below 2^24, which float32 holds exactly; the network sees float32(z) divided by
255 * 2^s, again a function of z alone.

**Distance of the drawn law from the exact one.** k is drawn from tables of whole numbers, so its
law differs a little from the exact one. Let d be the total-variation distance per pixel. The pixels
of a noisy image are independent, so its law is within pixels * d of the exact one, and so is the
probability of every event. d has three parts, all of them computed with whole
numbers by `_distance`:

- Tails: |k| > K is never drawn, where K = ceil(9 S). Its mass is 2 Phi(-9) < 2^-61.
- Rounding of the tables: probabilities are multiples of 2^-64 (of a share of them, see `Tables`).
  Each is rounded down, and what is missing in all is given to k = 0. For V = 2 K + 1 values the
  distance is at most V * 2^-64 times that share.
- The probabilities themselves are computed to 2^-150 or better, which adds V * 2^-150.

With S = 510 (sigma = 0.25) this is 8.5e-18 = 2^-56.7 a pixel by the tables of the CPU, and 2.5e-16
= 2^-51.8 by those of the GPU: 2.6e-14 and 7.7e-13 for a CIFAR-10 image.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from aces.errors import InputError

GREY_LEVELS = 255
CUT = 9  # standard deviations; beyond them nothing is drawn
TAILS = Fraction(1, 2**61)  # 2 Phi(-9) = 2.26e-19 is below this
_BITS = 192  # probabilities are computed in fixed point with so many bits
_ERROR = Fraction(1, 2**150)  # the largest error of such a probability
_LARGEST_SPREAD = 512  # S: large tables for a lattice finer than this would gain nothing
_SMALLEST_SPREAD = 16  # S: below this, the lattice would be coarse compared with the noise
_FINEST = 16  # s: 255 * 2^16 + K is still below 2^24
WORDS = 2**16  # 16 random bits draw a value by the direct table, or say that it is not there
RUN = 16  # neighbouring values that a slot of the direct table stands for
_LARGEST = 2**15 - 1  # int16 holds every value


@dataclass(frozen=True)
class Lattice:
    """The lattice for the noise of one sigma: `refinement` is s, `spread` is S, `reach` is K."""

    sigma: float

    def __post_init__(self):
        if self.spread < _SMALLEST_SPREAD or self.reach > _LARGEST:
            lowest = _SMALLEST_SPREAD / (GREY_LEVELS * 2**_FINEST)
            highest = _LARGEST / (CUT * GREY_LEVELS)
            raise InputError(
                f"sigma={self.sigma}: exact noise needs a sigma from {lowest:.1g} to "
                f"{highest:.0f}, for pixels in [0, 1]; is it meant for pixels in 0..255? Then "
                "divide it by 255"
            )
        assert GREY_LEVELS * 2**self.refinement + self.reach < 2**24, "float32 holds every z"

    @functools.cached_property
    def refinement(self) -> int:
        """s: the largest for which the tables stay small."""
        ratio = Fraction(_LARGEST_SPREAD) / (GREY_LEVELS * Fraction(self.sigma))
        return min(_FINEST, max(0, math.floor(ratio).bit_length() - 1))

    @property
    def scale(self) -> int:
        """Lattice steps in a pixel's range [0, 1]."""
        return GREY_LEVELS << self.refinement

    @property
    def spread(self) -> Fraction:
        """S: the standard deviation of the noise in lattice steps, as an exact number."""
        return self.scale * Fraction(self.sigma)

    @property
    def reach(self) -> int:
        """K: the largest |k| that is drawn."""
        return math.ceil(CUT * self.spread)

    @functools.cached_property
    def direct(self) -> "Tables":
        """The tables of the CPU."""
        return _direct(self)

    @functools.cached_property
    def alias(self) -> "Tables":
        """The tables of the GPU: the alias table alone."""
        return _alias_only(self)


@functools.lru_cache(maxsize=16)
def lattice(sigma: float) -> Lattice:
    """The lattice of a sigma, with tables that are made once in a process."""
    return Lattice(float(sigma))


@dataclass(frozen=True, eq=False)
class Tables:
    """How a value k is drawn from random bits.

    A word of 16 bits chooses a slot of `slots` by its upper bits, and by the lower ones a value of
    the slot's run: `RUN` neighbouring values, the first of which the slot names. No value is in
    more than 2^16 Pr[k] runs. Words above those of all runs, from `slow` on, send the draw to the
    alias table (Walker's method) of what is left of the probabilities: the highest bits of a
    64-bit word choose a column, and the value is column - reach if the remaining bits are below
    `threshold[column]`, else `other[column]`. Without slots, every value comes from the alias
    table.

    Runs make the table small, 8 kB: it stays in the nearest cache beside the network's work.
    """

    slots: np.ndarray  # (4096,) int16, 0 where no run is left; or (0,)
    slow: int  # the first word that goes to the alias table
    threshold: np.ndarray  # (A,) uint64, A a power of two
    other: np.ndarray  # (A,) int16
    reach: int
    tv: float  # total-variation distance of k's law from the exact one, rounded up

    @property
    def shift(self) -> int:
        """How many bits of a 64-bit word remain beside the number of the column."""
        return 64 - (len(self.threshold).bit_length() - 1)

    @functools.cached_property
    def packed(self) -> np.ndarray:
        """(A,) uint64: `threshold` in the upper bits, `other` + reach in the lower ones, so that a
        draw reads one number. A column that is all its own has threshold 0 and itself as the other.
        """
        bits, whole = np.uint64(64 - self.shift), np.uint64(1 << self.shift)
        own = self.threshold == whole
        value = np.where(own, np.arange(len(own)), self.other.astype(np.int64) + self.reach)
        return np.where(own, np.uint64(0), self.threshold) << bits | value.astype(np.uint64)


def probabilities(spread: Fraction) -> list[int]:
    """Pr[k] for k = 0 .. K as multiples of 2^-192, each within 2^-150.

    The integral of the density over [k - 1/2, k + 1/2] by its Taylor series about k: with t = k /
    S, h = 1 / S, and the derivatives of the density in terms of Hermite polynomials He,

        Pr[k] = h phi(t) sum_j G_2j / (4^j (2j + 1)!),   G_m = h^m He_m(t),

    where G_{m+1} = h t G_m - m h^2 G_{m-1}, up to terms below 2^-192. phi(t) comes from phi(0) by
    multiplying with exp(-(2k + 1) h^2 / 2) from each k to the next.
    """
    one = 1 << _BITS
    h2 = _fixed(1 / spread**2)
    ratio, step = _exp(-1 / (2 * spread**2)), _exp(-1 / spread**2)
    density = _fixed(_INVERSE_SQRT_2PI / spread)
    found = []
    for k in range(math.ceil(CUT * spread) + 1):
        before, now, total, weight, m = 0, one, one, 1, 0
        while True:
            for _ in range(2):
                before, now = now, (k * h2 * now - m * h2 * before) >> _BITS
                m += 1
            weight *= 4 * m * (m + 1)
            total += now // weight
            # One term can vanish by chance, as for t = 1; two neighbouring polynomials cannot.
            if abs(now) + abs(before) < weight:
                break
        found.append((density * total) >> _BITS)
        density = (density * ratio) >> _BITS
        ratio = (ratio * step) >> _BITS
    return found


# 1 / sqrt(2 pi) to 77 digits
_INVERSE_SQRT_2PI = Fraction(
    "0.39894228040143267793994605993438186847585863116493465766592582967065792589930184"
)


def _fixed(value: Fraction) -> int:
    return math.floor(value * 2**_BITS)


def _exp(x: Fraction) -> int:
    """exp(x) for a small x, in fixed point."""
    total = term = Fraction(1)
    n = 0
    while abs(term) > Fraction(1, 2 ** (_BITS + 8)):
        n += 1
        term = Fraction(_fixed(term * x / n), 2**_BITS)
        total += term
    return _fixed(total)


def _direct(lattice_: Lattice) -> Tables:
    half = probabilities(lattice_.spread)
    probability = half[:0:-1] + half
    starts = _runs(np.array([p * WORDS >> _BITS for p in probability]))
    counts = np.zeros(len(probability), dtype=np.int64)
    for start in starts:
        counts[start : start + RUN] += 1
    left = WORDS - int(counts.sum())
    rest = [
        p * WORDS - (count << _BITS) for p, count in zip(probability, counts.tolist(), strict=True)
    ]
    weights = _weights(rest, of=left << _BITS)
    # Pr[k] = (count + left * weight / 2^64) / 2^16, as a multiple of 2^-192.
    drawn = [
        (count << (_BITS - 16)) + (left * weight << (_BITS - 80))
        for count, weight in zip(counts.tolist(), weights, strict=True)
    ]
    slots = np.zeros(WORDS // RUN, dtype=np.int16)
    slots[: len(starts)] = np.array(starts, dtype=np.int64) - lattice_.reach
    threshold, other = _walker(weights, reach=lattice_.reach)
    distance = _distance(drawn, probability)
    return Tables(slots, RUN * len(starts), threshold, other, lattice_.reach, distance)


def _runs(most: np.ndarray) -> list[int]:
    """The first positions of runs, of which position i is in at most most[i].

    Layer after layer: the positions that allow for one more run are an interval about the middle,
    since Gaussian probabilities fall on both sides; as many runs as it holds lie in its middle.
    """
    starts: list[int] = []
    for layer in range(1, int(most.max()) + 1):
        (allowed,) = np.nonzero(most >= layer)
        first, room = int(allowed[0]), len(allowed) % RUN
        assert allowed[-1] - first + 1 == len(allowed), "one interval"
        starts += range(first + room // 2, first + len(allowed) - room + room // 2, RUN)
    return starts


def _alias_only(lattice_: Lattice) -> Tables:
    half = probabilities(lattice_.spread)
    probability = half[:0:-1] + half
    weights = _weights(probability, of=1 << _BITS)
    drawn = [weight << (_BITS - 64) for weight in weights]
    threshold, other = _walker(weights, reach=lattice_.reach)
    none = np.zeros(0, dtype=np.int16)
    return Tables(none, 0, threshold, other, lattice_.reach, _distance(drawn, probability))


def _weights(masses: list[int], *, of: int) -> list[int]:
    """The masses as whole numbers that add up to 2^64: rounded down, and the middle one (k = 0) has
    what is missing.
    """
    weights = [(mass << 64) // of for mass in masses]
    weights[len(weights) // 2] += (1 << 64) - sum(weights)
    return weights


def _walker(weights: list[int], *, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias table, in whole numbers: each column has the same capacity, filled by its own
    value up to the threshold and by one other value above it.
    """
    columns = 1 << (len(weights) - 1).bit_length()
    capacity = (1 << 64) // columns
    left = weights + [0] * (columns - len(weights))
    threshold = np.zeros(columns, dtype=np.uint64)
    other = np.zeros(columns, dtype=np.int16)
    poor = [column for column, weight in enumerate(left) if weight < capacity]
    rich = [column for column, weight in enumerate(left) if weight >= capacity]
    while poor:
        column, donor = poor.pop(), rich[-1]
        threshold[column], other[column] = left[column], donor - reach
        left[donor] -= capacity - left[column]
        if left[donor] < capacity:
            poor.append(rich.pop())
    for column in rich:
        assert left[column] == capacity, "the weights add up to the capacity of all columns"
        threshold[column] = capacity
    return threshold, other


def _distance(drawn: list[int], probability: list[int]) -> float:
    """The total variation between two laws in fixed point, rounded up; see the module's text."""
    apart = sum(abs(each - p) for each, p in zip(drawn, probability, strict=True))
    total = (Fraction(apart, 1 << _BITS) + TAILS) / 2 + len(drawn) * _ERROR
    return math.nextafter(float(total), 1.0)
