"""Counts made by hand or at random, for the tests of the rule."""

import numpy as np

from aces.rule.counts import BINS, Counts, Looks, Round, Settings


def settings(n0, n, n_predict) -> Settings:
    return Settings(sigma=0.5, n0=n0, n=n, n_predict=n_predict, seed=0, chunk=100, model="none")


def from_joint(
    joint, *, images, n0, n, n_predict, rng, guess=None, theta=0.5, p_invalid=0.0
) -> Counts:
    """Draws of `images` images with P[selects s and is of class c] = joint[s, c]; scores lie just
    below or above theta.

    guess = (s_hat, c_hat) forces round GUESS, on which the guarantee must not depend.
    """
    joint = np.asarray(joint, dtype=float)
    classes, places = (
        joint.shape[1],
        (int(theta * BINS) + 1, int(theta * BINS)),
    )  # bins of a draw that selects 0, 1
    counted, scores = (
        np.zeros((3, images, classes), np.int64),
        np.zeros((3, images, BINS + 1), np.int32),
    )
    invalid = np.zeros((3, images), np.int64)
    for round_, draws in enumerate((n0, n, n_predict)):
        invalid[round_] = rng.binomial(draws, p_invalid, size=images)
        cells = rng.multinomial(draws - invalid[round_], joint.ravel()).reshape(images, 2, classes)
        if round_ == 0 and guess is not None:
            cells = np.zeros_like(cells)
            cells[:, guess[0], guess[1]] = draws
            invalid[round_] = 0
        counted[round_] = cells.sum(axis=1)
        scores[round_][:, places] = cells.sum(axis=2)
    return assemble(counted, scores, invalid, settings(n0, n, n_predict))


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
    """Small counts full of ties, empty and full cells, and invalid draws."""
    counted, scores = (
        np.zeros((3, images, classes), np.int64),
        np.zeros((3, images, BINS + 1), np.int64),
    )
    invalid = np.zeros((3, images), np.int64)
    for round_, draws in enumerate((n0, n, n_predict)):
        for i in range(images):
            p = rng.dirichlet(np.full(classes, rng.choice([0.05, 1.0, 50.0])))
            q = rng.dirichlet(np.full(len(bins), rng.choice([0.05, 0.5, 5.0])))
            invalid[round_, i] = rng.choice([0, 0, rng.integers(0, draws + 1)])
            counted[round_, i] = rng.multinomial(draws - invalid[round_, i], p)
            scores[round_, i, list(bins)] = rng.multinomial(draws - invalid[round_, i], q)
    counts = assemble(counted, scores, invalid, settings(n0, n, n_predict))
    return with_looks(counts, rng) if looks else counts


def assemble(counted, scores, invalid, settings) -> Counts:
    images = counted.shape[1]
    return Counts(
        classes=counted,
        entropy=scores,
        joint=np.zeros((images, BINS + 1), np.int64),
        invalid=invalid,
        index=np.arange(images),
        label=np.zeros(images, np.int64),
        guess=counted[0].argmax(axis=1),
        settings=settings,
    )


def with_looks(
    counts: Counts, rng, *, shares=(0.25, 0.5, 1.0), spend=(0.05, 0.1, 0.85), stop: bool = True
) -> Counts:
    """The same draws, looked at on the way: each image stops a round after one, two or three looks,
    or never.
    """
    looks = {
        round_: _looks(
            counts,
            rng,
            round_,
            draws=np.array([int(share * n) for share in shares]),
            spend=np.array(spend),
            stop=stop,
        )
        for round_, n in (
            (Round.BOUND, counts.settings.n),
            (Round.PREDICT, counts.settings.n_predict),
        )
    }
    return Counts(**{**vars(counts), "looks": looks})


def _looks(counts: Counts, rng, round_: Round, *, draws, spend, stop: bool) -> Looks:
    images, classes = counts.classes.shape[1:]
    entropy, counted = (
        np.zeros((len(draws), images, BINS + 1), np.int64),
        np.zeros((len(draws), images, classes), np.int64),
    )
    made = rng.integers(1, len(draws) + 1, size=images) if stop else np.full(images, len(draws))
    for i in range(images):
        scores, labels, invalid = (
            counts.entropy[round_, i],
            counts.classes[round_, i],
            counts.invalid[round_, i],
        )
        for j in range(
            len(draws) - 1, -1, -1
        ):  # an earlier look holds some of the draws of the next
            valid = rng.hypergeometric(scores.sum(), invalid, draws[j])
            scores, invalid = (
                rng.multivariate_hypergeometric(scores, valid, method="count"),
                draws[j] - valid,
            )
            labels = rng.multivariate_hypergeometric(labels, valid)
            entropy[j, i], counted[j, i] = scores, labels
        entropy[made[i] :, i], counted[made[i] :, i] = (
            entropy[made[i] - 1, i],
            counted[made[i] - 1, i],
        )
    return Looks(draws=draws, spend=spend, made=made, classes=counted, entropy=entropy)
