"""Logits to counts, against a naive loop over draws in float64."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aces.rule.counts import BINS
from aces.sampling.kernels import bin_of
from aces.sampling.tally import (
    CompiledTally,
    TorchTally,
    bins,
    core_probability,
    doubts,
    entropy,
    split,
    width,
)

TALLIES = [CompiledTally, TorchTally]

EDGES = [i / BINS for i in range(BINS + 1)]


def naive_bin(score: float) -> int:
    return next(i for i, edge in enumerate(EDGES) if score <= edge)


@pytest.mark.parametrize("shift", [0, 1, -1])
def test_bins_are_exact_at_and_beside_every_edge(shift):
    """The nearest float32 on and on each side of i / BINS, compared with i / BINS in float64."""
    scores = np.array(EDGES, dtype=np.float32)
    if shift:
        scores = np.nextafter(scores, np.float32(2 * shift)).clip(0, 1)
    expected = [naive_bin(float(score)) for score in scores]
    assert bins(torch.from_numpy(scores)).tolist() == expected
    assert [bin_of(float(score)) for score in scores] == expected
    exact = np.array(EDGES) if not shift else np.nextafter(EDGES, 2.0 * shift).clip(0, 1)
    assert [bin_of(score) for score in exact] == [naive_bin(score) for score in exact]


def test_cumulated_bins_count_the_scores_below_any_theta():
    scores = torch.rand(5000, generator=torch.Generator().manual_seed(0))
    below = torch.bincount(bins(scores), minlength=BINS + 1).cumsum(0)
    for i in range(BINS + 1):
        assert below[i] == (scores.double() <= i / BINS).sum()


@pytest.mark.parametrize(
    "logits, expected",
    [
        ([0.0, 0.0, 0.0, 0.0], 1.0),  # uniform
        ([1e4, 0.0, 0.0, 0.0], 0.0),  # certain
        ([3e38, -3e38, 0.0, 0.0], 0.0),  # their difference overflows, p log p must not become NaN
        ([math.log(0.5), math.log(0.5), -1e30, -1e30], 0.5),  # one bit of two
    ],
)
def test_entropy_of_known_distributions(logits, expected):
    assert entropy(torch.tensor([logits])).item() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=200)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=12))
def test_entropy_is_that_of_float64_and_within_0_and_1(logits):
    p = np.exp(np.array(logits, dtype=float) - max(logits))
    p /= p.sum()
    expected = -(p[p > 0] * np.log(p[p > 0])).sum() / math.log(len(logits))
    found = entropy(torch.tensor([logits], dtype=torch.float32)).item()
    assert 0 <= found <= 1
    assert found == pytest.approx(expected, abs=1e-5)


def made(kind, guess, *, num_classes):
    return kind(torch.tensor(guess), num_classes=num_classes)


def tally(kind, logits, *, guess=(0,), row=None, selection=None, num_classes):
    counter = made(kind, guess, num_classes=num_classes)
    row = torch.zeros(len(logits), dtype=torch.int64) if row is None else row
    counter.add(row, logits, *([] if selection is None else [selection]))
    return split(counter.counts(), num_classes=num_classes)


def naive_doubt(logits) -> float:
    """As the docstring of `doubts` defines it, in many digits."""
    with mpmath.workdps(400):
        terms = [mpmath.exp(mpmath.mpf(float(value))) for value in logits]
        rest = 1 - max(terms) / mpmath.fsum(terms)
        return float(1 / (1 + mpmath.log((1 - mpmath.mpf(1) / len(terms)) / rest)))


def test_doubt_is_1_where_all_classes_are_alike_and_falls_as_the_network_gets_surer():
    logits = torch.tensor([[2.0, 2.0, 2.0], [2.0, 2.0, 0.0], [1.0, 4.0, 3.0], [3e38, -3e38, 0.0]])
    found = doubts(logits)
    assert found[0] == 1.0 and 1 > found[1] > found[2] > found[3] and 0 < found[3] < 1e-37


@settings(max_examples=200)
@given(st.lists(st.floats(-400, 400, width=32), min_size=2, max_size=12))
@example([390.0, -349.0])
@example([400.0, *[-400.0] * 11])
def test_doubt_is_as_defined_however_sure_the_network_is(logits):
    """Exp is denormal beyond a margin of 708, with few digits; beyond 745 it is 0, and the margin
    stands for the logarithm of the sum of up to 11 terms.
    """
    found = doubts(torch.tensor([logits], dtype=torch.float32)).item()
    assert 0 < found <= 1
    second, first = sorted(logits)[-2:]
    digits = 1e-6 if first - second < 708 else math.log(11) / 708
    assert found == pytest.approx(naive_doubt(logits), rel=digits)


@settings(max_examples=50)
@given(st.lists(st.floats(-2000, 2000, width=32), min_size=2, max_size=6))
def test_both_tallies_find_the_same_doubt(logits):
    tallies = [
        tally(kind, torch.tensor([logits]), num_classes=len(logits)).doubt for kind in TALLIES
    ]
    first, second = (int(found[0].argmax()) for found in tallies)
    assert abs(first - second) <= 1  # at the edge of a bin the last digit decides


@pytest.mark.parametrize("kind", TALLIES)
def test_tally_is_the_naive_count(kind):
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(400, 5, generator=generator)
    logits[::50, 2] = float("nan")
    logits[1::50, 3] = float("inf")
    logits[2::50, 4] = -float("inf")
    logits[3::50] = 1.0  # ties: the first class, doubt 1
    row = torch.randint(3, (400,), generator=generator)
    guess = [4, 0, 2]
    found = tally(kind, logits, guess=guess, row=row, num_classes=5)

    shapes = [(3, 5), *[(3, BINS + 1)] * 4, (3,)]
    classes, score, doubt, joint_score, joint_doubt, invalid = expected = [
        np.zeros(shape, int) for shape in shapes
    ]
    for image, values in zip(row.tolist(), logits, strict=True):
        if not values.isfinite().all():
            invalid[image] += 1
            continue
        label = int(values.argmax())
        places = naive_bin(entropy(values[None]).item()), naive_bin(naive_doubt(values))
        classes[image, label] += 1
        for counts, place in zip((score, doubt), places, strict=True):
            counts[image, place] += 1
        for counts, place in zip((joint_score, joint_doubt), places, strict=True):
            counts[image, place] += label == guess[image]
    assert invalid.sum() == 24 and doubt[:, BINS].sum() >= 8
    for counts, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(counts, right)


@pytest.mark.parametrize("kind", TALLIES)
def test_tally_of_a_selection_network_bins_the_probability_of_the_core(kind):
    selection = torch.tensor([[0.0, 0.0], [9.0, -9.0], [-200.0, 200.0], [float("nan"), 0.0]])
    counts = tally(kind, torch.tensor([[1.0, 0.0]] * 4), selection=selection, num_classes=2)
    assert core_probability(selection[:1]).item() == 0.5
    assert np.flatnonzero(counts.score[0]).tolist() == [0, 500, BINS]
    assert counts.invalid[0] == 1 and counts.classes[0].tolist() == [3, 0]
    assert counts.doubt[0, naive_bin(naive_doubt([1.0, 0.0]))] == 3


@pytest.mark.parametrize("kind", TALLIES)
def test_parts_add_up(kind):
    logits = torch.randn(100, 4, generator=torch.Generator().manual_seed(2))
    whole, parts = made(kind, [1], num_classes=4), made(kind, [1], num_classes=4)
    rows = torch.zeros(100).long()
    whole.add(rows, logits)
    for part in logits.split(33):
        parts.add(rows[: len(part)], part)
    np.testing.assert_array_equal(whole.counts(), parts.counts())
    assert whole.counts().shape == (1, width(4))
