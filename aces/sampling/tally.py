"""Logits -> counts, on the device that made them: no draw ever leaves it."""

import math

import numpy as np
import torch
from torch import Tensor

from aces.rule.counts import BINS

_EDGES = torch.arange(BINS + 1, dtype=torch.float64) / BINS


class Tally:
    """Counts of the draws of G images, a row each: K classes, the scores' bins, the same for draws
    of the guessed class, invalid draws. One more column takes what belongs nowhere.

    guess: (G,) guessed classes, -1 for none.
    """

    def __init__(self, guess: Tensor, *, num_classes: int):
        self.guess, self.num_classes, self.width = guess, num_classes, width(num_classes)
        self.edges = _EDGES.to(guess.device)
        self.table = torch.zeros(
            len(guess) * (self.width + 1), dtype=torch.int64, device=guess.device
        )

    def add(self, row: Tensor, logits: Tensor, selection: Tensor | None = None) -> None:
        """Count D draws.

        row: (D,) row of each draw's image; logits: (D, K); selection: (D, 2) logits of the
        selection network, if that is the mechanism.
        """
        logits = logits.float()
        valid = logits.isfinite().all(dim=1)
        if selection is None:
            scores = entropy(logits)
        else:
            scores = core_probability(selection.float())
            valid &= selection.isfinite().all(dim=1)
        label, bin_, nowhere = logits.argmax(dim=1), bins(scores, self.edges), self.width
        columns = torch.stack(
            [
                torch.where(valid, label, self.width - 1),
                torch.where(valid, self.num_classes + bin_, nowhere),
                torch.where(
                    valid & (label == self.guess[row]), self.num_classes + BINS + 1 + bin_, nowhere
                ),
            ]
        )
        cells = (row * (self.width + 1) + columns).reshape(-1)
        self.table.scatter_add_(0, cells, torch.ones_like(cells))

    def counts(self) -> np.ndarray:
        """(G, width) int64; see `split`."""
        return self.table.view(-1, self.width + 1)[:, :-1].cpu().numpy()


def width(num_classes: int) -> int:
    return num_classes + 2 * (BINS + 1) + 1


def split(
    table: np.ndarray, *, num_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The columns of a tally: classes (G, K), entropy (G, BINS + 1), joint (G, BINS + 1), invalid
    (G,).
    """
    classes, scores, joint, invalid = np.split(
        table, np.cumsum([num_classes, BINS + 1, BINS + 1]), axis=1
    )
    return classes, scores, joint, invalid[:, 0]


def entropy(logits: Tensor) -> Tensor:
    """(D,) entropy of the softmax to base m, the number of classes: 0 is certain, 1 is uniform. NaN
    for NaN.

    Clamped to [0, 1], which rounding can leave. Log-probabilities are cut at -200, where p is 0 in
    float32: 0 * -inf would be NaN.
    """
    log_p = torch.log_softmax(logits, dim=1).clamp_min(-200.0)
    return (-(log_p.exp() * log_p).sum(dim=1) / math.log(logits.shape[1])).clamp(0.0, 1.0)


def core_probability(logits: Tensor) -> Tensor:
    """(D,) probability of class 0, "core", of the selection network; it selects the certification
    network if <= theta.
    """
    return torch.softmax(logits, dim=1)[:, 0].clamp(0.0, 1.0)


def bins(scores: Tensor, edges: Tensor | None = None) -> Tensor:
    """(D,) i with (i-1)/BINS < score <= i/BINS, 0 for a score of 0: exact in float64. Anything in
    range for NaN.
    """
    edges = _EDGES if edges is None else edges
    return torch.bucketize(scores.double(), edges).clamp_max(BINS)
