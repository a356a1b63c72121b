"""The exact noise a second time, slowly: ChaCha and the tables in plain numpy, for the tests."""

import numpy as np

from aces.sampling.lattice import RUN, Lattice
from aces.sampling.noise import cipher_key

CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")


def rotated(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def chacha(key, counter, *, rounds: int = 8) -> np.ndarray:
    """(B, 16) uint32: the blocks of ChaCha for the counters, (B, 4)."""
    start = np.empty((16, len(counter)), dtype=np.uint32)
    start[:4], start[4:12] = CONSTANTS[:, None], np.asarray(key, dtype=np.uint32)[:, None]
    start[12:] = np.asarray(counter, dtype=np.uint32).T
    x = start.copy()
    quarters = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    quarters += [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for _ in range(rounds // 2):
        for a, b, c, d in quarters:
            for first, second, third, bits in (
                (a, b, d, 16),
                (c, d, b, 12),
                (a, b, d, 8),
                (c, d, b, 7),
            ):
                x[first] += x[second]
                x[third] = rotated(x[third] ^ x[first], bits)
    return (x + start).T


def noise(lattice: Lattice, stream: bytes, *, draw: int, pixels: int) -> np.ndarray:
    """(P,) the values k of one draw."""
    tables, key = lattice.direct, cipher_key(stream)

    def words(kind: int, blocks: int, dtype) -> np.ndarray:
        counter = [(block, draw, kind, 0) for block in range(blocks)]
        return np.ascontiguousarray(chacha(key, counter).T).reshape(-1).view(dtype)

    fast = words(0, -(-pixels // 64) * 2, np.uint16).astype(np.int64)
    k = tables.slots[fast // RUN] + fast % RUN
    slow = np.flatnonzero(fast >= tables.slow)
    at_once = (pixels // 4096 + 1) * 16  # blocks together, which decides their words' order
    assert len(slow) <= 8 * at_once, "more than the tests need"
    for place, word in zip(slow, words(1, at_once, np.uint64)):
        column, rest = int(word) >> tables.shift, int(word) % 2**tables.shift
        own = rest < int(tables.threshold[column])
        k[place] = column - tables.reach if own else tables.other[column]
    return k[:pixels]
