"""Fewer draws, the same guarantee: bounds over several looks, and a test that may be read at any time.

Group-sequential bounds: the looks are fixed beforehand and share alpha, so the largest bound over the looks made is
a lower bound at 1 - alpha (union bound), however it was decided to stop.
"""

import numpy as np

from aces.counts import Counts, Looks, Round
from aces.errors import InputError
from aces.statistics import lower_bound


def looks_of(counts: Counts) -> Looks:
    """The looks at round BOUND; a run of fixed n is one look, which spends all of alpha."""
    if counts.looks is not None:
        return counts.looks
    draws = counts.draws[Round.BOUND]
    if draws.min(initial=counts.settings.n) != draws.max(initial=counts.settings.n):
        raise InputError(f"the counts have {draws.min()} to {draws.max()} draws an image, expected {counts.settings.n} of "
                         "each: a run that stops early must record its looks; sample again")
    images = np.arange(len(counts.guess))
    return Looks(draws=np.array([counts.settings.n]), spend=np.array([1.0]), made=np.ones(len(images), dtype=np.int64),
                 guessed=counts.classes[Round.BOUND, images, counts.guess][None], entropy=counts.entropy[Round.BOUND][None])


def group_lower_bound(k: np.ndarray, looks: Looks, *, alpha: float) -> np.ndarray:
    """With probability >= 1 - alpha, for each image: every probability is at least the bound returned.

    k: (J, N, ...) successes at each look; returns (N, ...): the largest bound over the looks made.
    Look j fails with probability <= spend[j] * alpha, and the spends sum to at most 1.
    """
    assert looks.spend.sum() <= 1 + 1e-9
    best = np.zeros(k.shape[1:])
    for j, (n, spend) in enumerate(zip(looks.draws, looks.spend)):
        made = looks.made > j
        best[made] = np.maximum(best[made], lower_bound(k[j, made], n, alpha=spend * alpha))
    return best
