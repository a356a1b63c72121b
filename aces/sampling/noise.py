"""Noise keyed by what it belongs to: no two chunks share a stream, whoever draws them and in
whatever order.

The key (seed, model hash, image index, round, chunk) is hashed with SHAKE-256. On a CPU, exact
noise takes 256 bits of the hash as the key of a cipher (`kernels`), and float noise fills the whole
state of the Mersenne Twister with it, because torch's CPU generator reads only 32 bits of a seed,
and 32 bits collide. On a GPU the first 64 bits are the key of Philox: among a million chunks two
are alike with probability below 1e-7.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from aces.rule.counts import Round
from aces.sampling.lattice import Lattice, Tables

_WORDS = 624  # words in the state of the Mersenne Twister
_FIRST_WORD = 3  # where they begin in torch's generator state, counted in 64-bit words


def stream_of(*, seed: int, model: str, index: int, round: Round, chunk: int) -> bytes:
    """The name of one chunk's random stream."""
    return f"{seed}/{model}/{index}/{int(round)}/{chunk}".encode()


def generator(stream: bytes, device: torch.device | str = "cpu") -> torch.Generator:
    """torch's generator of a stream."""
    device = torch.device(device)
    result = torch.Generator(device)
    if device.type == "cpu":
        words = np.frombuffer(hashlib.shake_256(stream).digest(4 * _WORDS), dtype="<u4")
        result.set_state(_mersenne_state(words))
    else:
        number = int.from_bytes(hashlib.shake_256(stream).digest(8), "little", signed=True)
        result.manual_seed(number)
    return result


def cipher_key(stream: bytes) -> np.ndarray:
    """(8,) uint32: the key of the cipher that makes a stream's exact noise on a CPU."""
    words = np.frombuffer(hashlib.shake_256(b"exact/" + stream).digest(32), dtype="<u4")
    return words.astype(np.uint32)


def lattice_points(pixels: Tensor, lattice: Lattice) -> Tensor:
    """The images in lattice steps, int32: uint8 as they are, floats in [0, 1] rounded."""
    if pixels.dtype == torch.uint8:
        return pixels.int() << lattice.refinement
    return (pixels.double() * lattice.scale).round().int()


def rounding_distance(pixels: Tensor, lattice: Lattice) -> np.ndarray:
    """(N,) the l2 distance of each image from the lattice point that stands for it, rounded up; 0
    for uint8.

    A certificate with exact noise speaks of the lattice point. Around the image itself its radius
    is smaller by this distance.
    """
    if pixels.dtype == torch.uint8:
        return np.zeros(len(pixels))
    given = pixels.double()
    apart = (given - lattice_points(pixels, lattice).double() / lattice.scale).flatten(1)
    # The two roundings of a difference in float64 are below 2^-52 each.
    room = 2.0**-51 * apart.shape[1] ** 0.5
    return ((apart.norm(dim=1) * (1 + 1e-9)) + room).numpy()


def add_exact_noise(
    out: Tensor, base: Tensor, *, lattice: Lattice, stream: bytes, first_draw: int
) -> None:
    """Fill `out` with noisy copies of one image on a CPU: the draws `first_draw`, ... of a stream.

    out: (D, C, H, W) float32; base: (C, H, W) int32, the image in lattice steps.
    """
    add = exact_noise(lattice)
    add(out.numpy().reshape(len(out), -1), base.numpy().ravel(), cipher_key(stream), first_draw)


def exact_noise(lattice: Lattice) -> Callable[[np.ndarray, np.ndarray, np.ndarray, int], None]:
    """The function of `add_exact_noise` for flat arrays, out (D, P) and base (P,), and a cipher's
    key: (out, base, key, first_draw).
    """
    from aces.sampling import kernels  # numba is needed for this noise only

    tables = lattice.direct
    constants = (
        tables.slots,
        np.uint16(tables.slow),
        tables.packed,
        tables.reach,
        np.uint64(tables.shift),
        np.float32(lattice.scale),
    )
    return lambda out, base, key, first_draw: kernels.add_noise(
        out, base, key, first_draw, *constants
    )


class AliasNoise:
    """Exact noise by torch's own random integers and its indexing, on any device."""

    def __init__(self, lattice: Lattice, device: torch.device):
        tables: Tables = lattice.alias
        self.shift, self.reach, self.scale = tables.shift, tables.reach, lattice.scale
        self.threshold = torch.from_numpy(tables.threshold.astype(np.int64)).to(device)
        self.other = torch.from_numpy(tables.other.astype(np.int64)).to(device)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Values k of the rounded Gaussian, int64."""
        words = torch.empty(shape, dtype=torch.int64, device=self.threshold.device)
        words.random_(-(2**63), None, generator=generator)  # all 64 bits
        column = (words >> self.shift) & (len(self.threshold) - 1)
        words &= (1 << self.shift) - 1
        return torch.where(words < self.threshold[column], column - self.reach, self.other[column])

    def add(self, out: Tensor, base: Tensor, generator: torch.Generator) -> Tensor:
        """Fill `out`, (D, C, H, W) float32, with noisy copies of the image `base`, (C, H, W)."""
        noisy = self.draw(tuple(out.shape), generator).add_(base)
        return torch.div(noisy.float(), self.scale, out=out)


def _mersenne_state(words: np.ndarray) -> torch.Tensor:
    """torch's generator state with the given 624 words, as if freshly seeded with them."""
    state = torch.Generator().manual_seed(5489).get_state()
    view = state.numpy().view(np.uint64)
    assert view[_FIRST_WORD] == 5489 and view[_FIRST_WORD + 1] == 1301868182, (
        "torch has changed its generator's state"
    )
    view[_FIRST_WORD : _FIRST_WORD + _WORDS] = words
    return state
