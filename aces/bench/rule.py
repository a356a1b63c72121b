"""How fast the rule is: vectorised over images and thetas, against the algorithm boxes as a loop,
in one run.
"""

import time
from typing import Any

import numpy as np
from scipy.stats import beta, binom, norm

from aces import rule
from aces.rule import ABSTAIN, metrics
from aces.rule.counts import BINS, Counts, Round, Settings

IMAGES, CLASSES, N0, N, N_PREDICT = 500, 10, 100, 100_000, 10_000
THETAS = np.arange(BINS + 1) / BINS
RADII = [i * 0.25 for i in range(9)]
SIGMA, ALPHA = 0.5, 0.001
LEVEL = ALPHA / 2  # every bound and test of the paper's algorithms has this level
PAPER: dict[str, Any] = {"alpha": ALPHA, "rule": "paper", "multiplicity": "bonferroni"}
LOOPED = 1000  # pairs of image and theta that the loop answers


def measure_rule(repeats: int = 3) -> dict:
    """Seconds for CERTIFY, PREDICT and all metrics of 500 images, 1,001 thetas and 10 classes, and
    how much faster that is than the loop (`ratio`), which is timed on a sample of the pairs and
    must give the same answers (`agree`).
    """
    rng = np.random.default_rng(0)
    counts = typical_counts(rng)
    core = np.where(rng.random(IMAGES) < 0.9, counts.label, rng.integers(0, CLASSES, IMAGES))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        outcomes = rule.certify(counts, core, thetas=THETAS, **PAPER)
        natural = rule.predict(counts, core, thetas=THETAS, **PAPER)
        metrics.curve(outcomes, natural, counts.label, thetas=THETAS, radii=RADII)
        seconds.append(time.perf_counter() - start)
    pairs = np.stack(
        [rng.integers(0, IMAGES, LOOPED), rng.integers(0, len(THETAS), LOOPED)], axis=1
    )
    start = time.perf_counter()
    answers = [_answer(counts, core, i, t) for i, t in pairs]
    looped = (time.perf_counter() - start) * outcomes.route.size / LOOPED
    agree = all(
        (prediction, guess) == (outcomes.prediction[i, t], natural[i, t])
        and np.isclose(radius, outcomes.radius[i, t], rtol=1e-9)
        for (prediction, radius, guess), (i, t) in zip(answers, pairs, strict=True)
    )
    return {
        "images": IMAGES,
        "thetas": len(THETAS),
        "classes": CLASSES,
        "n": N,
        "seconds": min(seconds),
        "loop_seconds": looped,
        "ratio": looped / min(seconds),
        "agree": agree,
    }


def typical_counts(rng: np.random.Generator) -> Counts:
    """Images from easy (sure of their class, low entropy) to hard."""
    ease = rng.beta(0.7, 0.7, IMAGES)
    label = rng.integers(0, CLASSES, IMAGES)
    classes = (1 - ease)[:, None] * rng.dirichlet(np.ones(CLASSES), IMAGES)
    classes[np.arange(IMAGES), label] += ease
    scores = np.diff(
        beta.cdf(
            np.arange(BINS + 2) / (BINS + 1), 1 + 12 * (1 - ease[:, None]), 1 + 12 * ease[:, None]
        ),
        axis=1,
    )
    scores /= scores.sum(axis=1, keepdims=True)
    rounds = (N0, N, N_PREDICT)
    counted = np.stack([rng.multinomial(n, classes) for n in rounds])
    score = np.stack([rng.multinomial(n, scores) for n in rounds])
    return Counts(
        classes=counted,
        score=score,
        doubt=score,
        joint_score=np.zeros_like(score),
        joint_doubt=np.zeros_like(score),
        invalid=np.zeros((3, IMAGES), np.int64),
        index=np.arange(IMAGES),
        label=label,
        guess=counted[Round.GUESS].argmax(axis=1),
        settings=Settings(
            sigma=SIGMA, n0=N0, n=N, n_predict=N_PREDICT, seed=0, chunk=N, model="none"
        ),
    )


def _answer(counts: Counts, core: np.ndarray, i: int, t: int) -> tuple[int, float, int]:
    """CERTIFY's class and radius and PREDICT's class for one image and theta: what a loop over both
    would do.
    """
    votes = counts.score[:, i, : t + 1].sum(axis=1)
    prediction, radius = _certify(counts, int(core[i]), i, votes)
    return prediction, radius, _predict(counts, int(core[i]), i, int(votes[Round.PREDICT]))


def _certify(counts: Counts, core: int, i: int, votes: np.ndarray) -> tuple[int, float]:
    guess, certifies = int(counts.guess[i]), 2 * votes[Round.GUESS] >= N0
    k = votes[Round.BOUND] if certifies else N - votes[Round.BOUND]
    p_select = beta.ppf(LEVEL, k, N - k + 1) if k else 0.0
    k = counts.classes[Round.BOUND, i, guess]
    p_class = beta.ppf(LEVEL, k, N - k + 1) if k else 0.0
    if certifies and min(p_select, p_class) > 0.5:
        return guess, SIGMA * norm.ppf(min(p_select, p_class))
    if not certifies and p_select > 0.5:
        return core, 0.0
    return (guess, 0.0) if guess == core and p_class > 0.5 else (ABSTAIN, 0.0)


def _predict(counts: Counts, core: int, i: int, ones: int) -> int:
    classes = counts.classes[Round.PREDICT, i]
    guess = int(classes.argmax())
    n_a, n_b = int(classes[guess]), int(np.delete(classes, guess).max())
    sure = n_a > n_b and 2 * binom.sf(n_a - 1, n_a + n_b, 0.5) <= LEVEL
    majority = max(ones, N_PREDICT - ones)
    decided = 2 * binom.sf(majority - 1, N_PREDICT, 0.5) <= LEVEL
    if decided and majority == ones and sure:
        return guess
    if decided and majority != ones:
        return core
    return guess if sure and guess == core else ABSTAIN
