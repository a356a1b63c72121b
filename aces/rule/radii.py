"""The radii of a table: nine round numbers from 0 to what the draws can certify."""

import math

from aces.rule.statistics import max_radius

COUNT = 9
# 10^k times one of these is a round step.
_ROUND = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
# The paper's last radii, 2 at sigma 0.5 and 4 at sigma 1, lie 5 to 6 % above what 100,000 draws can
# certify. As much is allowed here, so that its tables come out at its settings.
_ABOVE = 1.06


def automatic_radii(*, sigma: float, n: int, alpha: float) -> list[float]:
    """0, step, ..., 8 step, with the largest round step whose last radius is at most 6 % above the
    largest that n draws can certify.
    """
    widest = _ABOVE * float(max_radius(n, sigma=sigma, alpha=alpha)) / (COUNT - 1)
    if widest <= 0:  # so few draws certify nothing: any radii will do
        widest = _ABOVE * sigma / (COUNT - 1)
    power = math.floor(math.log10(widest))
    steps = [digit * 10.0**k for k in (power - 1, power) for digit in _ROUND]
    step = max(step for step in steps if step <= widest * (1 + 1e-12))
    return [float(f"{i * step:.12g}") for i in range(COUNT)]
