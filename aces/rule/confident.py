"""The confident rule: CERTIFY and PREDICT with one event for each class.

The paper bounds two events of a draw, "the score is <= theta" and "the class is c", and takes the
smaller radius. The first says nothing about the class: draws may be confident and disagree. Here a
draw counts only if both hold at once.

**The model.** For a draw z = x + noise let c(z) be its class and doubt(z) in [0, 1] how unsure the
certification network is (`Counts.doubt`). For a class c let

    E_c = { z : c(z) = c and doubt(z) <= theta },      P_c(x) = Pr[z in E_c].

Confident ACES answers c if P_c(x) > 1/2, which at most one class can have, and else with the core
network's class. A larger theta enlarges every E_c. At theta = 1 every draw counts, and the model is
defined as plain randomized smoothing: the class of the largest P_c, the core is never asked.

**The radius.** ppf(P_c(x)) is 1/sigma-Lipschitz in x (Cohen et al., 2019; Salman et al., 2019,
Lemma 2; it holds for any event). So P_c(x) >= p > 1/2 implies P_c > 1/2, hence the answer c,
everywhere within sigma * ppf(p).

**CERTIFY** for theta < 1. Let c_hat be the most frequent class of round GUESS, and s_hat = 1 if
these draws promise a majority of E_c_hat. Bounds on the draws of round BOUND, each at the full
alpha: LB <= P_c_hat, U_1 >= P_c_hat, and U_2, which is to show that no other class has a majority.

*U_2.* A draw in E_b, for a class b other than c_hat, is of class b, and it is one of those whose
doubt is <= theta and whose class is not c_hat. So the number of draws in E_b is at most

    m = min(draws of the most frequent class but c_hat,
            draws with doubt <= theta and another class than c_hat),

whichever class b is. U_2 is the upper bound that m successes would give. Upper bounds grow with the
number of successes, hence U_2 >= U(b), the bound of P_b from its own draws, for every b at once.
The number of classes costs nothing: only one of them can have the majority, which one is a fact
about the image, and only the bound of that one has to hold.

| case                                     | route   | answer | radius           |
|------------------------------------------|---------|--------|------------------|
| s_hat = 1 and LB > 1/2                   | CERTIFY | c_hat  | sigma * ppf(LB)  |
| s_hat = 0 and U_1 <= 1/2 and U_2 <= 1/2  | CORE    | core   | 0                |
| otherwise, c_hat = core and U_2 <= 1/2   | AGREE   | c_hat  | 0                |
| otherwise                                | ABSTAIN | -1     | 0                |

*Theorem.* For each image and each theta fixed beforehand, an answer that is not ABSTAIN is false
with probability <= alpha.

*Proof.* Fix the guesses; round BOUND is independent of them. First note (*): if LB > 1/2, then
U(b) < 1/2 for every other class b. For with k draws in E_c_hat, E_b has o <= n - k draws, and an
upper bound is the mirror of a lower one: U(b) = 1 - LB(n - o) <= 1 - LB(k) < 1/2. There are three
cases.
(A) P_c_hat > 1/2. The model answers c_hat. AGREE is right. With s_hat = 1 only CERTIFY can be
    false, by its radius: LB > P_c_hat. With s_hat = 0 only CORE can be false: U_1 < P_c_hat.
(B) Another class c' has P_c' > 1/2. All three routes need U(c') <= 1/2 < P_c': CORE and AGREE
    because U(c') <= U_2 <= 1/2, CERTIFY by (*).
(C) No class has a majority. The model answers core. CORE is right; AGREE is right, since c_hat =
    core. CERTIFY needs LB > 1/2 >= P_c_hat.
In each case one fixed bound must fail, that of P_c_hat or that of P_c', which has probability <=
alpha. (In (B), c' may be the core's class; then CORE is even right.) []

Nothing is split, so there is no choice of `multiplicity`. With looks, look j has the level
spend[j] * alpha, a bound is the best over the looks made, and the argument holds word for word: at
each look m is at least the number of draws in E_c', and (*) is about one look. The spends sum to
at most 1.

**PREDICT** for theta < 1, from draws that are independent of round GUESS; bounds as above:

| the draws show                           | answer  |
|------------------------------------------|---------|
| LB > 1/2                                 | c_hat   |
| U_1 <= 1/2 and U_2 <= 1/2                | core    |
| otherwise, c_hat = core and U_2 <= 1/2   | c_hat   |
| otherwise                                | ABSTAIN |

An answer is false with probability <= alpha, without s_hat: no radius is claimed. (A) Only `core`
can be false: U_1 < P_c_hat. (B) Every row needs U(c') <= 1/2 < P_c'. (C) Only the first row can be
false: LB > 1/2 >= P_c_hat. With looks the answer is that of the first look that answers, with the
bounds of that look alone: it is false with probability <= spend[j] * alpha, and later looks leave
it as it is.

An invalid draw (NaN logits) is in no event, yet in n. Whatever class one gave it, the answer could
be another; the model above is the one that counts it for nobody.
"""

import numpy as np

from aces.errors import InputError
from aces.grid import BINS
from aces.rule import smoothing
from aces.rule.counts import Counts, Round
from aces.rule.events import at_most
from aces.rule.outcomes import ABSTAIN, Outcomes, Route, Selected
from aces.rule.sequential import Evidence, evidence_of
from aces.rule.statistics import complement, radius


def certify(
    counts: Counts, core: np.ndarray, *, sigma: float, alpha: float, bins: np.ndarray
) -> Outcomes:
    """With probability >= 1 - alpha, for each image and theta: confident ACES answers `prediction`
    everywhere within `radius`.

    core: (N,) classes of the core network; bins: (T,) of the thetas. `p_class` is LB, the bound of
    P_c_hat. `p_select` is the same where s_hat = 1; elsewhere it is 1 - max(U_1, U_2), with which
    the core is selected.
    """
    check_guesses(counts, bins)
    evidence = evidence_of(counts, Round.BOUND)
    mine, others = events(evidence, counts.guess, bins)
    certifies = guess_majority(
        at_most(counts.doubt[Round.GUESS], bins),
        smoothing.guessed(counts.classes[Round.GUESS], counts.guess)[:, None],
        counts.settings.n0,
    )
    p_class = evidence.lower_bound(mine, alpha=alpha)
    p_other = evidence.upper_bound(others, alpha=alpha)
    p_core = complement(np.maximum(evidence.upper_bound(mine, alpha=alpha), p_other), up=False)
    p_select = np.where(certifies, p_class, p_core)
    outcomes = _table(
        certifies=certifies,
        majority=p_class > 0.5,
        core_shown=p_core >= 0.5,
        no_other=p_other <= 0.5,
        guess=counts.guess[:, None],
        core=core[:, None],
        selection_radius=radius(p_select, sigma=sigma),
        p_select=p_select,
        p_class=p_class,
    )
    return _with_smoothing(outcomes, counts, sigma=sigma, alpha=alpha, bins=bins)


def predict(counts: Counts, core: np.ndarray, *, alpha: float, bins: np.ndarray) -> np.ndarray:
    """(N, T) With probability >= 1 - alpha, for each image and theta: the class of confident ACES,
    unless ABSTAIN.
    """
    check_guesses(counts, bins)
    evidence = evidence_of(counts, counts.predict_round)
    return predict_from(evidence, counts.guess, core, alpha=alpha, bins=bins)


def predict_from(
    evidence: Evidence, guess: np.ndarray, core: np.ndarray, *, alpha: float, bins: np.ndarray
) -> np.ndarray:
    """(N, T) `predict` from the looks at a round: of the first look that answers, each with the
    bounds of that look alone.
    """
    mine, others = events(evidence, guess, bins)
    guess, core = guess[:, None], core[:, None]
    no_other = evidence.upper_bounds(others, alpha=alpha) <= 0.5
    no_guess = evidence.upper_bounds(mine, alpha=alpha) <= 0.5
    cases = [
        evidence.lower_bounds(mine, alpha=alpha) > 0.5,
        no_guess & no_other,
        no_other & (guess == core),
    ]
    by_look = np.select(cases, [guess, core, guess], ABSTAIN).astype(np.int32)
    answers = evidence.first_answer(by_look, abstain=ABSTAIN)
    if (whole := bins == BINS).any():
        answers[:, whole] = smoothing.predict_from(evidence, alpha=alpha)[:, None]
    return answers


def events(
    evidence: Evidence, guess: np.ndarray, bins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(J, N, T) draws in E_c_hat, and at least as many as are in E_b for any other class b."""
    looks = evidence.looks
    mine, sure = at_most(looks.joint_doubt, bins), at_most(looks.doubt, bins)
    return mine, most_of_another(sure - mine, looks.classes, guess)


def most_of_another(others: np.ndarray, classes: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """(..., N, T) m, which no class but c_hat has more draws with little doubt than; see above.

    others: (..., N, T) draws of other classes whose doubt is at most theta; classes: (..., N, K);
    guess: (N,) c_hat.
    """
    return np.minimum(others, smoothing.most_frequent_other(classes, guess)[..., None])


def guess_majority(doubt: np.ndarray, of_guess: np.ndarray, draws: np.ndarray | int) -> np.ndarray:
    """Whether s_hat = 1: round GUESS promises a majority of E_c_hat.

    doubt: draws whose doubt is at most theta; of_guess: draws of class c_hat; draws: all of them.
    Round GUESS is counted before its guess is known, so it has no joint counts. The joint count
    lies between doubt + of_guess - draws (0 at least) and min(doubt, of_guess); s_hat goes by the
    middle. A wrong s_hat only costs answers. Measured on the default network, mean over all thetas:
    3.1 % abstentions; 3.0 % with the true joint count, 4.2 % with the upper end, 3.5 % with the
    lower one.
    """
    most = np.minimum(doubt, of_guess)
    least = np.maximum(doubt + of_guess - draws, 0)
    return most + least > draws


def check_guesses(counts: Counts, bins: np.ndarray) -> None:
    """Without round GUESS no class was guessed, and the joint counts are of no use."""
    if counts.settings.n0 == 0 and (bins < BINS).any():
        raise InputError(
            "n0=0: the confident rule needs draws that guess the class; sample with n0 above 0, "
            "such as 100"
        )


def _table(
    *,
    certifies: np.ndarray,
    majority: np.ndarray,
    core_shown: np.ndarray,
    no_other: np.ndarray,
    guess: np.ndarray,
    core: np.ndarray,
    selection_radius: np.ndarray,
    p_select: np.ndarray,
    p_class: np.ndarray,
) -> Outcomes:
    """The table of CERTIFY."""
    cases = [certifies & majority, ~certifies & core_shown, no_other & (guess == core)]
    route = np.select(cases, [Route.CERTIFY, Route.CORE, Route.AGREE], Route.ABSTAIN)
    selected = np.select(cases[:2], [Selected.CERTIFY, Selected.CORE], Selected.NEITHER)
    return Outcomes(
        prediction=np.select(cases, [guess, core, guess], ABSTAIN).astype(np.int32),
        radius=np.where(cases[0], selection_radius, 0.0),
        route=route.astype(np.int8),
        selected=selected.astype(np.int8),
        selection_radius=selection_radius,
        p_select=p_select,
        p_class=p_class,
    )


def _with_smoothing(
    outcomes: Outcomes, counts: Counts, *, sigma: float, alpha: float, bins: np.ndarray
) -> Outcomes:
    """The outcomes, at theta = 1 those of plain smoothing."""
    if not (whole := bins == BINS).any():
        return outcomes
    two = smoothing.by_runner_up(counts, alpha=alpha)
    found = smoothing.bound_class(counts, alpha=alpha, sigma=sigma, two=two)
    certified = found.radius > 0
    for array, column in (
        (outcomes.prediction, np.where(certified, counts.guess, ABSTAIN)),
        (outcomes.radius, found.radius),
        (outcomes.route, np.where(certified, Route.CERTIFY, Route.ABSTAIN)),
        (outcomes.selected, np.where(certified, Selected.CERTIFY, Selected.NEITHER)),
        (outcomes.selection_radius, found.radius),
        (outcomes.p_select, found.p_lower),
        (outcomes.p_class, found.p_lower),
    ):
        np.asarray(array)[:, whole] = column[:, None]
    return outcomes
