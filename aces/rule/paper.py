"""The paper's rule: CERTIFY (Algorithm 1) and PREDICT (Algorithm 4) over counts, for every image
and theta.

Notation, after the paper: a draw *selects* the certification network (1) if its score is <= theta,
else the core (0). `s_hat` and `c_hat` are the guesses of round GUESS: which network is selected,
and which class the certification network gives. p_S is the probability that a draw selects s_hat,
p_A that it is of class c_hat; `core` is the core network's class. An invalid draw (NaN logits) is
in no event, yet in n: it counts against every answer.

The claim of an answer c with radius R is that ACES gives c everywhere within R of the image. It
holds with probability >= 1 - alpha per image, for a theta fixed beforehand.

| case                                  | route   | answer | radius                             |
|---------------------------------------|---------|--------|------------------------------------|
| s_hat = 1, p_S > 1/2, R_A > 0         | CERTIFY | c_hat  | min(sigma * ppf(p_S), R_A)         |
| s_hat = 0 and p_S > 1/2               | CORE    | core   | 0                                  |
| otherwise, c_hat = core and R_A > 0   | AGREE   | c_hat  | 0                                  |
| otherwise                             | ABSTAIN | -1     | 0                                  |

with the lower bound in place of p_S, and R_A the certified radius of the class: sigma * ppf(p_A)
with the lower bound in place of p_A, or the radius by the runner-up (`aces.rule.smoothing`).
"""

import numpy as np

from aces.errors import InputError
from aces.grid import BINS
from aces.rule.counts import Counts, Round
from aces.rule.events import at_most
from aces.rule.outcomes import ABSTAIN, Outcomes, Route, Selected
from aces.rule.sequential import Evidence, evidence_of
from aces.rule.smoothing import ClassBound, bound_class, by_runner_up, winner
from aces.rule.statistics import is_majority, radius

MULTIPLICITIES = ("iut", "bonferroni")


def certify(
    counts: Counts,
    core: np.ndarray,
    *,
    sigma: float,
    alpha: float,
    bins: np.ndarray,
    multiplicity: str,
) -> Outcomes:
    """With probability >= 1 - alpha, for each image and theta: ACES answers `prediction` everywhere
    within `radius`.

    core: (N,) classes of the core network; bins: (T,) of the thetas.

    `bonferroni` (the paper): both bounds at alpha / 2, the class by one bound; one of them exceeds
    its probability with probability <= alpha.

    `iut` (intersection-union), never fewer answers. Write r_S and r_A for the true radii of the
    selection and of the class c_hat (0 where it does not win), R_S and R_A for the certified ones;
    at level a, R_S > r_S and R_A > r_A each have probability <= a. Fix the guesses; round BOUND is
    independent of them.
    - s_hat = 1: both at the full alpha. If r_A > 0, AGREE is never false (both networks answer
      c_hat), and CERTIFY is false only if min(R_S, R_A) > min(r_S, r_A) = r_j, hence R_j > r_j for
      that one fixed j. If r_A = 0, both routes need R_A > 0 = r_A. Either way one certain bound
      must fail: probability <= alpha.
    - s_hat = 0 and c_hat != core: only CORE can answer, falsely only if LB_S > 1/2 >= p_S: the full
      alpha for LB_S.
    - s_hat = 0 and c_hat = core: CORE or AGREE answers the same class, falsely only if LB_S > 1/2
      >= p_S or R_A > 0 = r_A, two ways to fail: alpha / 2 each. (Giving CORE all of alpha would
      cost the route AGREE.)
    """
    evidence = evidence_of(counts, Round.BOUND)
    certifies = guess_certifies(counts.score[Round.GUESS], bins)
    if multiplicity == "iut":
        split = ~certifies & (counts.guess == core)[:, None]
        two = by_runner_up(counts, alpha=alpha)
    else:
        split = np.ones_like(certifies)
        two = np.zeros(len(core), dtype=bool)
    k = agreeing(evidence, bins, certifies)
    whole, half = alpha, alpha / 2
    p_select = _at(split, lambda level: evidence.lower_bound(k, alpha=level), whole, half)
    levels: dict[float, ClassBound] = {
        level: bound_class(counts, alpha=level, sigma=sigma, two=two) for level in (whole, half)
    }
    selection_radius = radius(p_select, sigma=sigma)
    return compose(
        selected=selected_of(certifies, p_select),
        selection_radius=selection_radius,
        class_radius=_at(split, lambda level: levels[level].radius[:, None], whole, half),
        guess=counts.guess,
        core=core,
        p_select=p_select,
        p_class=_at(split, lambda level: levels[level].p_lower[:, None], whole, half),
    )


def compose(
    *,
    selected: np.ndarray,
    selection_radius: np.ndarray,
    class_radius: np.ndarray,
    guess: np.ndarray,
    core: np.ndarray,
    certified: np.ndarray | None = None,
    p_select: np.ndarray | None = None,
    p_class: np.ndarray | None = None,
) -> Outcomes:
    """The table above, from who is selected and what is certified: the rule itself.

    selected: (N, T) Selected; selection_radius: (N, T); class_radius: (N, T) or (N, 1) of the
    certification network's class `guess` (N,); certified: whether this class is certified, by
    default where its radius is above 0.
    """
    guess, core = guess[:, None], core[:, None]
    certified = class_radius > 0 if certified is None else certified
    cases = [
        (selected == Selected.CERTIFY) & certified,
        selected == Selected.CORE,
        certified & (guess == core),
    ]
    route = np.select(cases, [Route.CERTIFY, Route.CORE, Route.AGREE], Route.ABSTAIN)
    return Outcomes(
        prediction=np.select(cases, [guess, core, guess], ABSTAIN).astype(np.int32),
        radius=np.where(cases[0], np.minimum(selection_radius, class_radius), 0.0),
        route=route.astype(np.int8),
        selected=selected,
        selection_radius=selection_radius,
        p_select=p_select,
        p_class=p_class,
    )


def predict(
    counts: Counts, core: np.ndarray, *, alpha: float, bins: np.ndarray, multiplicity: str
) -> np.ndarray:
    """(N, T) With probability >= 1 - alpha, for each image and theta: ACES' class, unless ABSTAIN.

    Algorithm 4 with its second branch read as AND (printed with OR, it returns the core's class
    untested):

    | the draws show                              | answer       |
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
    evidence = evidence_of(counts, counts.predict_round)
    return predict_from(evidence, core, alpha=alpha, bins=bins, multiplicity=multiplicity)


def predict_from(
    evidence: Evidence, core: np.ndarray, *, alpha: float, bins: np.ndarray, multiplicity: str
) -> np.ndarray:
    """(N, T) `predict` from the looks at a round: of the first look that answers, each at its
    share of alpha.
    """
    looks, top = evidence.looks, winner(evidence.looks)
    half, full = (top.wins(evidence.levels(level)) for level in (alpha / 2, alpha))
    levels = evidence.levels(alpha if multiplicity == "iut" else alpha / 2)
    at_one = (bins == BINS) & (multiplicity == "iut")
    answers = np.empty((len(looks.draws), len(core), len(bins)), dtype=np.int32)
    for j, (n, level) in enumerate(zip(looks.draws, levels, strict=True)):
        ones, zeros = _votes(looks.score[j], bins)
        guess = top.guess[j][:, None]
        sure = np.where(at_one, full[j][:, None], half[j][:, None])
        cases = [
            is_majority(ones, int(n), alpha=level) & sure,
            is_majority(zeros, int(n), alpha=level),
            sure & (guess == core[:, None]),
        ]
        answers[j] = np.select(cases, [guess, core[:, None], guess], ABSTAIN)
    return evidence.first_answer(answers, abstain=ABSTAIN)


def check_multiplicity(multiplicity: str) -> None:
    if multiplicity not in MULTIPLICITIES:
        raise InputError(
            f"multiplicity={multiplicity!r}: expected one of {', '.join(MULTIPLICITIES)}"
        )


def guess_certifies(scores: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """(N, T) whether s_hat = 1: round GUESS selects the certification network, also in a tie
    (Algorithm 1).

    scores: (N, BINS + 1) of round GUESS.
    """
    ones, zeros = _votes(scores, bins)
    return ~(zeros > ones)


def agreeing(evidence: Evidence, bins: np.ndarray, certifies: np.ndarray) -> np.ndarray:
    """(J, N, T) draws that select s_hat, at each look."""
    ones, zeros = _votes(evidence.looks.score, bins)
    return np.where(certifies, ones, zeros)


def selected_of(certifies: np.ndarray, p_select: np.ndarray) -> np.ndarray:
    """(N, T) Selected: the guessed network where its bound exceeds 1/2."""
    guessed = np.where(certifies, Selected.CERTIFY, Selected.CORE)
    return np.where(p_select > 0.5, guessed, Selected.NEITHER).astype(np.int8)


def _votes(scores: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many draws select 1 and 0 at each theta; scores: (..., BINS + 1) histogram of the valid
    draws.
    """
    below = at_most(scores, np.append(bins, BINS))
    ones = below[..., :-1]
    return ones, below[..., -1:] - ones


def _at(split: np.ndarray, bound, whole: float, half: float) -> np.ndarray:
    """(N, T) `bound` at the level alpha / 2 where `split`, at alpha elsewhere."""
    if split.all():
        return np.broadcast_to(bound(half), split.shape)
    if not split.any():
        return np.broadcast_to(bound(whole), split.shape)
    return np.where(split, bound(half), bound(whole))
