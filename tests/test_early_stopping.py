"""Early stopping with the rules that decide it: claims stay as sound, bytes the same, and draws are
saved.
"""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

import odd_networks
from aces.params import Adaptive
from aces.rule import composition
from aces.rule.composition import ABSTAIN, MULTIPLICITIES, Route
from aces.rule.counts import BINS, Counts, Round, read_counts, write_counts
from aces.sampling.adaptive import LookBook, Stopping, schedule
from aces.sampling.anytime import PredictRule
from made_counts import settings
from sampled import sample
from worlds import WORLDS, false_claims, truth

ALPHA, THETA, SIGMA = 0.05, 0.5, 0.5
ADAPTIVE = Adaptive(
    enabled=True,
    alpha=ALPHA,
    looks=[0.1, 0.4, 1.0],
    spend=[0.2, 0.3, 0.5],
    tolerance=0.01,
    thetas=[THETA],
)
N, CHUNK, IMAGES, BATCH = 500, 50, 8_000, 2_000  # of each world: 104,000 images in all
PLACES = [int(THETA * BINS) + 1, int(THETA * BINS)]  # the bins of a draw that selects 0, and 1


def cells(joint, draws, rng):
    """(N, 2, K) draws of each selection and class, for N numbers of draws."""
    return rng.multinomial(draws, joint.ravel(), size=BATCH).reshape(BATCH, *joint.shape)


def guesses(joint, guess, rng):
    """(s_hat, c_hat) of each image: forced, or by five draws."""
    if guess is not None:
        return np.full(BATCH, guess[0]), np.full(BATCH, guess[1])
    first = cells(joint, 5, rng)
    return (2 * first[:, 1].sum(axis=1) >= 5).astype(int), first.sum(axis=1).argmax(axis=1)


def stopped(joint, guess, rng) -> Counts:
    """Counts of images that stop as the sampler stops them."""
    select, label = guesses(joint, guess, rng)
    entropy, classes = (
        np.zeros((3, BATCH, BINS + 1), np.int64),
        np.zeros((3, BATCH, joint.shape[1]), np.int64),
    )
    entropy[Round.GUESS, np.arange(BATCH), np.where(select == 1, PLACES[1], PLACES[0])] = 5
    classes[Round.GUESS, np.arange(BATCH), label] = 5
    stopping = Stopping(ADAPTIVE, sigma=SIGMA, guess=label, guess_score=entropy[Round.GUESS])
    looks = {}
    for round_, settled in ((Round.BOUND, stopping.certified), (Round.PREDICT, stopping.predicted)):
        book = LookBook(ADAPTIVE, n=N, chunk=CHUNK, images=BATCH, num_classes=joint.shape[1])
        left, start = np.arange(BATCH), 0
        for stop in book.looks.draws:
            more = cells(joint, stop - start, rng)[left]
            classes[round_, left] += more.sum(axis=1)
            entropy[round_][np.ix_(left, PLACES)] += more.sum(axis=2)
            book.add(left, classes=classes[round_], score=entropy[round_])
            left, start = left[~settled(book.of(left), left)], stop
            if not len(left):
                break
        looks[round_] = book.looks
    return Counts(
        classes=classes,
        score=entropy,
        doubt=entropy,
        joint_score=entropy,
        joint_doubt=entropy,
        invalid=np.zeros((3, BATCH), int),
        index=np.arange(BATCH),
        label=np.zeros(BATCH, int),
        guess=label,
        settings=settings(5, N, N),
        looks=looks,
    )


@pytest.mark.parametrize("world", WORLDS)
def test_false_claims_of_images_that_stop_are_rarer_than_alpha(world):
    """CERTIFY and PREDICT, both modes: not significantly (1e-5) above alpha anywhere, and not for
    want of stopping.
    """
    joint, core, guess = WORLDS[world]
    cores, false, early = np.full(BATCH, core), {}, 0
    for batch in range(IMAGES // BATCH):
        counts = stopped(joint, guess, np.random.default_rng(batch))
        early += (counts.draws[Round.BOUND :] < N).sum()
        for mode in MULTIPLICITIES:
            outcomes = composition.certify(
                counts, cores, sigma=SIGMA, alpha=ALPHA, thetas=[THETA], multiplicity=mode
            )
            natural = composition.predict(
                counts, cores, alpha=ALPHA, thetas=[THETA], multiplicity=mode
            )[:, 0]
            wrong = (natural != ABSTAIN) & (natural != truth(joint, core)[0])
            false[mode] = false.get(mode, 0) + np.array(
                [false_claims(outcomes, joint, core).sum(), wrong.sum()]
            )
    for mode, counted in false.items():
        assert (binom.sf(counted - 1, IMAGES, ALPHA) > 1e-5).all(), (
            f"{mode}: CERTIFY, PREDICT {counted} of {IMAGES}"
        )
    assert early > 0


def false_predictions(joint, core, guess, *, alpha) -> tuple[int, int]:
    """How many of the images `PredictRule` answers falsely, and how many at all, read after every
    25 draws.
    """
    false = answered = 0
    for batch in range(IMAGES // BATCH):
        rng = np.random.default_rng(batch)
        select, label = guesses(joint, guess, rng)
        rule = PredictRule(certifies=select == 1, agree=label == core, alpha=alpha)
        total, decided, routes = (
            np.zeros((BATCH, *joint.shape), int),
            np.zeros(BATCH, bool),
            np.full(BATCH, Route.ABSTAIN),
        )
        others = np.arange(joint.shape[1]) != label[:, None]
        for t in range(25, N + 1, 25):
            total += cells(joint, 25, rng)
            classes, agreeing = total.sum(axis=1), total.sum(axis=2)[np.arange(BATCH), select]
            done = rule.read(
                agreeing, np.full(BATCH, t), classes[~others], classes[others].reshape(BATCH, -1)
            )
            routes = np.where(
                decided, routes, rule.routes
            )  # an image that is decided draws no more
            decided |= done
        answer = np.select([routes == Route.ABSTAIN, routes == Route.CORE], [ABSTAIN, core], label)
        answered += (answer != ABSTAIN).sum()
        false += ((answer != ABSTAIN) & (answer != truth(joint, core)[0])).sum()
    return false, answered


@pytest.mark.parametrize("world", WORLDS)
def test_false_predictions_at_any_time_are_rarer_than_alpha(world):
    false, _ = false_predictions(*WORLDS[world], alpha=ALPHA)
    assert binom.sf(false - 1, IMAGES, ALPHA) > 1e-5, f"{false} of {IMAGES}"


def test_two_ways_to_fail_are_no_likelier_than_one():
    """Where CORE or AGREE may answer falsely, each has half of alpha; with all of it, this would be
    seen.
    """
    one, _ = false_predictions(*WORLDS["wrong class guessed"], alpha=ALPHA)
    either, whole = (
        false_predictions(*WORLDS["either wrong, never together"], alpha=alpha)[0]
        for alpha in (ALPHA, 2 * ALPHA)
    )
    assert 0 < either <= 1.3 * one < whole


def test_easy_images_are_answered():
    joint = np.array([[0, 0.01, 0.01], [0.01, 0.95, 0.02]])
    assert false_predictions(joint, 0, (1, 1), alpha=0.001) == (0, IMAGES)


def test_looks_are_at_the_ends_of_chunks_and_spend_all_there_is():
    draws, spend = schedule(ADAPTIVE, n=1000, chunk=300)
    assert draws.tolist() == [300, 600, 1000] and spend.tolist() == [0.2, 0.3, 0.5]
    draws, spend = schedule(ADAPTIVE, n=100, chunk=50)
    assert draws.tolist() == [50, 100] and spend.tolist() == [0.5, 0.5]


# --- The sampler.
# -----------------------------------------------------------------------------------------------------

NETWORK = odd_networks.convolutional()


def draw(**changes) -> Counts:
    options = dict(
        sigma=0.25,
        num_classes=odd_networks.CLASSES,
        n0=20,
        n=400,
        n_predict=200,
        seed=3,
        chunk=20,
        device="cpu",
        adaptive=dataclasses.replace(ADAPTIVE, thetas=[0.2]),
    )
    return sample(NETWORK, odd_networks.images(8), **options | changes)


def written(folder, counts) -> bytes:
    write_counts(folder / "counts.npz", counts)
    return (folder / "counts.npz").read_bytes()


def test_an_adaptive_run_gives_the_same_bytes_with_any_workers_and_after_a_loss(tmp_path):
    expected = written(tmp_path, draw(workers=1))
    counts = draw(workers=3, scratch=tmp_path / "scratch")
    assert written(tmp_path, counts) == expected
    assert (counts.draws[Round.BOUND] < 400).any() and (counts.draws[Round.PREDICT] < 200).any(), (
        "nothing stopped early"
    )
    (log,) = tmp_path.glob("scratch/*/units.log")
    log.write_bytes(
        b"".join(log.read_bytes().splitlines(keepends=True)[::2])
    )  # every other unit is lost
    assert written(tmp_path, draw(scratch=tmp_path / "scratch")) == expected


def test_looks_survive_their_file(tmp_path):
    counts = draw()
    write_counts(tmp_path / "counts.npz", counts)
    read = read_counts(tmp_path / "counts.npz")
    assert set(read.looks) == {Round.BOUND, Round.PREDICT}
    for round_, looks in counts.looks.items():
        for name, values in vars(looks).items():
            np.testing.assert_array_equal(getattr(read.looks[round_], name), values)
