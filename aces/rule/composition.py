"""The ACES rule: CERTIFY (Algorithm 1) and PREDICT (Algorithm 4) over counts, for every image and
theta.

Notation, after the paper: a draw *selects* the certification network (1) if its score is <= theta,
else the core (0). `s_hat` and `c_hat` are the guesses of round GUESS: which network is selected,
and which class the certification network gives. p_S is the probability that a draw selects s_hat,
p_A that it is of class c_hat; `core` is the core network's class. An invalid draw (NaN logits) is
in no event, yet in n: it counts against every answer.

The claim of an answer c with radius R is that ACES gives c everywhere within R of the image. It
holds with probability >= 1 - alpha per image, for a theta fixed beforehand.

| case                                            | route   | answer | radius                     |
|-------------------------------------------------|---------|--------|----------------------------|
| s_hat = 1 and min(p_S, p_A) > 1/2               | CERTIFY | c_hat  | sigma * ppf(min(p_S, p_A)) |
| s_hat = 0 and p_S > 1/2                         | CORE    | core   | 0                          |
| otherwise, c_hat = core and p_A > 1/2           | AGREE   | c_hat  | 0                          |
| otherwise                                       | ABSTAIN | -1     | 0                          |

(with the lower bounds in place of p_S and p_A).
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from aces.errors import InputError
from aces.rule.counts import BINS, Counts, Looks, Round
from aces.rule.sequential import first_answer, group_lower_bound, looks_of
from aces.rule.smoothing import ABSTAIN, guessed, winner
from aces.rule.statistics import check_alpha, is_majority, lower_bound, radius

MULTIPLICITIES = ("iut", "bonferroni")


class Route(IntEnum):
    """Who gave the answer."""

    CERTIFY = 0  # the certification network, with a radius
    CORE = 1  # the core network, certifiably selected
    AGREE = 2  # both networks, the selection being unsure
    ABSTAIN = 3  # nobody


@dataclass(frozen=True)
class Outcomes:
    """One outcome for each of N images and T thetas."""

    prediction: np.ndarray  # (N, T) int, ABSTAIN where there is no answer
    radius: np.ndarray  # (N, T) float
    route: np.ndarray  # (N, T) Route
    # (N, T) float: certified radius of the selection; of the core below 0, of neither 0
    selection: np.ndarray
    p_select: np.ndarray | None = None  # (N, T) lower bound of p_S, where known
    p_class: np.ndarray | None = None  # (N, T) lower bound of p_A, where known


def certify(
    counts: Counts,
    core: np.ndarray,
    *,
    sigma: float,
    alpha: float,
    thetas,
    multiplicity: str = "iut",
) -> Outcomes:
    """With probability >= 1 - alpha, for each image and theta: ACES answers `prediction` everywhere
    within `radius`.

    core: (N,) classes of the core network; thetas: (T,) on the grid of the counts.

    `bonferroni` (the paper): both bounds at alpha / 2; one of them exceeds its probability with
    probability <= alpha.

    `iut` (intersection-union), never a smaller radius nor fewer answers. Fix the guesses; round
    BOUND is independent of them.
    - s_hat = 1: both bounds at the full alpha. If p_A > 1/2, AGREE is never false (both networks
      answer c_hat), and CERTIFY is false only if min(LB_S, LB_A) > min(p_S, p_A) = p_j, hence LB_j
      > p_j for that one fixed j. If p_A <= 1/2, both routes need LB_A > 1/2 >= p_A. Either way one
      bound must fail: probability <= alpha.
    - s_hat = 0 and c_hat != core: only CORE can answer, falsely only if LB_S > 1/2 >= p_S: the full
      alpha for LB_S.
    - s_hat = 0 and c_hat = core: CORE or AGREE answers the same class, falsely only if LB_S > 1/2
      >= p_S or LB_A > 1/2 >= p_A, two ways to fail: alpha / 2 each. (Giving CORE all of alpha would
      cost the route AGREE.)
    """
    core = _checked(counts, core, alpha=alpha, multiplicity=multiplicity)
    counts.check_sigma(sigma)
    places = places_of(thetas)
    certifies = guess_certifies(counts.score[Round.GUESS], places)
    split = (
        ~certifies & (counts.guess == core)[:, None]
        if multiplicity == "iut"
        else np.ones_like(certifies)
    )
    looks = looks_of(counts, Round.BOUND)
    p_select = _bound(agreeing(looks, places, certifies), looks, alpha=alpha, split=split)
    p_class = _bound(guessed(looks, counts.guess)[:, :, None], looks, alpha=alpha, split=split)
    selection = np.where(certifies, 1, -1) * radius(p_select, sigma=sigma)
    outcomes = combine(selection, radius(p_class, sigma=sigma), counts.guess, core)
    return replace(outcomes, p_select=p_select, p_class=p_class)


def ceiling(counts: Counts, *, sigma: float, alpha: float, multiplicity: str = "iut") -> float:
    """The largest radius `certify` can give from so many draws: all of them agree. No average
    certified radius exceeds it.
    """
    looks = looks_of(counts, Round.BOUND)
    level = alpha if multiplicity == "iut" else alpha / 2
    return float(
        radius(lower_bound(looks.draws, looks.draws, alpha=level * looks.spend).max(), sigma=sigma)
    )


def combine(
    selection: np.ndarray, class_radius: np.ndarray, guess: np.ndarray, core: np.ndarray
) -> Outcomes:
    """The table above, from certified radii: the rule itself.

    selection: (N, T) certified radius of the selection, above 0 for the certification network,
    below 0 for the core, 0 for neither; class_radius: (N, T) or (N, 1) of the certification
    network's class `guess` (N,), 0 for no certificate.
    """
    guess, core = guess[:, None], core[:, None]
    certified = class_radius > 0
    cases = [(selection > 0) & certified, selection < 0, certified & (guess == core)]
    route = np.select(cases, [Route.CERTIFY, Route.CORE, Route.AGREE], Route.ABSTAIN).astype(
        np.int8
    )
    return Outcomes(
        prediction=np.select(cases, [guess, core, guess], ABSTAIN),
        radius=np.where(route == Route.CERTIFY, np.minimum(selection, class_radius), 0.0),
        route=route,
        selection=selection,
    )


def predict(
    counts: Counts, core: np.ndarray, *, alpha: float, thetas, multiplicity: str = "iut"
) -> np.ndarray:
    """(N, T) With probability >= 1 - alpha, for each image and theta: ACES' class, unless ABSTAIN.

    Algorithm 4 with its second branch read as AND (printed with OR, it returns the core's class
    untested):

    | the draws of round PREDICT show             | answer       |
    |---------------------------------------------|--------------|
    | 1 is selected, and c is the class           | c            |
    | 0 is selected                               | core         |
    | otherwise, c is the class, and c = core     | c            |
    | otherwise                                   | ABSTAIN      |

    Both tests are two-sided, since the same draws pick what is tested. `bonferroni` (the paper):
    each at alpha / 2. `iut`: the selection at alpha, the class at alpha / 2. Proof, with s the true
    selection and a the true class:
    - s = 0: ACES gives core. Only the first row can be false, and it needs a majority of 1 where 0
      has it: one tail of a two-sided test, probability <= alpha / 2.
    - s = 1: ACES gives a. The first and third rows are false only if the class test declares
      another winner than a, probability <= alpha / 2; the second only if 0 is declared where 1 has
      the majority: one tail, <= alpha / 2. At theta = 1 every draw selects 1 by definition, so 0 is
      never declared, and the class test has all of alpha: ACES is its certification network.
    """
    core = _checked(counts, core, alpha=alpha, multiplicity=multiplicity)
    return predict_from(
        looks_of(counts, Round.PREDICT),
        core,
        alpha=alpha,
        places=places_of(thetas),
        multiplicity=multiplicity,
    )


def predict_from(
    looks: Looks, core: np.ndarray, *, alpha: float, places: np.ndarray, multiplicity: str
) -> np.ndarray:
    """(N, T) `predict` from the looks at round PREDICT: of the first look that answers, each at its
    share of alpha.
    """
    alpha, draws = alpha * looks.spend[:, None, None], looks.draws[:, None, None]
    ones, zeros = _votes(looks.score, places)
    top = winner(looks)
    guess = top.guess[:, :, None]
    half, full = (top.wins(alpha=level[:, :, 0])[:, :, None] for level in (alpha / 2, alpha))
    sure = np.where(places == BINS, full, half) if multiplicity == "iut" else half
    level = alpha if multiplicity == "iut" else alpha / 2
    cases = [
        is_majority(ones, draws, alpha=level) & sure,
        is_majority(zeros, draws, alpha=level),
        sure & (guess == core[:, None]),
    ]
    return first_answer(
        np.select(cases, [guess, core[:, None], guess], ABSTAIN), looks, abstain=ABSTAIN
    )


def places_of(thetas) -> np.ndarray:
    """(T,) bins of the thetas; a theta between two bins is refused, since the counts do not know it
    exactly.
    """
    thetas = np.atleast_1d(np.asarray(thetas, dtype=float))
    places = np.rint(thetas * BINS)
    for theta in thetas[~((thetas >= 0) & (thetas <= 1) & (np.abs(thetas * BINS - places) < 1e-6))]:
        raise InputError(
            f"theta={theta}: expected a multiple of 1/{BINS} in [0, 1], such as {np.clip(theta, 0, 1):.3f}"
        )
    return places.astype(np.int64)


def check_multiplicity(multiplicity: str) -> None:
    if multiplicity not in MULTIPLICITIES:
        raise InputError(
            f"multiplicity={multiplicity!r}: expected one of {', '.join(MULTIPLICITIES)}"
        )


def _votes(scores: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many draws select 1 and 0 at each theta; scores: (..., BINS + 1) histogram of the valid
    draws.
    """
    below = np.cumsum(scores, axis=-1)
    ones = below[..., places]
    return ones, below[..., -1:] - ones


def guess_certifies(scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(N, T) whether s_hat = 1: round GUESS selects the certification network, also in a tie
    (Algorithm 1).

    scores: (N, BINS + 1) of round GUESS.
    """
    ones, zeros = _votes(scores, places)
    return ~(zeros > ones)


def agreeing(looks: Looks, places: np.ndarray, certifies: np.ndarray) -> np.ndarray:
    """(J, N, T) draws that select s_hat, at each look."""
    ones, zeros = _votes(looks.score, places)
    return np.where(certifies, ones, zeros)


def _bound(k: np.ndarray, looks: Looks, *, alpha: float, split: np.ndarray) -> np.ndarray:
    """(N, T) lower bounds at alpha / 2 where `split`, at alpha elsewhere."""
    if split.all():
        return np.broadcast_to(group_lower_bound(k, looks, alpha=alpha / 2), split.shape)
    return np.where(
        split,
        group_lower_bound(k, looks, alpha=alpha / 2),
        group_lower_bound(k, looks, alpha=alpha),
    )


def _checked(counts: Counts, core: np.ndarray, *, alpha: float, multiplicity: str) -> np.ndarray:
    check_alpha(alpha)
    check_multiplicity(multiplicity)
    core = np.asarray(core)
    if core.shape != counts.guess.shape:
        raise InputError(
            f"core has shape {core.shape}: expected one class for each of the {len(counts.guess)} images"
        )
    return core
