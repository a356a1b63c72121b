"""A statistical self-test of the exact noise: drawn values against the exact law.

The chi-square test looks at the bulk of the law, bin by bin; two more tests look at its mean and
its variance, which many small deviations change together. Tail tests count the values beyond each
of several distances, where a wrong law harms certificates most.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from aces.sampling.lattice import Lattice, lattice, probabilities
from aces.sampling.noise import add_exact_noise

TAILS = (3.0, 4.0, 5.0, 6.0)  # standard deviations, on both sides
SIGNIFICANCE = 1e-5  # a sound law fails a test with this probability
_LEAST = 25  # expected values in a bin of the chi-square test; rarer ones are put together
_VALUES, _DRAWS = 2**14, 64  # pixels of the images that are drawn, and how many at a time


@dataclass(frozen=True)
class LawTest:
    """What the tests of one law found: p-values, which are small where the law is wrong."""

    sigma: float
    draws: int
    chi_square: float
    mean: float
    variance: float
    tails: dict[float, float]  # by the distance in standard deviations

    def fits(self) -> bool:
        """Whether no test rejects the law."""
        return min(self.chi_square, self.mean, self.variance, *self.tails.values()) >= SIGNIFICANCE


def check_law(sigma: float, *, draws: int = 10**9, seed: int = 0) -> LawTest:
    """Draw values as the sampler does on a CPU, and test them."""
    steps = lattice(sigma)
    counts = np.zeros(2 * steps.reach + 1, dtype=np.int64)
    out, base = (
        torch.empty((_DRAWS, 1, 1, _VALUES)),
        torch.zeros((1, 1, _VALUES), dtype=torch.int32),
    )
    for part in range(-(-draws // out.numel())):
        add_exact_noise(
            out, base, lattice=steps, stream=f"law/{seed}/{part}".encode(), first_draw=0
        )
        values = (out.mul_(steps.scale).round_().int() + steps.reach).flatten()
        counts += torch.bincount(values, minlength=len(counts)).numpy()
    return compare(counts, steps)


def compare(counts: np.ndarray, steps: Lattice) -> LawTest:
    """Test a histogram of values, (2 K + 1,) from -K to K, against the exact law."""
    half = np.array([float(p) for p in probabilities(steps.spread)]) / 2.0**192
    law = np.concatenate([half[:0:-1], half])
    draws = int(counts.sum())
    values = np.arange(-steps.reach, steps.reach + 1) / float(steps.spread)
    distance = np.abs(values)
    tails = {
        far: _binomial(int(counts[distance > far].sum()), draws, float(law[distance > far].sum()))
        for far in TAILS
    }
    observed, expected = _pooled(counts, law * draws)
    chi_square = float(stats.chisquare(observed, expected * draws / expected.sum()).pvalue)
    mean, variance = (_moment(counts, law, values**power) for power in (1, 2))
    return LawTest(float(steps.sigma), draws, chi_square, mean, variance, tails)


def _moment(counts: np.ndarray, law: np.ndarray, values: np.ndarray) -> float:
    """The two-sided p-value of the mean of `values`, by the central limit theorem."""
    draws, expected = counts.sum(), (law * values).sum()
    error = np.sqrt((law * (values - expected) ** 2).sum() / draws)
    return float(2 * stats.norm.sf(abs((counts * values).sum() / draws - expected) / error))


def _binomial(k: int, n: int, p: float) -> float:
    """The two-sided p-value of k successes."""
    return float(min(1.0, 2 * min(stats.binom.cdf(k, n, p), stats.binom.sf(k - 1, n, p))))


def _pooled(counts: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bins of the chi-square test: neighbours are put together until enough is expected."""
    group = np.floor(np.cumsum(expected) / _LEAST).astype(np.int64)
    group = np.unique(np.minimum(group, group[-1] - 1).clip(0), return_inverse=True)[1]
    return np.bincount(group, weights=counts), np.bincount(group, weights=expected)
