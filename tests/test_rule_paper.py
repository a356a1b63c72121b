"""The paper's rule: its naive twin, its special cases, simulation with known probabilities."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from aces import rule
from aces.errors import InputError
from aces.rule import ABSTAIN, Route, Selected, smoothing
from aces.rule.events import bins_of
from made_counts import from_joint, random_counts, with_looks
from worlds import WORLDS, false_claims, independent, truth

MODES = ("iut", "bonferroni")
certify = partial(rule.certify, rule="paper")
predict = partial(rule.predict, rule="paper")
ceiling = partial(rule.ceiling, rule="paper")
THETAS = [0.0, 0.001, 0.25, 0.499, 0.5, 0.75, 0.999, 1.0]


@settings(max_examples=120)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(MODES),
    st.sampled_from([0.001, 0.05, 0.3]),
    st.booleans(),
    st.integers(1, 12),
    st.integers(1, 60),
)
def test_the_rule_agrees_with_the_algorithm_boxes(seed, mode, alpha, looks, n0, n):
    """Random counts with ties, k = 0, k = n, invalid draws and ties of round GUESS."""
    rng = np.random.default_rng(seed)
    counts = random_counts(
        rng, images=4, n0=n0, n=max(n, 4) if looks else n, n_predict=n, looks=looks
    )
    core = rng.integers(0, 3, size=4)
    outcomes = certify(counts, core, sigma=0.5, alpha=alpha, thetas=THETAS, multiplicity=mode)
    natural = predict(counts, core, alpha=alpha, thetas=THETAS, multiplicity=mode)
    for i in range(4):
        for t, theta in enumerate(THETAS):
            prediction, radius, route = naive.certify_one(
                counts, i, core[i], sigma=0.5, alpha=alpha, theta=theta, multiplicity=mode
            )
            assert outcomes.prediction[i, t] == prediction
            assert outcomes.radius[i, t] == pytest.approx(radius, rel=1e-9)
            assert Route(outcomes.route[i, t]).name == route
            assert natural[i, t] == naive.predict_one(
                counts, i, core[i], alpha=alpha, theta=theta, multiplicity=mode
            )


@pytest.mark.parametrize("mode, expected", [("iut", "0.95286"), ("bonferroni", "0.94694")])
def test_the_ceiling_is_what_draws_that_all_agree_certify(mode, expected):
    """The two numbers: ppf(0.001 ** 1e-5) / 4 and ppf(0.0005 ** 1e-5) / 4; the published log has
    the second as 0.947.
    """
    everything = dict(images=1, n0=10, n_predict=10, rng=np.random.default_rng(0))
    counts = from_joint([[0, 0], [0, 1]], n=100_000, **everything)
    assert f"{ceiling(counts, sigma=0.5, alpha=0.001, multiplicity=mode) / 2:.5f}" == expected
    for counts in (  # noqa: B020 (the first of them is the one above)
        counts,
        with_looks(
            from_joint([[0, 0], [0, 1]], n=400, **everything), np.random.default_rng(1), stop=False
        ),
    ):
        outcomes = certify(
            counts, np.array([0]), sigma=0.5, alpha=0.001, thetas=[0.5], multiplicity=mode
        )
        assert outcomes.radius.item() == ceiling(counts, sigma=0.5, alpha=0.001, multiplicity=mode)


# --- Soundness by simulation: images whose probabilities are known, at the worst cases.
# -------------------------------
IMAGES, BATCH = 8_000, 2_000  # of each world: 104,000 images in all


@pytest.mark.parametrize("world", WORLDS)
def test_false_claims_are_rarer_than_alpha(world):
    """CERTIFY and PREDICT, both modes, three alphas: not significantly (1e-5) above alpha."""
    joint, core, guess = WORLDS[world]
    false = {}
    for batch in range(IMAGES // BATCH):
        counts = from_joint(
            joint,
            images=BATCH,
            n0=5,
            n=300,
            n_predict=300,
            rng=np.random.default_rng(batch),
            guess=guess,
        )
        cores = np.full(BATCH, core)
        for alpha in (0.1, 0.01, 0.001):
            for mode in MODES:
                outcomes = certify(
                    counts, cores, sigma=0.5, alpha=alpha, thetas=[0.5], multiplicity=mode
                )
                natural = predict(counts, cores, alpha=alpha, thetas=[0.5], multiplicity=mode)[:, 0]
                wrong = (natural != ABSTAIN) & (natural != truth(joint, core)[0])
                key = alpha, mode
                false[key] = false.get(key, 0) + np.array(
                    [false_claims(outcomes, joint, core).sum(), wrong.sum()]
                )
    for (alpha, mode), found in false.items():
        assert (naive.binom.sf(found - 1, IMAGES, alpha) > 1e-5).all(), (
            f"{mode}, alpha {alpha}: CERTIFY, PREDICT {found} of {IMAGES}"
        )


def test_the_simulation_would_notice_an_unsound_rule():
    """Without splitting alpha where CORE or AGREE may answer, the claims are false about twice as
    often as alpha.
    """
    joint, core, guess = WORLDS["either wrong, never together"]
    counts = from_joint(
        joint, images=BATCH, n0=5, n=300, n_predict=1, rng=np.random.default_rng(0), guess=guess
    )
    unsplit = certify(
        counts, np.full(BATCH, core), sigma=0.5, alpha=0.2, thetas=[0.5]
    )  # alpha / 2 = 0.1 each
    assert naive.binom.sf(false_claims(unsplit, joint, core).sum() - 1, BATCH, 0.1) < 1e-9


def test_predict_as_printed_is_unsound():
    """Algorithm 4 with OR returns the core's class untested: wrong for nearly half of the images,
    at alpha = 0.001.
    """
    joint, core, _ = WORLDS["core wrongly selected"]
    counts = from_joint(joint, images=2000, n0=5, n=1, n_predict=301, rng=np.random.default_rng(0))
    given = [
        naive.predict_one(
            counts, i, core, alpha=0.001, theta=0.5, multiplicity="bonferroni", printed=True
        )
        for i in range(2000)
    ]
    false = np.mean([answer not in (ABSTAIN, truth(joint, core)[0]) for answer in given])
    assert false > 0.4
    sound = predict(
        counts, np.full(2000, core), alpha=0.001, thetas=[0.5], multiplicity="bonferroni"
    )[:, 0]
    assert np.mean((sound != ABSTAIN) & (sound != truth(joint, core)[0])) < 0.005


# --- What the modes promise.
# ------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_at_theta_one_aces_is_its_certification_network(seed, looks):
    """With `iut`, image by image, CERTIFY and PREDICT, also with invalid draws and with looks."""
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, images=8, n=60, n_predict=40, looks=looks)
    core = rng.integers(0, 3, size=8)
    outcomes = certify(counts, core, sigma=0.5, alpha=0.01, thetas=[1.0])
    alone = smoothing.certify(counts, sigma=0.5, alpha=0.01)
    assert np.array_equal(outcomes.prediction[:, 0], alone.prediction)
    assert np.array_equal(outcomes.radius[:, 0], alone.radius)
    assert np.array_equal(
        predict(counts, core, alpha=0.01, thetas=[1.0])[:, 0],
        smoothing.predict(counts, alpha=0.01),
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.001, 0.1]))
def test_iut_never_gives_a_smaller_radius_nor_fewer_answers(seed, looks, alpha):
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, images=8, n=80, n_predict=40, looks=looks)
    core = rng.integers(0, 3, size=8)
    iut, paper = (
        certify(counts, core, sigma=0.5, alpha=alpha, thetas=THETAS, multiplicity=mode)
        for mode in MODES
    )
    # Where the class is bounded against its runner-up, which only `iut` does, a radius may also be
    # a little smaller: the choice is made from the n0 draws alone.
    alone = ~smoothing.by_runner_up(counts, alpha=alpha)
    answered = (paper.prediction != ABSTAIN) & alone[:, None]
    assert np.all(iut.radius[alone] >= paper.radius[alone])
    assert np.array_equal(iut.prediction[answered], paper.prediction[answered])
    iut, paper = (
        predict(counts, core, alpha=alpha, thetas=THETAS, multiplicity=mode) for mode in MODES
    )
    assert np.all((iut != ABSTAIN) | (paper == ABSTAIN))
    if not looks:  # with looks, one mode may answer earlier than the other, from fewer draws
        assert np.all((iut == paper) | (paper == ABSTAIN))


def test_iut_gains_a_radius_somewhere():
    counts = from_joint(
        independent(0.9, [0, 0.9, 0.1]),
        images=50,
        n0=20,
        n=500,
        n_predict=1,
        rng=np.random.default_rng(0),
    )
    iut, paper = (
        certify(counts, np.zeros(50, int), sigma=0.5, alpha=0.001, thetas=[0.5], multiplicity=mode)
        for mode in MODES
    )
    assert np.all(iut.radius > paper.radius)


def test_the_truth_table():
    """One image for each row of the table; class 1 is guessed."""
    cases = [  # P[selects 1], P[class 1], core, s_hat -> route, answer
        (1.0, 1.0, 0, 1, Route.CERTIFY, 1),
        (0.0, 1.0, 0, 0, Route.CORE, 0),
        (0.5, 1.0, 1, 1, Route.AGREE, 1),
        (0.5, 1.0, 0, 1, Route.ABSTAIN, ABSTAIN),
        (1.0, 0.5, 1, 1, Route.ABSTAIN, ABSTAIN),
        (0.5, 1.0, 1, 0, Route.AGREE, 1),
        (0.0, 0.5, 0, 0, Route.CORE, 0),
    ]
    for p_one, p_class, core, s_hat, route, answer in cases:
        counts = from_joint(
            independent(p_one, [1 - p_class, p_class]),
            images=1,
            n0=5,
            n=300,
            n_predict=1,
            rng=np.random.default_rng(0),
            guess=(s_hat, 1),
        )
        outcomes = certify(counts, np.array([core]), sigma=0.5, alpha=0.001, thetas=[0.5])
        assert (Route(outcomes.route[0, 0]), outcomes.prediction[0, 0]) == (route, answer), (
            p_one,
            p_class,
            core,
            s_hat,
        )
        assert (outcomes.radius[0, 0] > 0) == (route == Route.CERTIFY)
        expected = {1.0: Selected.CERTIFY, 0.5: Selected.NEITHER, 0.0: Selected.CORE}[p_one]
        assert outcomes.selected[0, 0] == expected
        assert (outcomes.selection_radius[0, 0] > 0) == (p_one != 0.5)


def test_invalid_draws_count_against_every_answer():
    """60 % invalid draws: nobody has a majority of all draws, though all valid draws agree."""
    for p_one, s_hat in ((1.0, 1), (0.0, 0)):
        counts = from_joint(
            independent(p_one, [0, 1.0]),
            images=20,
            n0=5,
            n=300,
            n_predict=300,
            guess=(s_hat, 1),
            rng=np.random.default_rng(0),
            p_invalid=0.6,
        )
        for core in (0, 1):
            cores = np.full(20, core)
            assert np.all(
                certify(counts, cores, sigma=0.5, alpha=0.001, thetas=[0.5]).route == Route.ABSTAIN
            )
            assert np.all(predict(counts, cores, alpha=0.001, thetas=[0.5]) == ABSTAIN)


def test_every_theta_on_the_grid_is_exact():
    """Scores of exactly i / 1000 are selected by theta = i / 1000, for all i, whatever the rounding
    of theta.
    """
    counts = random_counts(np.random.default_rng(0), images=1)
    thetas = (
        np.arange(1001) * 0.001
    )  # with rounding errors: 0.003 is 0.0030000000000000001, 0.007 is 0.007
    assert np.array_equal(bins_of(thetas), np.arange(1001))
    assert np.array_equal(bins_of(np.linspace(0, 1, 1001)), np.arange(1001))
    assert certify(counts, [0], sigma=0.5, alpha=0.1, thetas=thetas).route.shape == (
        1,
        1001,
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(thetas=[0.5, 0.1234]), "theta=0.1234.*0.123"),
        (dict(thetas=[1.2]), "theta=1.2"),
        (dict(thetas=[float("nan")]), "theta"),
        (dict(alpha=2), "alpha=2 not in"),
        (dict(multiplicity="none"), "iut, bonferroni"),
        (dict(core=[0]), "core has shape"),
        (dict(sigma=-1.0), "sigma"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    counts = random_counts(np.random.default_rng(0), images=3)
    arguments = dict(core=np.zeros(3, int), sigma=0.5, alpha=0.01, thetas=[0.5]) | change
    with pytest.raises(InputError, match=message):
        certify(counts, **arguments)
