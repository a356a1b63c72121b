"""The grid of thetas: counts keep scores in bins of width 1/BINS, so these thetas are exact."""

BINS = 1000


def is_on_grid(theta: float) -> bool:
    """Whether theta is a multiple of 1/BINS in [0, 1]."""
    return 0 <= theta <= 1 and abs(theta * BINS - round(theta * BINS)) < 1e-6


def is_step(step: float) -> bool:
    """Whether 0, step, 2 step, ... are on the grid and end at 1."""
    if not 0 < step <= 1:
        return False
    bins = round(step * BINS)
    return abs(step * BINS - bins) < 1e-9 and bins > 0 and BINS % bins == 0


def thetas(step: float) -> list[float]:
    """0, step, 2 step, ..., 1, each the exact float of its bin."""
    return [i / BINS for i in range(0, BINS + 1, round(step * BINS))]
