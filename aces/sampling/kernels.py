"""Compiled loops of the sampler on a CPU: the exact noise, and the counting of draws.

numba compiles them at first use and keeps the result on disk. They hold no lock of Python, so
that threads run beside each other. Only whole numbers and one division decide the noise, so it is
the same on every CPU.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from aces.grid import BINS
from aces.sampling.lattice import RUN

_compiled = njit(nogil=True, cache=True, error_model="numpy")

_WORDS = 16  # 32-bit words of a block of ChaCha
_C0, _C1, _C2, _C3 = (np.uint32(word) for word in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))
_u32, _u64 = np.uint32, np.uint64
_place = np.uintp  # an index that cannot be negative, so that no code is made for that
_GROUP, _OFTEN = 64, 4  # words that are compared at once; slow ones among them, more are rare
_RUN_BITS = RUN.bit_length() - 1


@_compiled
def _quarter(a, b, c, d):
    a = _u32(a + b)
    d = _u32(d ^ a)
    d = _u32(_u32(d << _u32(16)) | _u32(d >> _u32(16)))
    c = _u32(c + d)
    b = _u32(b ^ c)
    b = _u32(_u32(b << _u32(12)) | _u32(b >> _u32(20)))
    a = _u32(a + b)
    d = _u32(d ^ a)
    d = _u32(_u32(d << _u32(8)) | _u32(d >> _u32(24)))
    c = _u32(c + d)
    b = _u32(b ^ c)
    b = _u32(_u32(b << _u32(7)) | _u32(b >> _u32(25)))
    return a, b, c, d


@_compiled
def _double_round(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
    x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
    x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
    x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
    x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
    x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
    x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
    x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@_compiled
def chacha8(key, first, draw, stream, out):
    """Blocks `first`, `first + 1`, ... of ChaCha with 8 rounds, a stream cipher whose output nobody
    can tell from random bits.

    key: (8,) uint32; first, draw, stream: the words of the counter; out: (16, n) uint32, where
    column i takes block first + i. The rounds are written out, so that the compiler handles
    several blocks in one vector instruction.
    """
    k0, k1, k2, k3 = key[0], key[1], key[2], key[3]
    k4, k5, k6, k7 = key[4], key[5], key[6], key[7]
    zero = _u32(0)
    for i in range(out.shape[1]):
        block = _u32(first + _u32(i))
        x = _double_round(
            _C0, _C1, _C2, _C3, k0, k1, k2, k3, k4, k5, k6, k7, block, draw, stream, zero
        )
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        out[0, i] = x[0] + _C0
        out[1, i] = x[1] + _C1
        out[2, i] = x[2] + _C2
        out[3, i] = x[3] + _C3
        out[4, i] = x[4] + k0
        out[5, i] = x[5] + k1
        out[6, i] = x[6] + k2
        out[7, i] = x[7] + k3
        out[8, i] = x[8] + k4
        out[9, i] = x[9] + k5
        out[10, i] = x[10] + k6
        out[11, i] = x[11] + k7
        out[12, i] = x[12] + block
        out[13, i] = x[13] + draw
        out[14, i] = x[14] + stream
        out[15, i] = x[15]


@_compiled
def slow_blocks(pixels):
    """Blocks of the cipher that are made at once for slow pixels: about as many as a draw needs,
    and a multiple of what fits into vector instructions.
    """
    return (pixels // 4096 + 1) * 16


@_compiled
def add_noise(out, base, key, first_draw, slots, slow, packed, reach, shift, scale):
    """Noisy copies of one image: out[d] = (base + k) / scale, for the draws `first_draw` + d of the
    stream that `key` names.

    out: (D, P) float32; base: (P,) int32, the image in lattice steps; key: (8,) uint32; slots,
    slow, threshold, other, reach, shift: `aces.sampling.lattice.Tables`; scale: float32.

    Draw d takes its 16-bit words from stream 0 of the cipher and, for the pixels whose word is
    slow, 64-bit words from stream 1, one after the other. So a draw depends on the key
    and its own number only. One loop for each step: the compiler handles several pixels of it in
    one vector instruction, or at least at the same time.
    """
    blocks = (len(base) + 63) // 64 * 2  # so that groups of 64 words are whole
    fast = np.empty((_WORDS, blocks), dtype=np.uint32)
    words, quads = fast.reshape(-1).view(np.uint16), fast.reshape(-1).view(np.uint64)
    more = np.empty((_WORDS, slow_blocks(len(base))), dtype=np.uint32)
    run = np.empty(len(words), dtype=np.int16)
    pixels = np.empty(len(words) + _OFTEN, dtype=np.int32)
    for d in range(len(out)):
        draw = _u32(first_draw + d)
        chacha8(key, _u32(0), draw, _u32(0), fast)
        _look_up(quads, slots, run)
        _add(out[d], base, run, words, scale)
        found = _slow_pixels(words, slow, pixels)
        _add_slow(out[d], base, pixels[:found], key, draw, more, packed, reach, shift, scale)


@_compiled
def _look_up(quads, slots, run):
    """The first value of the run of each word, four words at a time.

    quads: (W / 4,) uint64; run: (W,) int16, filled.
    """
    bits, mask = _u64(_RUN_BITS), _u64(len(slots) - 1)
    for i in range(len(quads)):
        four = quads[i]
        run[4 * i] = slots[(four >> bits) & mask]
        run[4 * i + 1] = slots[(four >> (bits + _u64(16))) & mask]
        run[4 * i + 2] = slots[(four >> (bits + _u64(32))) & mask]
        run[4 * i + 3] = slots[four >> (bits + _u64(48))]


@_compiled
def _add(out, base, run, words, scale):
    """The pixels of one draw, as if none was slow."""
    for i in range(len(out)):
        k = np.int32(run[i]) + (np.int32(words[i]) & np.int32(RUN - 1))
        out[i] = np.float32(np.int32(base[i] + k)) / scale


@intrinsic
def _at_least(_, words, first, least):
    """Which of the 64 words from `first` on are at least `least`, as the bits of a number.

    One comparison of vectors, which LLVM makes from no loop: it would shift and add 64 bits.
    """

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(ir.IntType(16), _GROUP)
        start = builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        undefined = ir.Constant(vector, ir.Undefined)
        first_only = builder.insert_element(undefined, arguments[2], ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _GROUP), [0] * _GROUP)
        limit = builder.shuffle_vector(first_only, undefined, everywhere)
        found = builder.icmp_unsigned(">=", builder.load(start, align=2), limit)
        return builder.bitcast(found, ir.IntType(_GROUP))

    return types.uint64(words, types.uintp, types.uint16), code


@_compiled
def _slow_pixels(words, slow, pixels):
    """How many words are slow; their places begin `pixels`.

    Of 64 words about two are slow, so some of them are looked for in any case: a processor would
    often guess a branch wrong that depends on a random word.
    """
    found = _place(0)
    for first in range(0, len(words), _GROUP):
        left = _at_least(words, _place(first), slow)  # type: ignore[call-arg, var-annotated]
        for _ in range(_OFTEN):
            pixels[found] = _place(first) + _place(trailing_zeros(left))
            found += _place(left != 0)
            left &= left - _u64(1)
        while left != 0:
            pixels[found] = _place(first) + _place(trailing_zeros(left))
            found += _place(1)
            left &= left - _u64(1)
    return found


@_compiled
def _add_slow(out, base, pixels, key, draw, more, packed, reach, shift, scale):
    """The pixels whose values come from the alias table, in blocks of random words."""
    words = more.reshape(-1).view(np.uint64)
    bits, block = _u64(64) - shift, 0
    value = (_u64(1) << bits) - _u64(1)
    for start in range(0, len(pixels), len(words)):
        chacha8(key, _u32(block), draw, _u32(1), more)
        block += more.shape[1]
        for j in range(start, min(len(pixels), start + len(words))):
            word, i = words[j - start], _place(pixels[j])
            own = word >> shift
            column = packed[_place(own)]
            # Both values are at hand, so that no branch depends on the word.
            chosen = own if (word << bits) >> bits < column >> bits else column & value
            k = np.int32(chosen) - np.int32(reach)
            if i < _place(len(base)):
                out[i] = np.float32(np.int32(base[i] + k)) / scale


@_compiled
def bin_of(value):
    """i with (i - 1) / BINS < value <= i / BINS, 0 for the value 0; value: in [0, 1]."""
    i = int(value * BINS)
    while i > 0 and value <= (i - 1) / BINS:
        i -= 1
    while i < BINS and value > i / BINS:
        i += 1
    return i


@_compiled
def count_draws(logits, rows, guess, scores, table):
    """Add D draws to the table of a tally; see `aces.sampling.tally` for its columns.

    logits: (D, K) float32; rows: (D,) int64; guess: (G,) int64; scores: (D,) float64 in [0, 1],
    NaN for an invalid draw, or (0,) where the score is the entropy; table: (G, width) int64.
    """
    classes = logits.shape[1]
    scale, uniform = 1.0 / math.log(classes), math.log(classes / (classes - 1.0))
    for d in range(len(rows)):
        row = table[rows[d]]
        first, second, label, finite = -math.inf, -math.inf, 0, True
        for c in range(classes):
            value = float(logits[d, c])
            finite &= math.isfinite(value)
            if value > first:
                first, second, label = value, first, c
            elif value > second:
                second = value
        finite &= not len(scores) or math.isfinite(scores[d])
        if not finite:
            row[len(row) - 1] += 1
            continue
        mass = rest = weighted = 0.0
        for c in range(classes):
            difference = float(logits[d, c]) - first
            p = math.exp(difference)
            mass += p
            rest += p if c != label else 0.0
            weighted += p * difference if p > 0.0 else 0.0
        score = scores[d] if len(scores) else (math.log(mass) - weighted / mass) * scale
        surprise = math.log1p(rest) - (math.log(rest) if rest > 0.0 else second - first)
        score_bin = classes + bin_of(min(max(score, 0.0), 1.0))
        doubt_bin = classes + BINS + 1 + bin_of(1.0 / (1.0 + max(surprise - uniform, 0.0)))
        row[label] += 1
        row[score_bin] += 1
        row[doubt_bin] += 1
        if label == guess[rows[d]]:
            row[score_bin + 2 * (BINS + 1)] += 1
            row[doubt_bin + 2 * (BINS + 1)] += 1
