"""Logits -> counts, on the device that made them: no draw ever leaves it.

Each draw is counted by its class, by the bin of its score (what the paper's rule compares with
theta) and by the bin of its doubt (what the confident rule compares with theta); draws of the
guessed class are counted by both bins once more.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aces.errors import InputError
from aces.rule.counts import BINS

Score = Callable[[Tensor], Tensor]  # logits (D, K) -> scores (D,) in [0, 1]

_DRAWS = 64  # with which a score of the user's own is tried
_EDGES = torch.arange(BINS + 1, dtype=torch.float64) / BINS


class Columns(NamedTuple):
    """The counts of G images, in the order of a tally's columns."""

    classes: np.ndarray  # (G, K)
    score: np.ndarray  # (G, BINS + 1)
    doubt: np.ndarray  # (G, BINS + 1)
    joint_score: np.ndarray  # (G, BINS + 1): only draws of the guessed class
    joint_doubt: np.ndarray  # (G, BINS + 1)
    invalid: np.ndarray  # (G,)


def width(num_classes: int) -> int:
    """The number of a tally's columns."""
    return num_classes + 4 * (BINS + 1) + 1


def split(table: np.ndarray, *, num_classes: int) -> Columns:
    """The columns of a tally, (..., G, width), as views."""
    ends = np.cumsum([num_classes, BINS + 1, BINS + 1, BINS + 1, BINS + 1])
    classes, score, doubt, joint_score, joint_doubt, invalid = np.split(table, ends, axis=-1)
    return Columns(classes, score, doubt, joint_score, joint_doubt, invalid[..., 0])


class CompiledTally:
    """Counts of the draws of G images on a CPU, in one compiled pass over the logits.

    guess: (G,) guessed classes, -1 for none. score: a function from logits to scores; without one
    the score is the entropy, or the probability of class 0 of the selection network.
    """

    def __init__(self, guess: Tensor, *, num_classes: int, score: Score | None = None):
        from aces.sampling.kernels import count_draws

        self._count, self._score = count_draws, score
        self._guess = guess.long().contiguous().numpy()
        self._table = np.zeros((len(guess), width(num_classes)), dtype=np.int64)

    def add(self, rows: Tensor, logits: Tensor, selection: Tensor | None = None) -> None:
        """Count D draws.

        rows: (D,) row of each draw's image; logits: (D, K); selection: (D, 2) logits of the
        selection network, if there is one.
        """
        scores = np.zeros(0)
        if self._score is not None or selection is not None:
            scores = scores_of(logits.float(), selection, self._score).double().numpy()
        self._count(
            logits.float().contiguous().numpy(), rows.numpy(), self._guess, scores, self._table
        )

    def counts(self) -> np.ndarray:
        """(G, width) int64; see `split`."""
        return self._table


class TorchTally:
    """The same by torch's operations, on any device. One more column takes what belongs nowhere."""

    def __init__(self, guess: Tensor, *, num_classes: int, score: Score | None = None):
        self.guess, self.num_classes, self.width = guess, num_classes, width(num_classes)
        self._score = score
        self.edges = _EDGES.to(guess.device)
        self.table = torch.zeros(
            len(guess) * (self.width + 1), dtype=torch.int64, device=guess.device
        )

    def add(self, rows: Tensor, logits: Tensor, selection: Tensor | None = None) -> None:
        """Count D draws; see `CompiledTally.add`."""
        logits = logits.float()
        scores = scores_of(logits, selection, self._score)
        valid = logits.isfinite().all(dim=1) & scores.isfinite()
        label = logits.argmax(dim=1)
        score = self.num_classes + bins(scores, self.edges)
        doubt = self.num_classes + BINS + 1 + bins(doubts(logits), self.edges)
        guessed, joint, nowhere = valid & (label == self.guess[rows]), 2 * (BINS + 1), self.width
        columns = torch.stack(
            [
                torch.where(valid, label, self.width - 1),
                torch.where(valid, score, nowhere),
                torch.where(valid, doubt, nowhere),
                torch.where(guessed, score + joint, nowhere),
                torch.where(guessed, doubt + joint, nowhere),
            ]
        )
        cells = (rows * (self.width + 1) + columns).reshape(-1)
        self.table.scatter_add_(0, cells, torch.ones_like(cells))

    def counts(self) -> np.ndarray:
        """(G, width) int64; see `split`."""
        return self.table.view(-1, self.width + 1)[:, :-1].cpu().numpy()


def scores_of(logits: Tensor, selection: Tensor | None, score: Score | None) -> Tensor:
    """(D,) what the paper's rule compares with theta; NaN for an invalid draw."""
    if score is not None:
        return _own_scores(logits, score)
    return entropy(logits) if selection is None else core_probability(selection.float())


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
    network if <= theta. NaN unless both logits are finite.
    """
    probability = torch.softmax(logits, dim=1)[:, 0].clamp(0.0, 1.0)
    return torch.where(logits.isfinite().all(dim=1), probability, torch.nan)


def doubts(logits: Tensor) -> Tensor:
    """(D,) how unsure each draw is, in (0, 1]. float64.

    It grows with 1 - p, where p is the largest probability of the softmax. Networks that were
    trained for long have tiny 1 - p, so the doubt is a map of it that tells the small ones apart
    (any map that keeps the order leaves the rule the same):

        doubt = 1 / (1 + log((1 - 1/K) / (1 - p))),

    which is 1 where all K classes are equally likely. Measured against the margin of the two
    largest logits, and against the entropy of sharpened probabilities, on six networks of the
    default size, it was best or nearly best on all: docs/explanation/doubt.md.

    1 - p = rest / (1 + rest), where rest is the sum of exp(logit - largest) over the other
    classes; where that underflows, its logarithm is about the second largest logit minus the
    largest.
    """
    logits = logits.double()
    (first, second), label = logits.topk(2, dim=1).values.unbind(dim=1), logits.argmax(dim=1)
    rest = (logits - first[:, None]).exp().scatter(1, label[:, None], 0.0).sum(dim=1)
    log_rest = torch.where(rest > 0, rest.log(), second - first)
    surprise = rest.log1p() - log_rest  # -log(1 - p)
    uniform = math.log(logits.shape[1] / (logits.shape[1] - 1))
    return 1 / (1 + (surprise - uniform).clamp_min(0.0))


def bins(scores: Tensor, edges: Tensor | None = None) -> Tensor:
    """(D,) i with (i-1)/BINS < score <= i/BINS, 0 for a score of 0: exact in float64. Anything in
    range for NaN.
    """
    edges = _EDGES if edges is None else edges
    return torch.bucketize(scores.double(), edges).clamp_max(BINS)


def check_score(score: Score, *, num_classes: int) -> None:
    """InputError unless a draw's score is the same beside other draws: it must be a function of the
    draw's own logits.
    """
    source = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn((_DRAWS, num_classes), generator=source)
    order = torch.randperm(_DRAWS, generator=source)
    scores = _own_scores(logits, score)
    for rows in (order, order[: _DRAWS // 4], order[:1]):
        found = _own_scores(logits[rows], score)
        if not torch.allclose(found, scores[rows], rtol=0, atol=1e-5, equal_nan=True):
            raise InputError(
                f"the score {_score_name(score)} of a draw depends on the draws beside it, or on "
                "chance: no certificate can hold; compute it from each row of the logits alone"
            )


def _score_name(score: Score) -> str:
    return getattr(score, "__qualname__", type(score).__name__)


def _own_scores(logits: Tensor, score: Score) -> Tensor:
    """Scores by a function of the user's, checked. It has a copy: the logits are counted later."""
    scores = score(logits.clone())
    name = _score_name(score)
    if not isinstance(scores, Tensor) or scores.shape != logits.shape[:1]:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(
            f"the score {name} gives {found} for logits of shape {tuple(logits.shape)}: expected "
            f"a tensor of shape ({len(logits)},), one value in [0, 1] for each draw"
        )
    outside = scores[(scores < 0) | (scores > 1)]
    if len(outside):
        raise InputError(
            f"the score {name} gives {outside[0].item():g}: expected values in [0, 1]; clamp or "
            "scale them"
        )
    return scores
