"""The exact noise: its law and how far the tables are from it, the cipher, keys, the lattice."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

import naive_noise
from aces.errors import InputError
from aces.rule.counts import Round
from aces.sampling import kernels, law
from aces.sampling.lattice import RUN, WORDS, Lattice, Tables, lattice, probabilities
from aces.sampling.noise import (
    AliasNoise,
    add_exact_noise,
    generator,
    lattice_points,
    rounding_distance,
    stream_of,
)

SIGMAS = [0.12, 0.25, 1.0]
KEY = dict(seed=3, model="a" * 64, index=20, round=Round.BOUND, chunk=7)


def exact_probability(k: int, spread: Fraction):
    """Pr[k] by mpmath to 60 digits."""
    s = mpmath.mpf(spread.numerator) / spread.denominator
    return mpmath.ncdf((k + mpmath.mpf(1) / 2) / s) - mpmath.ncdf((k - mpmath.mpf(1) / 2) / s)


@pytest.mark.parametrize("sigma", [*SIGMAS, 1e-6, 5.0])
def test_probabilities_are_those_of_mpmath(sigma):
    spread = Lattice(sigma).spread
    found = probabilities(spread)
    with mpmath.workdps(70):
        special = {0, 1, 2, round(spread), len(found) - 1}  # He_2 vanishes at t = 1, k = S
        for k in special | set(range(0, len(found), max(1, len(found) // 60))):
            error = mpmath.mpf(found[k]) / 2**192 - exact_probability(k, spread)
            assert abs(error) < mpmath.mpf(2) ** -150, k
        tails = 2 * mpmath.ncdf(-(len(found) - mpmath.mpf(1) / 2) / spread)
        assert tails < mpmath.mpf(2) ** -61


def law_of(tables: Tables, *, packed: bool = False) -> dict[int, Fraction]:
    """The law that the tables draw from, as exact fractions."""
    drawn: dict[int, Fraction] = {}
    slow = Fraction(1)
    if len(tables.slots):
        words = np.arange(tables.slow)
        values, counts = np.unique(tables.slots[words // RUN] + words % RUN, return_counts=True)
        drawn = {int(k): Fraction(int(n), WORDS) for k, n in zip(values, counts, strict=True)}
        slow = 1 - sum(drawn.values())
    capacity, column_share = 1 << tables.shift, Fraction(1, len(tables.threshold))
    columns = zip(tables.threshold.tolist(), tables.other.tolist(), strict=True)
    if packed:
        bits, numbers = 64 - tables.shift, tables.packed.tolist()
        columns = ((it >> bits, it % (1 << bits) - tables.reach) for it in numbers)
    for column, (threshold, other) in enumerate(columns):
        own = Fraction(threshold, capacity) * column_share * slow
        for k, mass in ((column - tables.reach, own), (other, column_share * slow - own)):
            if mass:
                drawn[k] = drawn.get(k, Fraction(0)) + mass
    return drawn


@pytest.mark.parametrize("kind", ["direct", "alias"])
@pytest.mark.parametrize("sigma", [0.25, 0.12])
def test_the_distance_of_the_tables_from_the_law_is_the_derived_one(sigma, kind):
    """Total variation between what the tables draw and mpmath's law, all of it counted."""
    steps = lattice(sigma)
    tables = getattr(steps, kind)
    drawn = law_of(tables)
    assert drawn == law_of(tables, packed=True)
    assert sum(drawn.values()) == 1 and max(map(abs, drawn)) <= steps.reach
    with mpmath.workdps(60):
        apart = mpmath.mpf(0)
        for k in range(steps.reach + 1):
            p = exact_probability(k, steps.spread)
            for sign in {k, -k}:
                mass = drawn.get(sign, Fraction(0))
                apart += abs(mpmath.mpf(mass.numerator) / mass.denominator - p)
        apart += 2 * mpmath.ncdf(-(steps.reach + mpmath.mpf(1) / 2) / steps.spread)
        assert 0.3 * tables.tv < apart / 2 <= tables.tv < 2.0**-51


def test_every_noisy_value_is_a_whole_number_that_float32_holds():
    for sigma in (1e-6, 1e-4, 0.01, 0.12, 0.25, 0.5, 1.0, 2.0, 10.0):
        steps = Lattice(sigma)
        assert 255 * 2**steps.refinement + steps.reach < 2**24
        assert steps.spread <= 512 or steps.refinement == 0
    assert Lattice(0.25).refinement == 3 and Lattice(0.25).spread == 510


@pytest.mark.parametrize("sigma", [1e-7, 20.0, 64.0])
def test_a_sigma_without_a_lattice_is_refused(sigma):
    with pytest.raises(InputError, match=r"exact noise needs a sigma from 1e-06 to 14, for pixels"):
        Lattice(sigma)


def test_the_cipher_is_chacha():
    """The published test vector of ChaCha with 8 rounds, key and counter 0 (Strombergson, TC1)."""
    out = np.empty((16, 1), dtype=np.uint32)
    kernels.chacha8(np.zeros(8, dtype=np.uint32), *map(np.uint32, (0, 0, 0)), out)
    assert out.tobytes().hex() == (
        "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
        "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42"
    )
    key, out = np.arange(8, dtype=np.uint32) * 977, np.empty((16, 40), dtype=np.uint32)
    kernels.chacha8(key, *map(np.uint32, (5, 6, 1)), out)
    counter = [(5 + block, 6, 1, 0) for block in range(40)]
    np.testing.assert_array_equal(out.T, naive_noise.chacha(key, counter))


def drawn(draws=4, pixels=(3, 9, 11), sigma=0.25, **changes) -> np.ndarray:
    """(D, P) values k."""
    steps, out = lattice(sigma), torch.empty((draws, *pixels))
    add_exact_noise(
        out,
        torch.zeros(pixels, dtype=torch.int32),
        lattice=steps,
        stream=stream_of(**KEY | changes),
        first_draw=0,
    )
    return (out.double() * steps.scale).round().long().flatten(1).numpy()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.033, 0.2, 1.0])
def test_every_slow_word_is_found_in_its_place(share):
    """Also where more words of a group are slow than are looked for in any case."""
    words = np.random.default_rng(0).integers(0, 2**16, 3072).astype(np.uint16)
    slow = np.uint16(min(2**16 - 1, round(2**16 * (1 - share))))
    words[words == 2**16 - 1] = 0  # so that none is slow at a share of 0
    pixels = np.full(len(words) + kernels._OFTEN, -1, dtype=np.int32)
    found = kernels._slow_pixels(words, slow, pixels)
    np.testing.assert_array_equal(pixels[:found], np.flatnonzero(words >= slow))


@pytest.mark.parametrize("pixels", [(1, 1, 1), (1, 7, 9), (1, 8, 8), (1, 5, 13), (3, 32, 32)])
def test_the_kernel_is_its_slow_twin_at_any_size(pixels):
    (values,) = drawn(draws=1, pixels=pixels)
    count = int(np.prod(pixels))
    expected = naive_noise.noise(lattice(0.25), stream_of(**KEY), draw=0, pixels=count)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_kernel_is_its_slow_twin(sigma):
    found = drawn(sigma=sigma)
    stream = stream_of(**KEY)
    for draw, values in enumerate(found):
        np.testing.assert_array_equal(
            values, naive_noise.noise(lattice(sigma), stream, draw=draw, pixels=297)
        )


def test_a_draw_does_not_depend_on_where_a_batch_begins():
    steps, base = lattice(0.5), torch.arange(297, dtype=torch.int32).reshape(3, 9, 11)
    whole, parts = torch.empty((7, 3, 9, 11)), torch.empty((7, 3, 9, 11))
    options = dict(lattice=steps, stream=b"a stream")
    add_exact_noise(whole, base, first_draw=0, **options)
    add_exact_noise(parts[:3], base, first_draw=0, **options)
    add_exact_noise(parts[3:], base, first_draw=3, **options)
    assert torch.equal(whole, parts)


def test_the_image_is_added_exactly():
    """What the network sees is (2^s x + k) / scale for uint8 x, rounded once."""
    steps = lattice(0.25)
    image = torch.randint(0, 256, (3, 9, 11), dtype=torch.uint8)
    out = torch.empty((4, 3, 9, 11))
    add_exact_noise(
        out, lattice_points(image, steps), lattice=steps, stream=stream_of(**KEY), first_draw=0
    )
    z = drawn() + (image.long().flatten().numpy() << 3)
    np.testing.assert_array_equal(
        out.flatten(1).numpy(), z.astype(np.float32) / np.float32(steps.scale)
    )


CHANGES = [
    dict(seed=4),
    dict(model="b" * 64),
    dict(index=21),
    dict(round=Round.GUESS),
    dict(round=Round.PREDICT),
    dict(chunk=8),
    dict(seed=3 + 2**32),
    dict(chunk=7 + 2**32),
    dict(seed=32, index=0),
    dict(index=207, chunk=0),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_key_gives_independent_noise(change):
    one, other = (drawn(pixels=(4, 64, 64), **each).reshape(-1) for each in ({}, change))
    assert (one == other).mean() < 0.001  # equal by chance: sum of Pr[k]^2 = 1 / (2 sqrt(pi) S)
    assert stats.pearsonr(one, other).pvalue > 1e-4
    assert stats.pearsonr(np.abs(one), np.abs(other)).pvalue > 1e-4


def test_chunks_draws_images_and_rounds_are_uncorrelated():
    keys = [
        dict(index=index, round=round, chunk=chunk)
        for index in (0, 1, 2)
        for round in Round
        for chunk in (0, 1, 2)
    ]
    noise = np.concatenate([drawn(draws=2, pixels=(1, 100, 100), **key) for key in keys])
    correlation = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    # 1,431 pairs of standard error 1 / 100: all within 4.8 of them, and of the right spread
    assert np.abs(correlation).max() < 4.8 / 100
    assert stats.kstest(correlation * 100, "norm").pvalue > 1e-3


def test_first_values_of_many_chunks_follow_the_law():
    first = np.stack([drawn(draws=1, pixels=(1, 2, 8), chunk=chunk)[0] for chunk in range(4000)])
    # One lattice step is 1/510 of sigma: a normal law for a test of 4,000 values.
    assert all(stats.kstest(column / 510, "norm").pvalue > 1e-4 for column in first.T)
    assert stats.pearsonr(first[:-1, 0], first[1:, 0]).pvalue > 1e-3


@pytest.mark.parametrize("sigma", SIGMAS)
def test_ten_million_draws_follow_the_law(sigma):
    found = law.check_law(sigma, draws=10**7, seed=1)
    assert found.draws >= 10**7 and found.fits(), found


def test_the_noise_of_a_gpu_follows_the_law_too():
    """torch's integers and a gather, on the CPU: the code is the same."""
    noise = AliasNoise(lattice(0.25), torch.device("cpu"))
    values = noise.draw((2_000_000,), generator(b"a stream"))
    found = law.compare(np.bincount(values.numpy() + 4590, minlength=9181), lattice(0.25))
    assert found.fits(), found
    base = torch.randint(0, 2040, (3, 4, 4))
    out = noise.add(torch.empty((5, 3, 4, 4)), base, generator(b"a stream"))
    z = base + values[: out.numel()].reshape(out.shape)
    assert torch.equal(out, z.float() / 2040)


def test_a_wrong_law_is_noticed():
    """A spread that is wrong by 0.2 %, missing tails, and a shift of one step."""
    rng = np.random.default_rng(0)
    steps = lattice(0.25)

    def histogram(values):
        return np.bincount(np.rint(values).astype(int).clip(-4590, 4590) + 4590, minlength=9181)

    g = 510 * rng.standard_normal(10**7)
    assert law.compare(histogram(g), steps).fits()
    assert not law.compare(histogram(1.002 * g), steps).fits()
    assert not law.compare(histogram(g[np.abs(g) < 4.2 * 510]), steps).fits()
    assert not law.compare(histogram(g + 1), steps).fits()


def test_uint8_images_are_on_the_lattice_and_floats_are_near_it():
    steps = lattice(0.25)
    image = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    assert (rounding_distance(image, steps) == 0).all()
    assert torch.equal(lattice_points(image.float() / 255, steps), lattice_points(image, steps))
    floats = torch.rand(4, 3, 8, 8, dtype=torch.float64)
    points = lattice_points(floats, steps).double() / steps.scale
    exact = [
        mpmath.sqrt(sum((mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for a, b in zip(x, y, strict=True)))
        for x, y in zip(floats.flatten(1).tolist(), points.flatten(1).tolist(), strict=True)
    ]
    for found, expected in zip(rounding_distance(floats, steps), exact, strict=True):
        assert expected <= found <= 1.0001 * expected + 1e-9
        assert found <= math.sqrt(192) / 2 / steps.scale * 1.0001
