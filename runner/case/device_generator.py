"""The numbers of runner/case/generators.py made on a GPU: the same words and the same normal numbers, bit for bit.

Philox is a function of a counter, so all words are made at once. It runs on torch's CPU tensors, too; there it is
slower than NumPy, and tests compare the two.

Normal numbers are NumPy's ziggurat, which takes one word for most numbers, more for about one in eighty, and none of
them at a place that is known beforehand. So every word is looked at as if a number began there; which of the attempts
that take more words began at all follows from the attempts before them. The tables are read out of NumPy's own
generator, which is given words of our choice. The numbers of the tail need the C library's log1p to the bit: they are
few, and made on the host.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from runner.case.generators import LOW_32, HostGenerator, philox, upper_half

ROUNDS = 10


MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)


KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
"""Philox4x64-10's constants (Salmon et al., 2011)."""


HIGHEST = (1 << 64) - 1


LAYERS = 256
"""Layers of the ziggurat; the lowest, 0, has the tail."""


SPARE_WORDS = 64
"""Words beyond the expected number that are made for normal numbers at a time."""


COMPARED_NUMBERS = 1 << 16
"""Normal numbers that a process compares with NumPy's before it makes any on a device: some twenty of the tail."""


class DeviceGenerator:
    """The same numbers on a device. A generator gives either words or normal numbers of one width, never both."""

    def __init__(self, seed: int, key: tuple[int, ...], device: torch.device) -> None:
        k0, k1 = philox(seed, key).state["state"]["key"].tolist()
        self._key = (k0, k1)
        self._device = device
        self._place = 0  # of the next word: of 64 bits, of float32's normal numbers of 32

    def words(self, count: int) -> torch.Tensor:
        self._place += count
        return philox_words(self._key, self._place - count, count, self._device)

    def normal(self, count: int, wide: bool) -> torch.Tensor:
        ziggurat = _ziggurat(wide)
        pieces = [torch.empty(0, dtype=ziggurat.dtype, device=self._device)]
        while count:
            numbers, taken = ziggurat.numbers(self._raw(count + count // 64 + SPARE_WORDS, wide), count)
            self._place += taken
            count -= numbers.numel()
            pieces.append(numbers)
        return torch.cat(pieces) if len(pieces) > 2 else pieces[-1]

    def _raw(self, count: int, wide: bool) -> torch.Tensor:
        """The next words, without going on: int64, or int32 (a word of 64 bits gives its low half first)."""
        if wide:
            return philox_words(self._key, self._place, count, self._device)
        skipped = self._place % 2
        words = philox_words(self._key, self._place // 2, count // 2 + 1 + skipped, self._device)
        return words.view(torch.int32)[skipped:][:count]


def philox_words(key: tuple[int, int], start: int, count: int, device: torch.device) -> torch.Tensor:
    """Return words start to start + count of the generator with that key (int64)."""
    first, last = start // 4, -(-(start + count) // 4)
    # NumPy counts before it makes a block: the first block has the counter 1.
    counter = torch.arange(first + 1, last + 1, dtype=torch.int64, device=device)
    zero = torch.zeros_like(counter)
    a, b, c, d = counter, zero, zero, zero
    k0, k1 = key
    for _ in range(ROUNDS):
        high_a, low_a = _product(a, MULTIPLIERS[0])
        high_c, low_c = _product(c, MULTIPLIERS[1])
        a, b, c, d = (
            high_c.bitwise_xor_(b).bitwise_xor_(_signed(k0)),
            low_c,
            high_a.bitwise_xor_(d).bitwise_xor_(_signed(k1)),
            low_a,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) % (1 << 64), (k1 + KEY_STEPS[1]) % (1 << 64)
    return torch.stack((a, b, c, d), dim=1).view(-1)[start - 4 * first :][:count]


def _signed(word: int) -> int:
    """64 bits as torch's int64 has them."""
    return word - (1 << 64) if word >> 63 else word


def _product(words: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The higher and the lower 64 bits of unsigned products, both as int64: from products of halves, none of which goes
    beyond 64 bits."""
    low, high = factor & LOW_32, factor >> 32
    low_words, high_words = words & LOW_32, upper_half(words)
    middle = (high_words * low).add_(upper_half(low_words * low))
    other = (low_words.mul_(high)).add_(middle & LOW_32)
    return (high_words.mul_(high)).add_(upper_half(middle)).add_(upper_half(other)), words * _signed(factor)


@dataclass(frozen=True, slots=True)
class _Widths:
    """How a normal number is made of random words of a width. Of a word, bits 0 to 7 are the layer, bit 8 the sign, and
    magnitude_bits from magnitude_shift on the magnitude; a uniform number is its highest uniform_bits."""

    dtype: torch.dtype
    bits: torch.dtype
    magnitude_bits: int
    uniform_bits: int
    number: type[np.floating[Any]]
    magnitude_shift: int = 9


_NARROW = _Widths(torch.float32, torch.int32, 23, 24, np.float32)


_WIDE = _Widths(torch.float64, torch.int64, 52, 53, np.float64)


TAIL_SIGN_BIT = 8
"""Of the magnitude, where the number is in the tail."""


class _Ziggurat:
    """NumPy's ziggurat for one width of words: its tables, and numbers from words."""

    def __init__(self, of: _Widths) -> None:
        self._of = of
        probe, wide = _Probe(of), _Probe(_WIDE)
        layers = range(LAYERS)
        widths = torch.tensor([probe.width(layer) for layer in layers], dtype=of.dtype)
        edges = [wide.width(layer) * 2.0**_WIDE.magnitude_bits for layer in layers]
        heights = [1.0, *(math.exp(-0.5 * edge * edge) for edge in edges[1:])]
        self._tables = (
            torch.cat((widths, -widths)),
            torch.tensor([probe.limit(layer) for layer in layers], dtype=of.bits),
            torch.tensor(heights, dtype=torch.float64).to(of.dtype),
        )
        self._here: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._edge, self._inverse_edge = of.number(edges[-1]), of.number(1.0 / edges[-1])
        self._log1p = _log1p(of)

    @property
    def dtype(self) -> torch.dtype:
        return self._of.dtype

    def numbers(self, words: torch.Tensor, count: int) -> tuple[torch.Tensor, int]:
        """Return the first count numbers that the words give, or fewer, and how many words that took."""
        if words.device not in self._here:
            signed, limits, heights = (table.to(words.device) for table in self._tables)
            self._here[words.device] = (signed, limits, heights)
        signed_widths, limits, heights = self._here[words.device]
        magnitudes = self._magnitudes(words)
        # The sign is the bit above the layer's: together they find a layer's width with its sign.
        numbers = signed_widths.index_select(0, words & (2 * LAYERS - 1)).mul_(magnitudes)
        slow = (magnitudes >= limits.index_select(0, words & (LAYERS - 1))).nonzero().squeeze(1)
        lengths, gives = self._slow(words, slow, numbers, heights)
        unused, begins = _covered(words.numel(), slow, lengths)
        unused[slow[begins & ~gives]] = True
        cut = slow[begins & (slow + lengths > words.numel())]
        if cut.numel():  # an attempt for which the words do not suffice; what follows it is unknown
            unused[int(cut[0]) :] = True
        places = unused.logical_not_().nonzero().squeeze(1)[:count]
        if not places.numel():
            return numbers[:0], 0
        last = int(places[-1])
        ended_slowly = lengths[slow == last]
        return numbers.index_select(0, places), last + (int(ended_slowly) if ended_slowly.numel() else 1)

    def _magnitudes(self, words: torch.Tensor) -> torch.Tensor:
        return (words >> self._of.magnitude_shift).bitwise_and_((1 << self._of.magnitude_bits) - 1)

    def _uniform(self, words: torch.Tensor) -> torch.Tensor:
        """Words as numbers from 0 to below 1."""
        bits = self._of.uniform_bits
        whole = (words >> (8 * self._of.bits.itemsize - bits)).bitwise_and_((1 << bits) - 1)
        return whole.to(self._of.dtype) * 2.0**-bits

    def _slow(
        self, words: torch.Tensor, slow: torch.Tensor, numbers: torch.Tensor, heights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attempts at these places, none of which gives its number at once: the words that each takes, and whether it
        gives one. Those of the tail are written into numbers. One that lacks words takes more than there are."""
        layers = words[slow] & (LAYERS - 1)
        uniform = self._uniform(words[(slow + 1).clamp_(max=words.numel() - 1)])
        upper, lower = heights[(layers - 1).clamp_(min=0)], heights[layers]
        exact = numbers[slow].to(torch.float64)
        gives = ((upper - lower) * uniform + lower).to(torch.float64) < torch.exp(-0.5 * exact * exact)
        lengths = torch.full_like(slow, 2)
        (tail,) = (layers == 0).nonzero(as_tuple=True)
        gives[tail] = True
        lengths[tail] = self._of_tail(words, slow[tail], numbers)
        return lengths, gives

    def _of_tail(self, words: torch.Tensor, places: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Write the numbers of attempts in the tail, and return how many words each takes."""
        lengths = torch.full_like(places, words.numel() + 1)
        left = torch.arange(places.numel(), device=places.device)
        for taken in itertools.count(1, 2):
            left = left[places[left] + taken + 1 < words.numel()]
            if not left.numel():
                return lengths
            here = places[left]
            beyond = -self._inverse_edge * self._logs(words[here + taken])
            depth = -self._logs(words[here + taken + 1])
            fits = torch.from_numpy(depth + depth > beyond * beyond).to(words.device)
            negative = (self._magnitudes(words[here]) >> TAIL_SIGN_BIT) & 1
            found = torch.from_numpy(self._edge + beyond).to(words.device)
            numbers[here[fits]] = torch.where(negative == 1, -found, found)[fits]
            lengths[left[fits]] = taken + 2
            left = left[~fits]
        raise AssertionError("unreachable")

    def _logs(self, words: torch.Tensor) -> np.ndarray:
        """log(1 - u) of the uniform numbers of words, as the C library gives it."""
        uniform = self._uniform(words).tolist()
        return np.array([self._log1p(-one) for one in uniform], dtype=self._of.number)


@cache
def _ziggurat(wide: bool) -> _Ziggurat:
    return _Ziggurat(_WIDE if wide else _NARROW)


def _covered(count: int, slow: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which of count words belong to an attempt that began before them, and which of the attempts at slow begin.

    An attempt begins unless one before it took its word; whether that one begins is the same question. Each turn
    settles at least one more of each row of attempts that overlap, and rows are short.
    """
    begins = torch.ones_like(slow, dtype=torch.bool)
    # An attempt that lacks words claims more than there are: it reaches no further than the end.
    longest = int(torch.minimum(lengths, count - slow).max()) if slow.numel() else 0
    while True:
        covered = torch.zeros(count, dtype=torch.bool, device=slow.device)
        for step in range(1, longest):
            reached = slow[begins & (lengths > step)] + step
            covered[reached[reached < count]] = True
        settled = ~covered[slow]
        if torch.equal(settled, begins):
            return covered, begins
        begins = settled


class _Probe:
    """NumPy's generator, given words of our choice."""

    def __init__(self, of: _Widths) -> None:
        self._of = of
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)

    def width(self, layer: int) -> float:
        """What magnitudes of a layer are multiplied by."""
        return self._given(layer, 1)[0]

    def limit(self, layer: int) -> int:
        """The lowest magnitude of a layer with which a number takes more than its own word."""
        low, high = 0, 1 << self._of.magnitude_bits
        while low < high:
            middle = (low + high) // 2
            if self._given(layer, middle)[1]:
                high = middle
            else:
                low = middle + 1
        return low

    def _given(self, layer: int, magnitude: int) -> tuple[float, bool]:
        """The number that a word gives, and whether it took any after it. Those are 0, which every layer but the lowest
        accepts, and the highest word, which the lowest accepts then."""
        word = layer | magnitude << self._of.magnitude_shift
        given: Any = dict(self._bits.state) | {"buffer_pos": 0}
        if self._of is _WIDE:
            given["buffer"] = np.array([word, 0, HIGHEST, HIGHEST], dtype=np.uint64)
        else:
            given |= {"has_uint32": 1, "uinteger": word}
            given["buffer"] = np.full(4, HIGHEST - LOW_32, dtype=np.uint64)
        self._bits.state = given
        number = float(self._generator.standard_normal(dtype=self._of.number))
        return number, int(self._bits.state["buffer_pos"]) != (1 if self._of is _WIDE else 0)


def _log1p(of: _Widths) -> Callable[[float], float]:
    """log(1 + x) of the C library, for numbers of a width: NumPy's generator calls it."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function, number = (library.log1p, ctypes.c_double) if of is _WIDE else (library.log1pf, ctypes.c_float)
    function.argtypes, function.restype = [number], number
    found: Callable[[float], float] = function
    return found


@cache
def agrees_with_numpy(device: torch.device, wide: bool) -> bool:
    """Whether normal numbers made on a device are NumPy's, to the bit: as long as NumPy's method and the C library are
    those that are known here. Looked at once a process."""
    key = (0,)
    made = DeviceGenerator(0, key, device).normal(COMPARED_NUMBERS, wide).cpu()
    return torch.equal(made, HostGenerator(0, key).normal(COMPARED_NUMBERS, wide))
