"""What a rule answers: one outcome for each image and theta."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

ABSTAIN = -1


class Route(IntEnum):
    """Who gave the answer."""

    CERTIFY = 0  # the certification network, with a radius
    CORE = 1  # the core network, certifiably selected
    AGREE = 2  # both networks, the selection being unsure
    ABSTAIN = 3  # nobody


class Selected(IntEnum):
    """Which network is certifiably selected."""

    CERTIFY = 0
    CORE = 1
    NEITHER = 2


@dataclass(frozen=True)
class Outcomes:
    """One outcome for each of N images and T thetas.

    `p_select` and `p_class` are the lower bounds that the radius was computed from. Each of them
    holds with probability >= 1 - alpha on its own. Both together hold with probability
    >= 1 - 2 alpha only; the prediction with its radius holds with probability >= 1 - alpha all the
    same (the proof is with each rule).
    """

    prediction: np.ndarray  # (N, T) int, ABSTAIN where there is no answer
    radius: np.ndarray  # (N, T) float
    route: np.ndarray  # (N, T) Route
    selected: np.ndarray  # (N, T) Selected
    selection_radius: np.ndarray  # (N, T) float >= 0: within it the same network is selected
    p_select: np.ndarray | None = None  # (N, T) lower bound of the selection's probability
    p_class: np.ndarray | None = None  # (N, T) lower bound of the guessed class's probability
