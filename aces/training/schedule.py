"""The learning rate as a function of the time in epochs."""

from bisect import bisect_right

from aces.params import Train

DECAY = 0.1  # the factor at each milestone: part of what the schedule `step` means


def learning_rate(settings: Train, *, time: float) -> float:
    """The learning rate at `time`, in epochs from 0 to `settings.epochs` (fractions within an
    epoch).

    `one-cycle` rises linearly to lr during the share `peak` of the epochs, then falls linearly to
    0; `step` is lr times 0.1 for each milestone passed.
    """
    if settings.schedule == "step":
        return settings.lr * DECAY ** decays(settings, epoch=int(time))
    done, peak = time / settings.epochs, settings.peak
    return settings.lr * (done / peak if done < peak else (1 - done) / (1 - peak))


def decays(settings: Train, *, epoch: int) -> int:
    """How many milestones have passed in this epoch."""
    return bisect_right(settings.milestones, epoch)
