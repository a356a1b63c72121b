"""The noise: keyed by everything it belongs to, and Gaussian. Seeds are fixed, so nothing here can
fail by chance.
"""

import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from aces.rule.counts import Round
from aces.sampling.noise import generator, stream_of

KEY = dict(seed=3, model="a" * 64, index=20, round=Round.BOUND, chunk=7)


def draw(size=4096, **changes):
    return torch.empty(size).normal_(generator=generator(stream_of(**KEY | changes))).numpy()


def test_the_same_key_gives_the_same_noise():
    assert np.array_equal(draw(), draw())


CHANGES = [
    dict(seed=4),
    dict(model="b" * 64),
    dict(index=21),
    dict(round=Round.GUESS),
    dict(round=Round.PREDICT),
    dict(chunk=8),
    dict(
        seed=3 + 2**32
    ),  # torch's own seeding reads 32 bits, and would give these two the noise of the key
    dict(chunk=7 + 2**32),
    dict(seed=32, index=0),
    dict(index=207, chunk=0),
]  # parts of a key do not run into each other


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_key_gives_independent_noise(change):
    one, other = draw(), draw(**change)
    assert not np.isin(one, other).mean() > 0.01
    assert stats.pearsonr(one, other).pvalue > 1e-4


def test_the_key_fills_the_whole_state_of_the_mersenne_twister():
    """numpy's Mersenne Twister, given the same 624 words, gives torch's uniform numbers: 24 bits of
    each word.
    """
    words = np.frombuffer(
        hashlib.shake_256(b"3/" + b"a" * 64 + b"/20/1/7").digest(2496), dtype="<u4"
    )
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    expected = (twister.random_raw(2000) & (2**24 - 1)) / 2**24
    assert np.array_equal(
        torch.rand(2000, generator=generator(stream_of(**KEY))).double().numpy(), expected
    )


def test_noise_is_standard_normal():
    noise = np.concatenate([draw(100_000, chunk=chunk) for chunk in range(10)])
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 4e-3 and abs(noise.std() - 1) < 3e-3  # four standard errors
    tails = stats.norm.sf([2, 3, 4]) * len(noise)
    found = [(noise > z).sum() for z in (2, 3, 4)]
    assert all(
        stats.poisson.sf(k - 1, m) > 1e-3 and stats.poisson.cdf(k, m) > 1e-3
        for k, m in zip(found, tails)
    )


def test_chunks_images_and_rounds_are_uncorrelated():
    keys = [
        dict(index=index, round=round, chunk=chunk)
        for index in (0, 1, 2)
        for round in Round
        for chunk in (0, 1, 2)
    ]
    noise = np.stack([draw(20_000, **key) for key in keys])
    correlation = np.corrcoef(noise)[np.triu_indices(len(keys), 1)]
    # 351 pairs of standard error 20000^-1/2: all within 4.5 of them, and of the right spread
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)
    assert stats.kstest(correlation * np.sqrt(20_000), "norm").pvalue > 1e-3


def test_first_values_of_many_chunks_are_standard_normal():
    """A generator that starts alike for neighbouring keys passes every test within a chunk, and
    fails this one.
    """
    first = np.stack([draw(16, chunk=chunk) for chunk in range(4000)])
    assert all(stats.kstest(column, "norm").pvalue > 1e-4 for column in first.T)
    assert stats.pearsonr(first[:-1, 0], first[1:, 0]).pvalue > 1e-3


def test_sigma_scales_the_same_noise():
    one = torch.empty(64).normal_(0.0, 1.0, generator=generator(stream_of(**KEY)))
    half = torch.empty(64).normal_(0.0, 0.5, generator=generator(stream_of(**KEY)))
    torch.testing.assert_close(half, one / 2)
