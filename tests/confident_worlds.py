"""Worlds for the confident rule in which the probabilities are known, and the claims about them
that are false.
"""

import numpy as np
from scipy.stats import norm

from aces.rule import ABSTAIN

SIGMA = 0.5
# A hair above or below 1/2 is where a false claim is easiest.
HAIR = 1e-6
LESS, MORE = 0.5 - HAIR, 0.5 + HAIR
# name -> P of each class (the rest is doubt), the core's class, (s_hat, c_hat) forced or None.
WORLDS = {
    "just below a radius": ([0.0, 0.8, 0.05], 0, (1, 1)),
    "guessed class just below a half, no other": ([0.0, LESS, 0.0], 0, (1, 1)),
    "guessed class just below a half, core agrees": ([LESS, 0.0, 0.0], 0, (1, 0)),
    "guessed class has the majority, core is guessed": ([0.0, MORE, 0.0], 0, (0, 1)),
    "another class has the majority": ([0.0, LESS, MORE], 0, (1, 1)),
    "another class has the majority, core is guessed": ([0.0, 0.1, MORE], 0, (0, 1)),
    "another class has the majority, core agrees": ([0.3, MORE, 0.1], 0, (1, 0)),
    "another class has the majority, core agrees and is guessed": ([LESS, MORE, 0.0], 0, (0, 0)),
    "the core's class has the majority": ([MORE, LESS, 0.0], 0, (1, 1)),
    "two classes alike": ([0.5, 0.5], 0, (1, 1)),
    "two classes alike, guesses drawn": ([0.5, 0.5], 1, None),
    "many classes": ([0.3, MORE] + [0.1 / 998] * 998, 0, None),
    "many classes alike": ([1 / 50] * 50, 3, None),
    "another class has the majority, a third one nearly": ([0.0, MORE, LESS], 0, (0, 0)),
    "other classes share a majority, guess below a half": ([LESS, 0.26, 0.24], 0, (1, 0)),
    "mostly invalid": ([0.0, LESS, 0.01], 0, (1, 1)),
}


def truth(p, core):
    """The class of confident ACES, and the largest radius that may be claimed for each class."""
    p = np.asarray(p)
    answer = int(p.argmax()) if p.max() > 0.5 else core
    return answer, SIGMA * np.maximum(norm.ppf(np.clip(p, 0, 1)), 0)


def is_false(answer, radius, p, core):
    right, limit = truth(p, core)
    return (answer != ABSTAIN) & ((answer != right) | (radius > limit[np.maximum(answer, 0)]))


def wrong(answer, p, core):
    return (answer != ABSTAIN) & (answer != truth(p, core)[0])
