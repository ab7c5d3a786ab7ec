"""Streams of numbers that inputs are made of: what each rank's elements are, as a function of (seed, rank, index).

Rank r of a case with seed s draws from NumPy's Philox generator, seeded by SeedSequence(entropy=s, spawn_key=(r,)):
streams that are independent in both, and begin alike for every size. What ranks must agree on (who holds a special
value) comes from a stream of the seed alone, spawn_key=(0, 1).

- "integers": from -m to m without 0 (unsigned types: from 1).
- "sparse": 1 or -1 from `largest` ranks of each element, 0 from the others. Those ranks follow each other cyclically,
  from one that is drawn anew for each element.
- "normal": standard normal, drawn in float32 (float64 for float64) and rounded to the dtype.
- "bits": every pattern of the dtype is as likely.
- "ones", "zeros": bits that are one (zero) with a probability of about 1 / world size.
- "edge": beside the stream `base`, the values that arithmetic treats in a special way, see edge().
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kernels.numeric.formats import FORMATS, is_float, is_signed, narrow

LARGEST_DRAWN = 1 << 32
"""Magnitudes of integers are drawn from 32 bits: no larger ones."""

TOGETHER = 4
"""Distance between elements that are special on all ranks together: the last of each TOGETHER elements."""

KINDS = 6
"""Ways of being so, that take turns."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What a stream depends on beside seed and rank. largest: m of "integers", ranks an element of "sparse"."""

    kind: str
    dtype: torch.dtype
    world_size: int = 0
    largest: int = 0
    base: str = ""


def draw(stream: Stream, seed: int, rank: int, numel: int, piece: int) -> torch.Tensor:
    """The first numel elements of a rank's stream (1-D, on the CPU), made in pieces of at most piece elements."""
    made = torch.empty(numel, dtype=_signed_bits(stream.dtype), device="cpu")
    source, common = _Source(seed, (rank,)), _Source(seed, (0, 1))
    for start in range(0, numel, piece):
        length = min(piece, numel - start)
        made[start : start + length] = torch.from_numpy(_drawn(stream, rank, start, length, source, common))
    return made.view(stream.dtype)


class _Source:
    """A Philox generator, as raw words and as normal numbers."""

    def __init__(self, seed: int, key: tuple[int, ...]) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(entropy=seed, spawn_key=key))
        self._generator = np.random.Generator(self._bits)

    def words(self, count: int) -> np.ndarray:
        return self._bits.random_raw(count)

    def normal(self, count: int, wide: bool) -> torch.Tensor:
        if wide:
            return torch.from_numpy(self._generator.standard_normal(count, dtype=np.float64))
        return torch.from_numpy(self._generator.standard_normal(count, dtype=np.float32))


def _drawn(stream: Stream, rank: int, start: int, length: int, source: _Source, common: _Source) -> np.ndarray:
    """The next elements' bits, as signed integers of the dtype's width."""
    dtype = stream.dtype
    match stream.kind:
        case "normal":
            return _bits(narrow(source.normal(length, dtype is torch.float64), dtype))
        case "integers":
            return _bits(_numbers(_integers(source.words(length), stream.largest, dtype), dtype))
        case "sparse":
            sign = np.where(source.words(length) & np.uint64(1), -1, 1)
            here = (rank - _ranks(common.words(length), stream.world_size)) % stream.world_size < stream.largest
            return _bits(_numbers(np.where(here, sign, 0), dtype))
        case "bits":
            return _truncated(source.words(length), dtype)
        case "ones" | "zeros":
            words = source.words(length * max(1, round(np.log2(stream.world_size))))
            ones = np.bitwise_and.reduce(words.reshape(length, -1), axis=1)
            return _truncated(ones if stream.kind == "ones" else ~ones, dtype)
        case "edge":
            base = Stream(stream.base, dtype)
            bits = _drawn(base, rank, start, length, source, common)
            return edge(dtype, rank, stream.world_size, start, bits, common.words(length))
        case _:
            raise AssertionError(f"no stream is called {stream.kind}")


def _integers(raw: np.ndarray, largest: int, dtype: torch.dtype) -> np.ndarray:
    """Raw 64 bits a number to int64 from -largest to largest without 0; unsigned dtypes: from 1."""
    # 32 bits scaled to 1..m, one more for the sign: integer arithmetic, so the same everywhere
    magnitude = (((raw >> np.uint64(32)) * np.uint64(largest)) >> np.uint64(32)) + np.uint64(1)
    signed = magnitude.astype(np.int64)
    negative = (raw & np.uint64(1)).astype(bool) & (is_float(dtype) or is_signed(dtype))
    return np.where(negative, -signed, signed)


def _numbers(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """int64 as numbers of a dtype that has them all."""
    if is_float(dtype):
        return narrow(torch.from_numpy(values).to(torch.float64 if dtype is torch.float64 else torch.float32), dtype)
    return torch.from_numpy(_truncated(values.view(np.uint64), dtype)).view(dtype)


def _truncated(words: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The lowest bits of 64-bit words, as many as the dtype has."""
    width = dtype.itemsize
    return words.astype(f"u{width}").view(f"i{width}")


def _signed_bits(dtype: torch.dtype) -> torch.dtype:
    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def _bits(value: torch.Tensor) -> np.ndarray:
    return value.view(_signed_bits(value.dtype)).numpy()


def _ranks(words: np.ndarray, world_size: int) -> np.ndarray:
    """A rank from the lowest 16 bits of each word."""
    return (words & np.uint64(0xFFFF)).astype(np.int64) % world_size


def specials(dtype: torch.dtype) -> tuple[int, ...]:
    """The patterns (unsigned) that edge inputs put among others.

    Floats: NaNs with payloads, both infinities where there are any, both zeros, smallest and largest subnormal,
    smallest normal and largest finite number with both signs. Integers: the lowest, the highest, 0, 1, all ones (-1 in
    signed types), and what is next to the highest and where the other signedness has its lowest.
    """
    width = 8 * dtype.itemsize
    sign = 1 << (width - 1)
    if not is_float(dtype):
        values = (sign, sign - 1, 0, 1, 2 * sign - 1, sign - 2 if is_signed(dtype) else 2 * sign - 2)
        return tuple(dict.fromkeys(values))
    form = FORMATS[dtype]
    smallest_normal = 1 << (form.significand_bits - 1)
    positive = (0, 1, smallest_normal - 1, smallest_normal, form.largest_bits, form.largest_bits + form.has_infinity)
    quiet = sign - 1  # all bits of the payload
    signalling = form.infinity_bits + form.has_infinity
    nans = dict.fromkeys((quiet, signalling, sign | quiet, form.infinity_bits | smallest_normal >> 1))
    return tuple(dict.fromkeys((*nans, *positive, *(sign | one for one in positive))))


def edge(dtype: torch.dtype, rank: int, world_size: int, start: int, base: np.ndarray, words: np.ndarray) -> np.ndarray:
    """A rank's elements from index start on: base with special values, placed by words, which all ranks have alike.

    Elements whose index is not 3 modulo 4: rank word[0:16] mod n holds a special value, and if the highest bit is set
    rank word[16:32] mod n another (the first wins where they are one); which ones is word[32:40] and word[40:48] modulo
    their number. The other ranks have base.

    Index 3 modulo 4: all ranks together, in six kinds by turns, with `one` the rank word[0:16] mod n.
    Floats: all -0.0; all the largest number, negative if the highest bit is set; one has infinity (the largest number
    where there is none) and the next rank the negative, others base; one has NaN, others base; all subnormal (base
    with an exponent of 0); one has -0.0, the others +0.0.
    Integers: all the lowest; all the highest; one the lowest among the highest; one the highest among the lowest; all
    0; one 0 among all ones.
    """
    width = dtype.itemsize
    bits = base.copy().view(f"u{width}")
    index = np.arange(start, start + len(bits))
    one, other = _ranks(words, world_size), _ranks(words >> np.uint64(16), world_size)
    flag = (words >> np.uint64(63)).astype(bool)
    values = np.array(specials(dtype), dtype=f"u{width}")
    first, second = (values[(words >> np.uint64(shift)).astype(np.uint8) % len(values)] for shift in (32, 40))
    together = index % TOGETHER == TOGETHER - 1
    bits = np.where((other == rank) & flag & ~together, second, bits)
    bits = np.where((one == rank) & ~together, first, bits)
    turn = index // TOGETHER % KINDS
    for kind, column in enumerate(_columns(dtype, bits, one == rank, (one + 1) % world_size == rank, flag)):
        bits = np.where(together & (turn == kind), column, bits)
    return bits.astype(f"u{width}").view(f"i{width}")


def _columns(
    dtype: torch.dtype, base: np.ndarray, one: np.ndarray, following: np.ndarray, flag: np.ndarray
) -> list[np.ndarray]:
    """A rank's bits for each kind of element that is special on all ranks, see edge()."""
    unsigned = base.dtype.type
    sign = unsigned(1 << (8 * base.itemsize - 1))
    ones = unsigned(2 * int(sign) - 1)
    if not is_float(dtype):
        low, high = (sign, unsigned(sign - 1)) if is_signed(dtype) else (unsigned(0), ones)
        same = np.ones_like(base)
        return [
            same * low,
            same * high,
            np.where(one, low, high),
            np.where(one, high, low),
            same * unsigned(0),
            np.where(one, unsigned(0), ones),
        ]
    form = FORMATS[dtype]
    largest, endless = unsigned(form.largest_bits), unsigned(form.largest_bits + form.has_infinity)
    mantissa = unsigned((1 << (form.significand_bits - 1)) - 1)
    return [
        np.full_like(base, sign),
        np.where(flag, sign | largest, largest),
        np.where(one, endless, np.where(following, sign | endless, base)),
        np.where(one, unsigned(sign - 1), base),
        base & (sign | mantissa),
        np.where(one, sign, unsigned(0)),
    ]
