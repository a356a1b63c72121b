"""One theta, chosen with a promise: "lose at most 2 points of the core network's accuracy".

On images that are not reported, let d = [core right] - [ACES right] in {-1, 0, 1}; E d is the
natural accuracy that ACES loses. For each theta the hypothesis H(theta): E d >= loss is tested at
delta = 1 - confidence, in order of growing theta, until one cannot be rejected. The theta returned
is the last rejected one.

*Promise.* With probability >= 1 - delta over the calibration images, this theta loses at most
`loss`. Proof (fixed-sequence testing): let theta* be the first theta that loses more. A theta
beyond it is returned only if H(theta*), which is true, was rejected: probability <= delta. []

**The test.** The losses w = #{d = 1} and gains g = #{d = -1} of n images are trinomial. Write
s = w - g, p and q for the probabilities of a loss and of a gain, m = p + q. Under H, p - q >= loss.
- Split delta into gamma and delta - gamma. Clopper and Pearson's upper bound at gamma on m, from
  w + g, fails with probability <= gamma. Where it holds, m <= M.
- For a fixed q, a larger p makes s stochastically larger. So the largest probability of a sum as
  small as s, under H with m <= M, is found at p = q + loss.
- There, as a function of q, Pr[sum of n <= s] has the derivative n * (Pr[sum of n - 1 = s + 1] -
  Pr[sum of n - 1 = s]). If m <= 1/2, the polynomial q + (1 - m) z + p z^2 has real roots, so the
  sum is n less than a sum of independent coin flips, its distribution has one mode, and the mode is
  within 1 of the mean (Darroch, 1964). So for s <= (n - 1) * loss - 2 the probability grows with q,
  and is largest at m = M.
- The p-value is that probability plus gamma (Berger and Boos, 1994); 1 where the conditions are not
  met. It is exact but for what gamma costs.

A bound that knows only that d lies in [-1, 1] needs more images. Measured at loss 0.02, confidence
0.95 and 2,000 images of which 7 % change: H is rejected in half of the cases if the true loss is
0.85 points by this test, 0.2 by a betting bound (a mixture of fixed bets), 0.3 by Clopper-Pearson
bounds of both probabilities; by Hoeffding-Bentkus it never is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, gammaln, xlog1py, xlogy

from aces.errors import InputError
from aces.rule.statistics import upper_bound

_NUISANCE = 0.1  # gamma / delta
_MOST_IMAGES = 10**7


@dataclass(frozen=True)
class Calibration:
    """The chosen theta, what it promises, and the evidence."""

    theta: float
    loss: float  # the promise: at most so much natural accuracy is lost,
    confidence: float  # with this confidence
    images: int
    # False: not even the smallest theta could be shown to keep the promise; theta is 0, where the
    # core answers alone.
    shown: bool
    measured: float  # the loss on the calibration images at this theta
    # The thetas tested, in order; the last one could not be rejected, unless all could.
    thetas: tuple[float, ...]
    # The loss on the calibration images at each; below the chosen theta an upper end of it, where
    # images stopped early (`aces.rule.choice`).
    losses: tuple[float, ...]
    p_values: tuple[float, ...]  # how likely so small a loss would be if the promise were broken


def calibrate(
    core_right: np.ndarray,
    aces_right: np.ndarray,
    *,
    thetas: Sequence[float] | np.ndarray,
    loss: float,
    confidence: float,
) -> Calibration:
    """The largest theta that loses at most `loss` of the core's natural accuracy, with this
    confidence.

    core_right: (N,) whether the core network is right on each calibration image; aces_right: (N, T)
    whether ACES is (an abstention is not), at each of the growing thetas.
    """
    core_right, aces_right = np.asarray(core_right, bool), np.asarray(aces_right, bool)
    grid = np.asarray(thetas, dtype=float)
    check(core_right, aces_right, grid, loss=loss, confidence=confidence)
    images, delta = len(core_right), 1 - confidence
    worse = (core_right[:, None] & ~aces_right).sum(axis=0)
    better = (~core_right[:, None] & aces_right).sum(axis=0)
    p_values: list[float] = []
    for w, g in zip(worse.tolist(), better.tolist(), strict=True):
        p_values.append(p_value(w, g, images, loss=loss, delta=delta))
        if p_values[-1] > delta:
            break
    tested, kept = len(p_values), sum(p <= delta for p in p_values)
    measured = (worse - better) / images
    last = max(kept - 1, 0)
    return Calibration(
        theta=float(grid[last]) if kept else 0.0,
        loss=loss,
        confidence=confidence,
        images=images,
        shown=kept > 0,
        measured=float(measured[last]) if kept else 0.0,
        thetas=tuple(grid[:tested].tolist()),
        losses=tuple(measured[:tested].tolist()),
        p_values=tuple(p_values),
    )


def p_value(worse: int, better: int, images: int, *, loss: float, delta: float) -> float:
    """How likely so few losses and so many gains would be, at most, if E d >= loss; see above."""
    return p_value_of(worse - better, worse + better, images, loss=loss, delta=delta)


def p_value_of(total: int, changed: int, images: int, *, loss: float, delta: float) -> float:
    """The p-value of s = total from images of which `changed` are lost or gained; it grows with
    both.
    """
    gamma = delta * _NUISANCE
    most = float(upper_bound(changed, images, alpha=gamma))
    if most < loss:  # a loss of that size needs as many images that change
        return gamma
    if most > 0.5 or total > (images - 1) * loss - 2:
        return 1.0
    gain = (most - loss) / 2
    # The sum plus n is that of two binomials: the roots of x^2 - (1 + loss) x + p.
    root = np.sqrt((1 + loss) ** 2 - 4 * (gain + loss))
    first, second = min((1 + loss + root) / 2, 1.0), (1 + loss - root) / 2
    flips = np.arange(images + 1.0)
    ways = gammaln(images + 1) - gammaln(flips + 1) - gammaln(images - flips + 1)
    chance = np.exp(ways + xlogy(flips, second) + xlog1py(images - flips, -second))
    left = total + images - flips
    at_most = bdtr(np.clip(left, 0, images), images, first)
    return float(min(1.0, chance[left >= 0] @ at_most[left >= 0] + gamma))


def needed_images(*, loss: float, confidence: float) -> int:
    """The fewest images with which the promise can be shown at all: if no image changes."""
    delta = 1 - confidence

    def enough(images: int) -> bool:
        return p_value(0, 0, images, loss=loss, delta=delta) <= delta

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST_IMAGES:
            raise InputError(
                f"loss={loss} with confidence={confidence} would need more than {_MOST_IMAGES:,} "
                "images: allow a larger loss"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def check(
    core_right: np.ndarray,
    aces_right: np.ndarray,
    thetas: np.ndarray,
    *,
    loss: float,
    confidence: float,
) -> None:
    if not 0 < loss < 1:
        raise InputError(f"loss={loss} not in (0, 1): it is a share of the images, such as 0.02")
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence} not in (0, 1): such as 0.95")
    images = len(core_right)
    if aces_right.shape != (images, len(thetas)) or not len(thetas):
        raise InputError(
            f"answers of shape {aces_right.shape} for {images} images and {len(thetas)} thetas: "
            f"expected ({images}, {len(thetas)}), with one theta at least"
        )
    if not (np.diff(thetas) > 0).all():
        raise InputError("thetas: expected growing numbers, since they are tested in this order")
    needed = needed_images(loss=loss, confidence=confidence)
    if images < needed:
        raise InputError(
            f"{images} calibration images are too few to show a loss of at most {loss:g} with "
            f"confidence {confidence:g}: take at least {needed}, or allow a larger loss"
        )
