"""The algorithm boxes of the paper as loops over one image and one theta: slow, plain, and the
judge of `aces.rule`.

`certify_one` is Algorithm 1, `predict_one` Algorithm 4 (its second branch with AND; `printed=True`
gives the printed OR). `confident_certify_one` and `confident_predict_one` are the tables of
`aces.rule.confident`, `smoothed_one` is plain smoothing.
"""

import numpy as np
from scipy.stats import beta, binom, norm

from aces.rule.counts import BINS, Counts, Round

ABSTAIN = -1


def lower_conf_bound(k, n, alpha):
    return 0.0 if k == 0 else float(beta.ppf(alpha, k, n - k + 1))


def two_sided(k, n):
    return min(1.0, 2 * float(binom.sf(max(k, n - k) - 1, n, 0.5)))


def upper_conf_bound(k, n, alpha):
    return 1 - lower_conf_bound(n - k, n, alpha)


def least_bound(history, alpha):
    """The smallest upper bound; history: (k, n, spend) of each look made."""
    return min(upper_conf_bound(k, n, spend * alpha) for k, n, spend in history)


def runner_up(classes, guess, n):
    """Draws of the most frequent other class, invalid ones included."""
    others = [int(count) for c, count in enumerate(classes) if c != guess]
    return max(others, default=0) + n - int(classes.sum())


def class_radius(counts: Counts, i, *, sigma, alpha, choose_at=None):
    """The certified radius of the guessed class, 0 for none; by one bound, or by two where round
    GUESS promises more of them. choose_at: the alpha of that choice, None for one bound.
    """
    guess, looks = int(counts.guess[i]), looks_made(counts, i, Round.BOUND)
    mine = [(int(classes[guess]), n, spend) for _, classes, n, spend, *_ in looks]
    if choose_at is None or not expects_two(counts, i, choose_at):
        p = best_bound(mine, alpha)
        return sigma * float(norm.ppf(p)) if p > 0.5 else 0.0
    rivals = [(runner_up(classes, guess, n), n, spend) for _, classes, n, spend, *_ in looks]
    low, high = best_bound(mine, alpha / 2), least_bound(rivals, alpha / 2)
    return sigma / 2 * float(norm.ppf(low) - norm.ppf(high)) if low > high else 0.0


def expects_two(counts: Counts, i, alpha):
    """Whether the shares of round GUESS, on n draws, give more by two bounds than by one."""
    guess, n0 = int(counts.guess[i]), counts.settings.n0
    n, spend = counts.settings.n, 1.0
    if Round.BOUND in counts.looks:
        spend = float(counts.looks[Round.BOUND].spend[-1])
    first = counts.classes[Round.GUESS, i]
    p, q = (int(first[guess]) + 0.5) / (n0 + 1), (runner_up(first, guess, n0) + 0.5) / (n0 + 1)
    k, rival = int(p * n), int(q * n)
    one = lower_conf_bound(k, n, alpha * spend)
    low, high = (
        lower_conf_bound(k, n, alpha * spend / 2),
        upper_conf_bound(rival, n, alpha * spend / 2),
    )
    two = float(norm.ppf(low) - norm.ppf(high)) / 2 if low > high else 0.0
    return two > (float(norm.ppf(one)) if one > 0.5 else 0.0)


def selected(histogram, theta):
    """counts_S: draws for the core (0) and for the certification network (1)."""
    one = sum(int(count) for i, count in enumerate(histogram) if i <= round(theta * BINS))
    return [int(histogram.sum()) - one, one]


def best_bound(history, alpha):
    """history: (k, n, spend) of each look made."""
    return max(lower_conf_bound(k, n, spend * alpha) for k, n, spend in history)


def looks_made(counts: Counts, i, round_):
    """(score histogram, classes, n, spend, doubt histogram, joint doubt histogram) of each look."""
    if round_ not in counts.looks:
        n = int(counts.classes[round_, i].sum() + counts.invalid[round_, i])
        doubt, joint = counts.doubt[round_, i], counts.joint_doubt[round_, i]
        return [(counts.score[round_, i], counts.classes[round_, i], n, 1.0, doubt, joint)]
    looks = counts.looks[round_]
    return [
        (
            looks.score[j, i],
            looks.classes[j, i],
            int(looks.draws[j]),
            float(looks.spend[j]),
            looks.doubt[j, i],
            looks.joint_doubt[j, i],
        )
        for j in range(looks.made[i])
    ]


def certify_one(counts: Counts, i, core, *, sigma, alpha, theta, multiplicity):
    """(prediction, radius, route) of image i."""
    core = int(core)
    zeros, ones = selected(counts.score[Round.GUESS, i], theta)
    s_hat = 0 if zeros > ones else 1
    c_hat = int(counts.guess[i])
    level = alpha / 2
    if multiplicity == "iut" and not (s_hat == 0 and c_hat == core):
        level = alpha
    looks = looks_made(counts, i, Round.BOUND)
    p_s = best_bound(
        [(selected(histogram, theta)[s_hat], n, spend) for histogram, _, n, spend, *_ in looks],
        level,
    )
    r_a = class_radius(
        counts, i, sigma=sigma, alpha=level, choose_at=alpha if multiplicity == "iut" else None
    )
    if s_hat == 1 and p_s > 0.5 and r_a > 0:
        return c_hat, min(sigma * float(norm.ppf(p_s)), r_a), "CERTIFY"
    if s_hat == 0 and p_s > 0.5:
        return core, 0.0, "CORE"
    if c_hat == core and r_a > 0:
        return c_hat, 0.0, "AGREE"
    return ABSTAIN, 0.0, "ABSTAIN"


def predict_one(counts: Counts, i, core, *, alpha, theta, multiplicity, printed=False):
    """The answer for image i: of the first look that has one, each at its share of alpha."""
    for histogram, classes, n, spend, *_ in looks_made(counts, i, predict_round(counts)):
        answer = predict_once(
            histogram,
            classes,
            n,
            int(core),
            alpha=spend * alpha,
            theta=theta,
            multiplicity=multiplicity,
            printed=printed,
        )
        if answer != ABSTAIN:
            return answer
    return ABSTAIN


def predict_round(counts: Counts):
    return Round.PREDICT if counts.settings.n_predict else Round.BOUND


def smoothed_one(counts: Counts, i, *, sigma, alpha):
    """(prediction, radius) of plain smoothing, and PREDICT's class."""
    radius = class_radius(counts, i, sigma=sigma, alpha=alpha, choose_at=alpha)
    natural = ABSTAIN
    for _, classes, n, spend, *_ in looks_made(counts, i, predict_round(counts)):
        top = int(np.argmax(classes))
        k, rival = int(classes[top]), runner_up(classes, top, n)
        if natural == ABSTAIN and k > rival and two_sided(k, k + rival) <= spend * alpha:
            natural = top
    return (int(counts.guess[i]) if radius > 0 else ABSTAIN), radius, natural


def at_most(histogram, theta):
    return sum(int(count) for i, count in enumerate(histogram) if i <= round(theta * BINS))


def confident_certify_one(counts: Counts, i, core, *, sigma, alpha, theta):
    """(prediction, radius, route) of image i by the confident rule."""
    core, guess = int(core), int(counts.guess[i])
    if theta == 1:
        answer, radius, _ = smoothed_one(counts, i, sigma=sigma, alpha=alpha)
        return answer, radius, "ABSTAIN" if answer == ABSTAIN else "CERTIFY"
    of_guess = int(counts.classes[Round.GUESS, i, guess])
    sure, n0 = at_most(counts.doubt[Round.GUESS, i], theta), counts.settings.n0
    expected = (min(sure, of_guess) + max(sure + of_guess - n0, 0)) / 2
    looks = looks_made(counts, i, Round.BOUND)
    low, high, other = confident_bounds(looks, guess, alpha, theta)
    if expected > n0 / 2:
        if low > 0.5:
            return guess, sigma * float(norm.ppf(low)), "CERTIFY"
    elif high <= 0.5 and other <= 0.5:
        return core, 0.0, "CORE"
    if guess == core and other <= 0.5:
        return guess, 0.0, "AGREE"
    return ABSTAIN, 0.0, "ABSTAIN"


def confident_predict_one(counts: Counts, i, core, *, alpha, theta):
    core, guess = int(core), int(counts.guess[i])
    if theta == 1:
        return smoothed_one(counts, i, sigma=1.0, alpha=alpha)[2]
    for look in looks_made(counts, i, predict_round(counts)):
        low, high, other = confident_bounds([look], guess, alpha, theta)
        if low > 0.5:
            return guess
        if high <= 0.5 and other <= 0.5:
            return core
        if guess == core and other <= 0.5:
            return guess
    return ABSTAIN


def confident_bounds(looks, guess, alpha, theta):
    """LB and U_1 of P_c_hat, and U_2: each other class has at most so many confident draws as it
    has draws, and as all other classes have confident draws.
    """
    mine, others = [], []
    for _, classes, n, spend, doubt, joint in looks:
        k, sure = at_most(joint, theta), at_most(doubt, theta)
        of_each = [min(int(classes[b]), sure - k) for b in range(len(classes)) if b != guess]
        mine.append((k, n, spend))
        others.append((max(of_each), n, spend))
    return best_bound(mine, alpha), least_bound(mine, alpha), least_bound(others, alpha)


def predict_once(histogram, classes, n, core, *, alpha, theta, multiplicity, printed):
    """The box itself. An invalid draw counts against every answer."""
    n_0, n_1 = selected(histogram, theta)
    c_a = int(np.argmax(classes))
    n_a = int(classes[c_a])
    n_b = (
        max([int(count) for c, count in enumerate(classes) if c != c_a], default=0)
        + n
        - int(classes.sum())
    )
    level_s = alpha if multiplicity == "iut" else alpha / 2
    level_a = alpha if multiplicity == "iut" and theta == 1 else alpha / 2
    class_sure = n_a > n_b and two_sided(n_a, n_a + n_b) <= level_a
    one_sure = 2 * n_1 > n and two_sided(n_1, n) <= level_s
    zero_sure = 2 * n_0 > n and two_sided(n_0, n) <= level_s
    if printed:
        zero_sure = n_0 > n_1 or two_sided(n_0, n) <= level_s
    if one_sure and class_sure:
        return c_a
    if zero_sure:
        return core
    if c_a == core and class_sure:
        return c_a
    return ABSTAIN
