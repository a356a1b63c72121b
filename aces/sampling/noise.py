"""Noise keyed by what it belongs to: no two chunks share a stream, whoever draws them and in
whatever order.

The key (seed, model hash, image index, round, chunk) is hashed with SHAKE-256. On a CPU its output
fills the whole state of the Mersenne Twister, because torch's CPU generator reads only 32 bits of a
seed, and 32 bits collide. On a GPU the first 64 bits are the key of Philox: among a million chunks
two are alike with probability below 1e-7.
"""

import hashlib

import numpy as np
import torch

from aces.rule.counts import Round

_WORDS = 624  # of the Mersenne Twister's state
_FIRST_WORD = 3  # where they begin in torch's generator state, counted in 64-bit words


def generator(
    *,
    seed: int,
    model: str,
    index: int,
    round: Round,
    chunk: int,
    device: torch.device | str = "cpu",
) -> torch.Generator:
    """The generator of one chunk of draws."""
    key = f"{seed}/{model}/{index}/{int(round)}/{chunk}".encode()
    device = torch.device(device)
    result = torch.Generator(device)
    if device.type == "cpu":
        words = np.frombuffer(hashlib.shake_256(key).digest(4 * _WORDS), dtype="<u4")
        result.set_state(_mersenne_state(words))
    else:
        result.manual_seed(int.from_bytes(hashlib.shake_256(key).digest(8), "little", signed=True))
    return result


def _mersenne_state(words: np.ndarray) -> torch.Tensor:
    """torch's generator state with the given 624 words, as if freshly seeded with them."""
    state = torch.Generator().manual_seed(5489).get_state()
    view = state.numpy().view(np.uint64)
    assert view[_FIRST_WORD] == 5489 and view[_FIRST_WORD + 1] == 1301868182, (
        "torch has changed its generator's state"
    )
    view[_FIRST_WORD : _FIRST_WORD + _WORDS] = words
    return state
