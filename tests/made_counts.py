"""Counts made by hand or at random, for the tests of the rule."""

import dataclasses

import numpy as np

from aces.rule.counts import BINS, Counts, Looks, Round, Settings

SPEND = (0.05, 0.1, 0.85)


def settings(n0, n, n_predict, **others) -> Settings:
    return Settings(
        sigma=0.5, n0=n0, n=n, n_predict=n_predict, seed=0, chunk=100, model="none", **others
    )


def from_joint(
    joint, *, images, n0, n, n_predict, rng, guess=None, theta=0.5, p_invalid=0.0, dtype=np.int32
) -> Counts:
    """Draws of `images` images with P[selects s and is of class c] = joint[s, c]; scores and doubts
    lie just below or above theta: both events are the same.

    guess = (s_hat, c_hat) forces round GUESS, on which the guarantee must not depend.
    """
    joint = np.asarray(joint, dtype=float)
    classes = joint.shape[1]
    counted = np.zeros((3, images, classes), np.int64)
    scores, joints = np.zeros((2, 3, images, BINS + 1), dtype)
    invalid = np.zeros((3, images), np.int64)
    # The bins of a draw that selects 0, and 1. At theta = 1 no draw selects 0.
    bins = [min(int(theta * BINS) + 1, BINS), int(theta * BINS)]
    guessed = np.zeros(images, np.int64)
    for round_, draws in enumerate((n0, n, n_predict)):
        invalid[round_] = rng.binomial(draws, p_invalid, size=images)
        cells = rng.multinomial(draws - invalid[round_], joint.ravel()).reshape(images, 2, classes)
        if round_ == 0 and guess is not None:
            cells = np.zeros_like(cells)
            cells[:, guess[0], guess[1]] = draws
            invalid[round_] = 0
        counted[round_] = cells.sum(axis=1)
        for s in (0, 1):
            scores[round_, :, bins[s]] += cells[:, s].sum(axis=1).astype(dtype)
            if round_ > 0:
                joints[round_, :, bins[s]] += cells[np.arange(images), s, guessed].astype(dtype)
        if round_ == 0:
            guessed = counted[0].argmax(axis=1)
    return assemble(counted, scores, joints, invalid, settings(n0, n, n_predict))


def random_counts(
    rng,
    *,
    images=6,
    classes=3,
    n0=9,
    n=40,
    n_predict=30,
    bins=(0, 250, 500, 750, 1000),
    looks=False,
) -> Counts:
    """Small counts full of ties, empty and full cells, and invalid draws.

    Class, score and doubt depend on each other: a draw is one of the cells (class, score, doubt).
    """
    counted = np.zeros((3, images, classes), np.int64)
    scores, doubts, joint_scores, joint_doubts = np.zeros((4, 3, images, BINS + 1), np.int64)
    invalid = np.zeros((3, images), np.int64)
    shape = (classes, len(bins), len(bins))
    for i in range(images):
        p = rng.dirichlet(np.full(classes, rng.choice([0.05, 1.0, 50.0])))[:, None, None]
        q = rng.dirichlet(np.full(len(bins), rng.choice([0.05, 0.5, 5.0])), size=classes)
        r = rng.dirichlet(np.full(len(bins), rng.choice([0.05, 0.5, 5.0])), size=classes)
        world = (p * q[:, :, None] * r[:, None, :]).ravel()
        for round_, draws in enumerate((n0, n, n_predict)):
            invalid[round_, i] = rng.choice([0, 0, rng.integers(0, draws + 1)])
            cells = rng.multinomial(draws - invalid[round_, i], world / world.sum()).reshape(shape)
            counted[round_, i] = cells.sum(axis=(1, 2))
            scores[round_, i, list(bins)] = cells.sum(axis=(0, 2))
            doubts[round_, i, list(bins)] = cells.sum(axis=(0, 1))
            if round_ > 0:
                guess = counted[0, i].argmax()
                joint_scores[round_, i, list(bins)] = cells[guess].sum(axis=1)
                joint_doubts[round_, i, list(bins)] = cells[guess].sum(axis=0)
    counts = Counts(
        classes=counted,
        score=scores,
        doubt=doubts,
        joint_score=joint_scores,
        joint_doubt=joint_doubts,
        invalid=invalid,
        index=np.arange(images),
        label=np.zeros(images, np.int64),
        guess=counted[0].argmax(axis=1),
        settings=settings(n0, n, n_predict),
    )
    return with_looks(counts, rng) if looks else counts


def assemble(counted, scores, joints, invalid, settings) -> Counts:
    """Counts whose doubt is their score."""
    images = counted.shape[1]
    return Counts(
        classes=counted,
        score=scores,
        doubt=scores,
        joint_score=joints,
        joint_doubt=joints,
        invalid=invalid,
        index=np.arange(images),
        label=np.zeros(images, np.int64),
        guess=counted[0].argmax(axis=1),
        settings=settings,
    )


def with_looks(
    counts: Counts, rng, *, shares=(0.25, 0.5, 1.0), spend=SPEND, stop: bool = True
) -> Counts:
    """The same draws, looked at on the way: each image stops a round after one, two or three looks,
    or never.
    """
    looks = {}
    for round_ in (Round.BOUND, Round.PREDICT):
        n = counts.settings.draws_of(round_)
        if n:
            draws = np.array([int(share * n) for share in shares])
            looks[round_], counts = _looks(counts, rng, round_, draws, np.array(spend), stop=stop)
    return dataclasses.replace(counts, looks=looks)


def _looks(counts: Counts, rng, round_, draws, spend, *, stop) -> tuple[Looks, Counts]:
    """The looks at a round, and the counts of the draws made until then."""
    images = len(counts.guess)
    made = rng.integers(1, len(draws) + 1, size=images) if stop else np.full(images, len(draws))
    names = ("classes", "score", "doubt", "joint_score", "joint_doubt", "invalid")
    total = {name: getattr(counts, name).astype(np.int64) for name in names}
    history = {name: np.zeros((len(draws), *total[name].shape[1:]), np.int64) for name in names}
    for i in range(images):
        left = {name: total[name][round_, i].copy() for name in names}
        for j in range(
            len(draws) - 1, -1, -1
        ):  # an earlier look holds some of the next one's draws
            left = _some(left, int(draws[j]), int(counts.guess[i]), rng)
            for name in names:
                history[name][j, i] = left[name]
        for name in names:
            history[name][made[i] :, i] = history[name][made[i] - 1, i]
            total[name][round_, i] = history[name][-1, i]
    kept = {name: history[name] for name in ("classes", "score", "doubt", "joint_doubt")}
    looks = Looks(draws=draws, spend=spend, made=made, **kept)
    return looks, dataclasses.replace(counts, **total)


def _pick(rng, cells, k):
    return rng.multivariate_hypergeometric(cells, k, method="count")


def _some(drawn: dict, draws: int, guess: int, rng) -> dict:
    """`draws` of the draws of one image, without replacement."""
    valid = rng.hypergeometric(drawn["classes"].sum(), drawn["invalid"], draws)
    mine = int(drawn["classes"][guess])
    hits = rng.hypergeometric(mine, drawn["classes"].sum() - mine, valid)
    rest = drawn["classes"].copy()
    rest[guess] = 0
    found = {"classes": _pick(rng, rest, valid - hits), "invalid": draws - valid}
    found["classes"][guess] = hits
    for name in ("score", "doubt"):
        joint = _pick(rng, drawn[f"joint_{name}"], hits)
        others = _pick(rng, drawn[name] - drawn[f"joint_{name}"], valid - hits)
        found |= {f"joint_{name}": joint, name: joint + others}
    return found
