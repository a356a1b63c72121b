"""The ACES rule against its naive twin, its special cases, and simulation with known probabilities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from aces import composition, smoothing
from aces.composition import ABSTAIN, Route
from aces.errors import InputError
from made_counts import assemble, from_probabilities, random_counts
from made_counts import settings as run_settings

MODES = ("iut", "bonferroni")
THETAS = [0.0, 0.001, 0.25, 0.499, 0.5, 0.75, 0.999, 1.0]


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MODES), st.sampled_from([0.001, 0.05, 0.3]), st.booleans(),
       st.integers(1, 12), st.integers(1, 60))
def test_the_rule_agrees_with_the_algorithm_boxes(seed, mode, alpha, looks, n0, n):
    """Random counts with ties, k = 0, k = n, invalid draws and ties of round GUESS."""
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, images=4, n0=n0, n=max(n, 4) if looks else n, n_predict=n, looks=looks)
    core = rng.integers(0, 3, size=4)
    outcomes = composition.certify(counts, core, sigma=0.5, alpha=alpha, thetas=THETAS, multiplicity=mode)
    natural = composition.predict(counts, core, alpha=alpha, thetas=THETAS, multiplicity=mode)
    for i in range(4):
        for t, theta in enumerate(THETAS):
            prediction, radius, route = naive.certify_one(counts, i, core[i], sigma=0.5, alpha=alpha, theta=theta,
                                                          multiplicity=mode)
            assert outcomes.prediction[i, t] == prediction
            assert outcomes.radius[i, t] == pytest.approx(radius, rel=1e-9)
            assert Route(outcomes.route[i, t]).name == route
            assert natural[i, t] == naive.predict_one(counts, i, core[i], alpha=alpha, theta=theta, multiplicity=mode)
