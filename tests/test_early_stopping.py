"""Early stopping with the rules that decide it: claims stay as sound, bytes the same, and draws are
saved.
"""

import numpy as np
import pytest
from scipy.stats import binom

import confident_worlds
import odd_networks
from aces import rule
from aces.params import Adaptive
from aces.rule import ABSTAIN
from aces.rule import stopping as stopping_module
from aces.rule.counts import BINS, Counts, Round, read_counts, write_counts
from aces.rule.paper import MULTIPLICITIES
from aces.rule.stopping import LookBook, Stopping, schedule
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
    """Counts of images that stop as the sampler stops them; a draw's doubt is its score."""
    select, label = guesses(joint, guess, rng)
    everyone, classes = np.arange(BATCH), np.zeros((3, BATCH, joint.shape[1]), np.int64)
    score, of_guess = np.zeros((2, 3, BATCH, BINS + 1), np.int32)
    score[Round.GUESS, everyone, np.where(select == 1, PLACES[1], PLACES[0])] = 5
    classes[Round.GUESS, everyone, label] = 5
    first = dict(zip(("classes", "score", "doubt"), (classes[0], score[0], score[0]), strict=True))
    stopping = Stopping(ADAPTIVE, sigma=SIGMA, guess=label, **first)
    looks = {}
    for round_, settled in ((Round.BOUND, stopping.certified), (Round.PREDICT, stopping.predicted)):
        book = LookBook(ADAPTIVE, n=N, chunk=CHUNK, images=BATCH, num_classes=joint.shape[1])
        left, start = everyone, 0
        for stop in book.looks.draws:
            more = cells(joint, stop - start, rng)[left]
            classes[round_, left] += more.sum(axis=1)
            for s in (0, 1):
                score[round_, left, PLACES[s]] += more[:, s].sum(axis=1).astype(np.int32)
                mine = more[np.arange(len(left)), s, label[left]]
                of_guess[round_, left, PLACES[s]] += mine.astype(np.int32)
            totals = dict(score=score[round_], doubt=score[round_], joint_doubt=of_guess[round_])
            book.add(left, classes=classes[round_], **totals)
            left, start = left[~settled(book.of(left), left)], stop
            if not len(left):
                break
        looks[round_] = book.looks
    return Counts(
        classes=classes,
        score=score,
        doubt=score,
        joint_score=of_guess,
        joint_doubt=of_guess,
        invalid=np.zeros((3, BATCH), int),
        index=everyone,
        label=np.zeros(BATCH, int),
        guess=label,
        settings=settings(5, N, N),
        looks=looks,
    )


@pytest.mark.slow
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
        for name, mode in (*[("paper", mode) for mode in MULTIPLICITIES], ("confident", "iut")):
            ask = dict(alpha=ALPHA, thetas=[THETA], multiplicity=mode, rule=name)
            outcomes = rule.certify(counts, cores, **ask)
            natural = rule.predict(counts, cores, **ask)[:, 0]
            if name == "paper":
                claims = false_claims(outcomes, joint, core)
                wrong = (natural != ABSTAIN) & (natural != truth(joint, core)[0])
            else:  # a draw is in a class's event if it selects 1
                answer, radius = outcomes.prediction[:, 0], outcomes.radius[:, 0]
                claims = confident_worlds.is_false(answer, radius, joint[1], core)
                wrong = confident_worlds.wrong(natural, joint[1], core)
            found = np.array([claims.sum(), wrong.sum()])
            false[name, mode] = false.get((name, mode), 0) + found
    for mode, counted in false.items():
        assert (binom.sf(counted - 1, IMAGES, ALPHA) > 1e-5).all(), (
            f"{mode}: CERTIFY, PREDICT {counted} of {IMAGES}"
        )
    assert early > 0


def seen(draws_of_guess, sure, *, draws, images=4, thetas="all"):
    """Whether images with such counts are settled at their first look of n = 100,000 draws.

    Of `draws` draws, `draws_of_guess` are of the guessed class; `sure` of these have the doubt and
    score 0.3, all others 0.9.
    """
    plan = ADAPTIVE.model_copy(
        update={"looks": [0.02, 1.0], "spend": [0.15, 0.85], "tolerance": 0.02, "thetas": thetas}
    )
    every, of_guess = np.zeros((2, images, BINS + 1), np.int32)
    of_guess[:, 300], of_guess[:, 900] = sure, draws_of_guess - sure
    every[:] = of_guess
    every[:, 900] += draws - draws_of_guess
    classes = np.tile([0, draws_of_guess, draws - draws_of_guess], (images, 1))
    guess = np.ones(images, int)
    stopping = Stopping(plan, sigma=SIGMA, guess=guess, classes=classes, score=every, doubt=every)
    book = LookBook(plan, n=100_000, chunk=1000, images=images, num_classes=3)
    everyone = np.arange(images)
    book.add(everyone, classes=classes, score=every, doubt=every, joint_doubt=of_guess)
    looks = book.of(everyone)
    return [stopping.certified(looks, everyone), stopping.settled(looks, everyone)]


def test_along_all_thetas_an_image_stops_when_more_draws_bring_little():
    """The class and the doubt are clear: settled after 2 % of the draws but for the radius, which
    grows with the draws where all of them agree.
    """
    assert not np.any(seen(2000, 2000, draws=2000)), "all draws agree: the radius would grow"
    assert not np.any(seen(1010, 1010, draws=2000)), "a close majority: more draws decide"
    assert np.all(seen(400, 0, draws=2000, thetas=[0.1])), "the core answers, surely"


def test_many_thetas_are_judged_in_parts(monkeypatch):
    whole = seen(1600, 1500, draws=2000, images=5)
    monkeypatch.setattr(stopping_module, "_CELLS", 2 * (BINS + 1))
    np.testing.assert_array_equal(seen(1600, 1500, draws=2000, images=5), whole)


def test_looks_are_at_the_ends_of_chunks_and_spend_all_there_is():
    draws, spend = schedule(ADAPTIVE, n=1000, chunk=300)
    assert draws.tolist() == [300, 600, 1000] and spend.tolist() == [0.2, 0.3, 0.5]
    draws, spend = schedule(ADAPTIVE, n=100, chunk=50)
    assert draws.tolist() == [50, 100] and spend.tolist() == [0.5, 0.5]


# --- The sampler.

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
        adaptive=ADAPTIVE.model_copy(update={"thetas": [0.2]}),
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
