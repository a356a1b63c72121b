"""Questions that are read at any time: as sound as the rules with fixed numbers of draws."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import confident_worlds
import worlds
from aces.errors import InputError
from aces.rule import ABSTAIN, Route
from aces.rule.anytime import (
    ConfidentCertify,
    ConfidentPredict,
    Drawn,
    PaperCertify,
    PaperPredict,
    Terms,
    threshold,
)

ALPHA, SIGMA, N, STEP = 0.05, 0.5, 500, 50
IMAGES, BATCH = 6_000, 2_000  # of each world


def drawn(total, guess, invalid=None) -> Drawn:
    """Totals of draws by selection and class, (N, 2, K): bin 0 of score and doubt selects 1."""
    score = total.sum(axis=2)[:, ::-1]
    joint = total[np.arange(len(total)), :, guess][:, ::-1]
    invalid = np.zeros(len(total), int) if invalid is None else invalid
    return Drawn(total.sum(axis=1), score=score, doubt=score, joint_doubt=joint, invalid=invalid)


def first_draws(joint, guess, rng, *, n0=5):
    """Round GUESS: forced, or drawn."""
    if guess is None:
        return rng.multinomial(n0, joint.ravel(), size=BATCH).reshape(BATCH, *joint.shape)
    first = np.zeros((BATCH, *joint.shape), int)
    first[:, guess[0], guess[1]] = n0
    return first


def answers(ask, joint, forced, rng, *, steps=N // STEP):
    """(routes, guessed classes) of a batch whose question is read after every few draws."""
    first = first_draws(joint, forced, rng)
    guess = first.sum(axis=1).argmax(axis=1)
    question = ask(drawn(first, guess))
    total, decided = np.zeros_like(first), np.zeros(BATCH, bool)
    routes = np.full(BATCH, Route.ABSTAIN)
    for _ in range(steps):
        total += rng.multinomial(STEP, joint.ravel(), size=BATCH).reshape(total.shape)
        done = question.read(drawn(total, guess))
        routes = np.where(decided, routes, question.routes)  # what is decided draws no more
        decided |= done
    return routes, guess


def predictions(rule, joint, core, forced, rng, *, alpha=ALPHA):
    """(N,) answers of PREDICT."""
    cores = np.full(BATCH, core)
    routes, guess = answers(
        lambda first: rule(first, cores, Terms(theta=0.0, alpha=alpha, n=N)), joint, forced, rng
    )
    return np.select([routes == Route.ABSTAIN, routes == Route.CORE], [ABSTAIN, core], guess)


def false_by_paper(joint, core, forced, *, alpha=ALPHA) -> tuple[int, int]:
    """How many images PREDICT answers falsely by the paper's rule, and how many at all."""
    false = answered = 0
    for batch in range(IMAGES // BATCH):
        rng = np.random.default_rng(batch)
        answer = predictions(PaperPredict, joint, core, forced, rng, alpha=alpha)
        answered += (answer != ABSTAIN).sum()
        false += ((answer != ABSTAIN) & (answer != worlds.truth(joint, core)[0])).sum()
    return false, answered


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_false_predictions_by_the_papers_rule_are_rarer_than_alpha(world):
    false, _ = false_by_paper(*worlds.WORLDS[world])
    assert binom.sf(false - 1, IMAGES, ALPHA) > 1e-5, f"{false} of {IMAGES}"


def test_two_ways_to_fail_are_no_likelier_than_one():
    """Where CORE or AGREE may answer falsely, each has half of alpha; with all of it, this would be
    seen.
    """
    one, _ = false_by_paper(*worlds.WORLDS["wrong class guessed"])
    world = worlds.WORLDS["either wrong, never together"]
    either, whole = (false_by_paper(*world, alpha=alpha)[0] for alpha in (ALPHA, 2 * ALPHA))
    assert 0 < either <= 1.3 * one < whole


FEW = [name for name, (p, *_) in confident_worlds.WORLDS.items() if len(p) <= 50]


def as_joint(p):
    """(2, K) of a confident world: what is not in an event is doubtful, of the first class."""
    joint = np.array([np.zeros(len(p)), p])
    joint[0, 0] = max(1 - sum(p), 0.0)
    return joint / joint.sum()


@pytest.mark.parametrize("world", FEW)
def test_false_predictions_by_the_confident_rule_are_rarer_than_alpha(world):
    p, core, forced = confident_worlds.WORLDS[world]
    false = 0
    for batch in range(IMAGES // BATCH):
        rng = np.random.default_rng(batch)
        answer = predictions(ConfidentPredict, as_joint(p), core, forced, rng)
        false += confident_worlds.wrong(answer, p, core).sum()
    assert binom.sf(false - 1, IMAGES, ALPHA) > 1e-5, f"{false} of {IMAGES}"


def test_a_broken_question_is_noticed(monkeypatch):
    """Without the test of the other classes, the core is claimed where another class wins."""
    p, core, forced = confident_worlds.WORLDS["another class has the majority, core is guessed"]
    monkeypatch.setattr(
        Drawn,
        "at_most",
        lambda self, name, theta: self.joint_doubt[:, 0],  # the doubt of other classes is forgotten
    )
    answer = predictions(ConfidentPredict, as_joint(p), core, forced, np.random.default_rng(0))
    false = confident_worlds.wrong(answer, p, core).sum()
    assert binom.sf(false - 1, BATCH, ALPHA) < 1e-9


@pytest.mark.parametrize("rule", [PaperCertify, ConfidentCertify])
def test_a_radius_is_certified_falsely_as_rarely_as_alpha(rule):
    """The event is exactly as likely as the radius needs."""
    ask = dict(terms=Terms(theta=0.0, alpha=ALPHA, n=N), radius=0.3, sigma=SIGMA)
    p = float(norm.cdf(0.3 / SIGMA))
    joint, false = np.array([[0, 0, 1 - p], [0, p, 0]]), 0
    for batch in range(IMAGES // BATCH):
        rng = np.random.default_rng(batch)
        routes, _ = answers(lambda first: rule(first, **ask), joint, (1, 1), rng)
        false += (routes == Route.CERTIFY).sum()
    assert 0 < false and binom.sf(false - 1, IMAGES, ALPHA) > 1e-5, f"{false} of {IMAGES}"


@pytest.mark.parametrize("rule", [PaperPredict, ConfidentPredict])
def test_easy_images_are_answered(rule):
    joint = np.array([[0, 0.01, 0.01], [0.01, 0.95, 0.02]])
    rng = np.random.default_rng(0)
    assert (predictions(rule, joint, 0, (1, 1), rng, alpha=0.001) == 1).all()
    joint = np.array([[0.4, 0.5, 0.06], [0.01, 0.02, 0.01]])
    assert (predictions(rule, joint, 0, (0, 1), rng, alpha=0.001) == 0).all()


@pytest.mark.parametrize("rule", [PaperCertify, ConfidentCertify])
def test_easy_radii_are_certified_and_hopeless_ones_given_up(rule):
    ask = dict(terms=Terms(theta=0.0, alpha=0.001, n=N), radius=0.3, sigma=SIGMA)
    easy = np.array([[0, 0, 0.005], [0, 0.99, 0.005]])
    routes, _ = answers(lambda first: rule(first, **ask), easy, (1, 1), np.random.default_rng(0))
    assert (routes == Route.CERTIFY).all()
    first = first_draws(easy, (0, 1), np.random.default_rng(0))
    question = rule(drawn(first, np.ones(BATCH, int)), **ask)
    assert not question.worthwhile.any(), "the core answers, which has no radius"
    hard = np.array([[0, 0, 0.4], [0, 0.5, 0.1]])
    first = first_draws(hard, (1, 1), np.random.default_rng(0))
    question = rule(drawn(first, np.ones(BATCH, int)), **ask)
    assert question.worthwhile.all()
    total = np.random.default_rng(0).multinomial(400, hard.ravel(), BATCH).reshape(BATCH, 2, 3)
    assert question.read(drawn(total, np.ones(BATCH, int))).mean() > 0.99


def test_at_theta_one_the_confident_question_is_a_duel():
    """Invalid draws count for every rival."""
    first = np.zeros((2, 2, 3), int)
    first[:, 0, 1] = 9
    guess = np.ones(2, int)
    question = ConfidentPredict(drawn(first, guess), guess, Terms(theta=1.0, alpha=0.001, n=N))
    total = np.zeros((2, 2, 3), int)
    total[:, 0, 1] = 60
    done = question.read(drawn(total, guess, invalid=np.array([0, 60])))
    assert done.tolist() == [True, False]
    assert question.routes.tolist() == [Route.CERTIFY, Route.ABSTAIN]


def test_a_radius_that_cannot_be_certified_is_refused():
    for radius in (0.0, -1.0, 1.5, 5.0):  # at 1.5, 1,000 draws do not suffice
        with pytest.raises(InputError, match=f"radius={radius}"):
            threshold(radius, sigma=SIGMA, alpha=0.001, n=1000)
    p0 = threshold(0.3, sigma=SIGMA, alpha=0.001, n=1000)
    assert threshold(0.3, sigma=SIGMA, alpha=0.001, n=1000, tv=0.01) == pytest.approx(p0 + 0.01)


def test_noise_that_is_too_far_from_the_exact_law_is_refused():
    """Also where it leaves nothing of half of alpha, which is the level of some comparisons."""
    for tv in (1e-6, 6e-8):
        with pytest.raises(InputError, match="n \\* tv"):
            Terms(theta=0.5, alpha=0.001, n=10_000, tv=tv)
    assert Terms(theta=0.5, alpha=0.001, n=10_000, tv=4e-8).level > 0
