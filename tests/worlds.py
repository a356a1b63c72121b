"""Worlds in which the probabilities are known, at the worst cases, and the claims about them that
are false.
"""

import numpy as np
from scipy.stats import norm

from aces.rule import ABSTAIN

# A world: joint[s, c] the probability that a draw selects s and is of class c; the core's class;
# the forced guess. Class 0 is the core's in the worlds where it may agree. 1/2 minus or plus a hair
# is where a false claim is easiest.
HAIR = 1e-6
LESS, MORE = 0.5 - HAIR, 0.5 + HAIR


def independent(p_one, classes):
    return np.outer([1 - p_one, p_one], classes)


WORLDS = {
    "class just below a radius": (independent(1.0, [0, 0.8, 0.2]), 0, None),
    "selection just below a radius": (independent(0.8, [0, 1.0, 0]), 0, None),
    "both just below a radius": (independent(0.8, [0, 0.8, 0.2]), 0, None),
    "class and selection always together": (np.array([[0, 0, 0.2], [0, 0.8, 0]]), 0, None),
    "wrong class guessed": (independent(1.0, [0, LESS, MORE]), 0, (1, 1)),
    "wrong class guessed, the core's": (independent(1.0, [LESS, MORE, 0]), 0, (1, 0)),
    "wrong class guessed, the core's, selection unsure": (
        independent(MORE, [LESS, MORE, 0]),
        0,
        (1, 0),
    ),
    "core wrongly selected": (independent(MORE, [0, 1.0, 0]), 0, (0, 1)),
    "core wrongly selected, wrong class agrees": (independent(MORE, [LESS, MORE, 0]), 0, (0, 0)),
    "either wrong, never together": (np.array([[0, LESS, 0], [LESS, 2 * HAIR, 0]]), 0, (0, 0)),
    "certification network wrongly selected": (independent(LESS, [0, 1.0, 0]), 0, (1, 1)),
    "all classes alike": (independent(1.0, [0.1 - HAIR] + [0.1] * 8 + [0.1 + HAIR]), 0, None),
    "all classes alike, selection unsure": (
        independent(MORE, [0.1 - HAIR] + [0.1] * 8 + [0.1 + HAIR]),
        0,
        None,
    ),
}


def truth(joint, core):
    """ACES' class, and the largest radius within which each class may be claimed (sigma 0.5)."""
    select, classes = joint.sum(axis=1), joint.sum(axis=0)
    answer = int(classes.argmax()) if select[1] > select[0] else core
    return answer, np.minimum(0.5 * max(norm.ppf(select[1]), 0), smoothing_limit(classes))


def smoothing_limit(classes):
    """(K,) the largest radius within which plain smoothing gives each class (Cohen's theorem)."""
    rivals = [max(np.delete(classes, c), default=0.0) for c in range(len(classes))]
    return np.maximum(0.25 * (norm.ppf(classes) - norm.ppf(rivals)), 0)


def false_claims(outcomes, joint, core):
    answer, limit = truth(joint, core)
    given = outcomes.prediction[:, 0]
    return (given != ABSTAIN) & ((given != answer) | (outcomes.radius[:, 0] > limit[given]))
