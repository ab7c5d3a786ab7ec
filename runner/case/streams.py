"""Streams of numbers that inputs are made of: what each rank's elements are, as a function of (seed, rank, index).

Rank r of a case with seed s draws from NumPy's Philox generator, seeded by SeedSequence(entropy=s, spawn_key=(r,)):
streams that are independent in both, and begin alike for every size. What ranks must agree on (who holds a special
value) comes from a stream of the seed alone, spawn_key=(0, 1). Words and normal numbers are drawn on the host; what is
made of them, on a GPU if they are for one, are integers and single roundings, which are the same on both.

- "integers": from -m to m without 0 (unsigned types: from 1).
- "sparse": 1 or -1 from `largest` ranks of each element, 0 from the others. Those ranks follow each other cyclically,
  from one that is drawn anew for each element.
- "normal": standard normal, drawn in float32 (float64 for float64) and rounded to the dtype.
- "bits": every pattern of the dtype is as likely.
- "ones", "zeros": bits that are one (zero) with a probability of about 1 / world size.
- "edge": beside the stream `base`, the values that arithmetic treats in a special way, see edge().
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels.numeric.formats import FORMATS, bits_of, is_float, is_signed, narrow

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


class Generator:
    """NumPy's generator for a seed and the key of a stream, its numbers brought to a device (None: the host). Each call
    goes on where the one before it ended."""

    def __init__(self, seed: int, key: tuple[int, ...], device: torch.device | None) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(entropy=seed, spawn_key=key))
        self._generator, self._device = np.random.Generator(self._bits), device

    def words(self, count: int) -> torch.Tensor:
        """Return the next count words of 64 random bits, as int64."""
        return torch.from_numpy(self._bits.random_raw(count).view(np.int64)).to(device=self._device)

    def normal(self, count: int, wide: bool) -> torch.Tensor:
        """Return the next count standard normal numbers in float32, or (wide) in float64."""
        drawn = self._generator.standard_normal(count, dtype=np.float64 if wide else np.float32)
        return torch.from_numpy(drawn).to(device=self._device)


def _upper_half(words: torch.Tensor) -> torch.Tensor:
    """The higher 32 of 64 bits as a number: int64's own shift would repeat the sign."""
    return (words >> 32).bitwise_and_(0xFFFFFFFF)


def draw(
    stream: Stream, seed: int, rank: int, numel: int, piece: int, device: torch.device | None = None
) -> torch.Tensor:
    """The first numel elements of a rank's stream (1-D, on a device; None: the host), made in pieces of at most piece
    elements. The bits depend on neither device nor piece."""
    source, common = Generator(seed, (rank,), device), Generator(seed, (0, 1), device)
    made = _drawn(stream, rank, 0, min(piece, numel), source, common)
    if numel > piece:
        first, made = made, made.new_empty(numel)
        made[:piece] = first
        for start in range(piece, numel, piece):
            length = min(piece, numel - start)
            made[start : start + length] = _drawn(stream, rank, start, length, source, common)
    # NumPy's empty arrays have any stride, and torch would not see other numbers in them.
    return made.view(stream.dtype) if numel else made.new_empty(0, dtype=stream.dtype)


def _drawn(stream: Stream, rank: int, start: int, length: int, source: Generator, common: Generator) -> torch.Tensor:
    """The next elements' bits, as signed integers of the dtype's width."""
    dtype = stream.dtype
    match stream.kind:
        case "normal":
            return bits_of(narrow(source.normal(length, dtype is torch.float64), dtype))
        case "integers":
            return _numbers(_integers(source.words(length), stream.largest, dtype), dtype)
        case "sparse":
            sign = 1 - 2 * (source.words(length) & 1)
            here = (rank - _ranks(common.words(length), stream.world_size)) % stream.world_size < stream.largest
            return _numbers(sign * here, dtype)
        case "bits":
            return _truncated(source.words(length), dtype)
        case "ones" | "zeros":
            each = max(1, round(math.log2(stream.world_size)))
            words = source.words(length * each).view(length, each)
            ones = words[:, 0]
            for column in range(1, each):
                ones = ones & words[:, column]
            return _truncated(ones if stream.kind == "ones" else ~ones, dtype)
        case "edge":
            base = Stream(stream.base, dtype)
            bits = _drawn(base, rank, start, length, source, common)
            return edge(dtype, rank, stream.world_size, start, bits, common.words(length))
        case _:
            raise AssertionError(f"no stream is called {stream.kind}")


def _integers(words: torch.Tensor, largest: int, dtype: torch.dtype) -> torch.Tensor:
    """Raw 64 bits a number to int64 from -largest to largest without 0; unsigned dtypes: from 1."""
    # 32 bits scaled to 1..m, one more for the sign: integer arithmetic, so the same everywhere
    magnitude = _upper_half(_upper_half(words).mul_(largest)).add_(1)
    if not (is_float(dtype) or is_signed(dtype)):
        return magnitude
    return torch.where((words & 1).to(torch.bool), -magnitude, magnitude)


def _numbers(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """int64 as numbers of a dtype that has them all, as bits."""
    if is_float(dtype):
        return bits_of(narrow(values.to(torch.float64 if dtype is torch.float64 else torch.float32), dtype))
    return _truncated(values, dtype)


def _truncated(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The lowest bits of 64-bit words, as many as the dtype has."""
    return words.to({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])


def _ranks(words: torch.Tensor, world_size: int) -> torch.Tensor:
    """A rank from the lowest 16 bits of each word."""
    return (words & 0xFFFF).to(torch.int32) % world_size


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


def edge(
    dtype: torch.dtype, rank: int, world_size: int, start: int, base: torch.Tensor, words: torch.Tensor
) -> torch.Tensor:
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
    one, other = _ranks(words, world_size), _ranks(words >> 16, world_size)
    flag = words < 0
    values = _patterns(specials(dtype), base)
    bits = base.clone()
    for whose, shift in ((flag & (other == rank), 40), (one == rank, 32)):
        (places,) = whose.nonzero(as_tuple=True)
        bits[places] = values[((words[places] >> shift) & 0xFF) % len(values)]
    together = slice((TOGETHER - 1 - start) % TOGETHER, None, TOGETHER)
    one, flag, shared = one[together], flag[together], base[together]
    index = torch.arange(start, start + len(base), device=base.device)[together]
    turn = index // TOGETHER % KINDS
    for kind, column in enumerate(_columns(dtype, shared, one == rank, (one + 1) % world_size == rank, flag)):
        shared = torch.where(turn == kind, column, shared)
    bits[together] = shared
    return bits


def _patterns(patterns: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Unsigned patterns as signed integers of the width and on the device of other ones."""
    width = 8 * like.itemsize
    signed = [pattern - (1 << width) if pattern >> (width - 1) else pattern for pattern in patterns]
    return torch.tensor(signed, dtype=like.dtype, device=like.device)


def _columns(
    dtype: torch.dtype, base: torch.Tensor, one: torch.Tensor, following: torch.Tensor, flag: torch.Tensor
) -> list[torch.Tensor]:
    """A rank's bits for each kind of element that is special on all ranks, see edge()."""
    sign_bit = 1 << (8 * base.itemsize - 1)
    if not is_float(dtype):
        limits = (sign_bit, sign_bit - 1) if is_signed(dtype) else (0, 2 * sign_bit - 1)
        low, high, zero, ones = _patterns((*limits, 0, 2 * sign_bit - 1), base)
        return [
            low.expand(base.shape),
            high.expand(base.shape),
            torch.where(one, low, high),
            torch.where(one, high, low),
            zero.expand(base.shape),
            torch.where(one, zero, ones),
        ]
    form = FORMATS[dtype]
    endless_bits = form.largest_bits + form.has_infinity
    wanted = (sign_bit, form.largest_bits, sign_bit | form.largest_bits, endless_bits, sign_bit | endless_bits)
    sign, largest, lowest, endless, negative_endless = _patterns(wanted, base)
    nan, zero, subnormal = _patterns((sign_bit - 1, 0, sign_bit | ((1 << (form.significand_bits - 1)) - 1)), base)
    return [
        sign.expand(base.shape),
        torch.where(flag, lowest, largest),
        torch.where(one, endless, torch.where(following, negative_endless, base)),
        torch.where(one, nan, base),
        base & subnormal,
        torch.where(one, sign, zero),
    ]
