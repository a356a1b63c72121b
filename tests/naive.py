"""The algorithm boxes of the paper as loops over one image and one theta: slow, plain, and the
judge of `aces.rule.composition`.

`certify_one` is Algorithm 1, `predict_one` Algorithm 4 (its second branch with AND; `printed=True`
gives the printed OR).
"""

import numpy as np
from scipy.stats import beta, binom, norm

from aces.rule.counts import BINS, Counts, Round

ABSTAIN = -1


def lower_conf_bound(k, n, alpha):
    return 0.0 if k == 0 else float(beta.ppf(alpha, k, n - k + 1))


def two_sided(k, n):
    return min(1.0, 2 * float(binom.sf(max(k, n - k) - 1, n, 0.5)))


def selected(histogram, theta):
    """counts_S: draws for the core (0) and for the certification network (1)."""
    one = sum(int(count) for i, count in enumerate(histogram) if i <= round(theta * BINS))
    return [int(histogram.sum()) - one, one]


def best_bound(history, alpha):
    """history: (k, n, spend) of each look made."""
    return max(lower_conf_bound(k, n, spend * alpha) for k, n, spend in history)


def looks_made(counts: Counts, i, round_):
    """(histogram, classes, n, spend) of each look at a round."""
    if round_ not in counts.looks:
        n = int(counts.classes[round_, i].sum() + counts.invalid[round_, i])
        return [(counts.score[round_, i], counts.classes[round_, i], n, 1.0)]
    looks = counts.looks[round_]
    return [
        (looks.score[j, i], looks.classes[j, i], int(looks.draws[j]), float(looks.spend[j]))
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
        [(selected(histogram, theta)[s_hat], n, spend) for histogram, _, n, spend in looks], level
    )
    p_a = best_bound([(int(classes[c_hat]), n, spend) for _, classes, n, spend in looks], level)
    p = min(p_s, p_a)
    if s_hat == 1 and p > 0.5:
        return c_hat, sigma * float(norm.ppf(p)), "CERTIFY"
    if s_hat == 0 and p_s > 0.5:
        return core, 0.0, "CORE"
    if c_hat == core and p_a > 0.5:
        return c_hat, 0.0, "AGREE"
    return ABSTAIN, 0.0, "ABSTAIN"


def predict_one(counts: Counts, i, core, *, alpha, theta, multiplicity, printed=False):
    """The answer for image i: of the first look that has one, each at its share of alpha."""
    for histogram, classes, n, spend in looks_made(counts, i, Round.PREDICT):
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
