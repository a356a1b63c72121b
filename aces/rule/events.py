"""The events of a theta: how many draws have a value of at most theta."""

from collections.abc import Sequence

import numpy as np

from aces.errors import InputError
from aces.grid import BINS, is_on_grid


def bins_of(thetas: float | Sequence[float] | np.ndarray) -> np.ndarray:
    """(T,) bins of the thetas; a theta between two bins is refused, since the counts do not know it
    exactly.
    """
    thetas = np.atleast_1d(np.asarray(thetas, dtype=float))
    for theta in thetas:
        if not is_on_grid(theta):
            raise InputError(
                f"theta={theta}: expected a multiple of 1/{BINS} in [0, 1], such as "
                f"{np.nan_to_num(np.clip(theta, 0, 1)):.3f}"
            )
    return np.rint(thetas * BINS).astype(np.int64)


def at_most(histogram: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """(..., T) draws whose value is at most each theta; histogram: (..., BINS + 1)."""
    return np.cumsum(histogram, axis=-1, dtype=np.int64)[..., bins]
