"""The learning rate as a function of the time in epochs."""

from bisect import bisect_right

from aces.params import Train

PEAK = 0.25  # the share of a one-cycle schedule after which the learning rate falls
DECAY = 0.1  # at each milestone of a step schedule


def learning_rate(settings: Train, *, time: float) -> float:
    """The learning rate at `time`, in epochs from 0 to `settings.epochs` (fractions within an
    epoch).

    `one-cycle` rises linearly to lr, then falls linearly to 0; `step` is lr times 0.1 for each
    milestone passed.
    """
    if settings.schedule == "step":
        return settings.lr * DECAY ** decays(settings, epoch=int(time))
    done = time / settings.epochs
    return settings.lr * (done / PEAK if done < PEAK else (1 - done) / (1 - PEAK))


def decays(settings: Train, *, epoch: int) -> int:
    """How many milestones have passed in this epoch."""
    return bisect_right(settings.milestones, epoch)
