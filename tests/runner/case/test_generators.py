"""Random numbers as a device makes them, here on torch's CPU tensors, against NumPy's own generator: the same bits."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cases.case import Case
from cases.dtypes import ALL, FLOATS
from kernels.numeric.formats import bits_of
from runner.case import device_generator, inputs
from runner.case.device_generator import DeviceGenerator, agrees_with_numpy
from runner.case.generators import HostGenerator
from runner.case.inputs import CPU, draw_on, stream_of
from runner.case.streams import Stream, draw

PIECES = (1, 5, 3, 1000, 8, 77)
"""Odd numbers, so that words of 32 bits are left over in the middle of blocks."""

SUMS = [("exact", "sum"), ("normal", "sum"), ("edge", "avg"), ("exact", "max"), ("normal", "none"), ("edge", "none")]
BITS = [("exact", "and"), ("exact", "or"), ("normal", "xor")]
"""Kinds of inputs with reductions, which are all kinds of streams; the second only of integers."""


@pytest.mark.parametrize(("seed", "key"), [(0, (0,)), (7, (3,)), (123456789012345678901, (0, 1))])
def test_words_are_numpys_wherever_a_piece_begins(seed, key):
    host, device = HostGenerator(seed, key), DeviceGenerator(seed, key, CPU)
    assert all(torch.equal(device.words(count), host.words(count)) for count in PIECES)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", [0, 5])
def test_normal_numbers_are_numpys_wherever_a_piece_begins(seed, wide):
    host, device = HostGenerator(seed, (2,)), DeviceGenerator(seed, (2,), CPU)
    largest = 0.0
    for count in (*PIECES, 60_000, 3):
        expected = host.normal(count, wide)
        assert torch.equal(bits_of(device.normal(count, wide)), bits_of(expected))
        largest = max(largest, float(expected.abs().max()))
    assert largest > 3.66, "no number of the tail was among them"


def test_attempts_begin_unless_one_before_them_took_their_word():
    draws = np.random.default_rng(3)
    for density in (0.05, 0.5, 0.95):
        slow = torch.from_numpy((draws.random(300) < density).nonzero()[0])
        lengths = torch.from_numpy(draws.choice([2, 2, 2, 3, 5, 9], size=len(slow)))
        begun, free = [], 0
        for place, length in zip(slow.tolist(), lengths.tolist(), strict=True):
            begun.append(place >= free)
            free = place + length if begun[-1] else free
        covered, begins = device_generator._covered(300, slow, lengths)
        assert begins.tolist() == begun
        taken = [
            range(place + 1, place + length)
            for place, length, is_begun in zip(slow.tolist(), lengths.tolist(), begun, strict=True)
            if is_begun
        ]
        assert covered.nonzero().flatten().tolist() == [one for one in itertools.chain(*taken) if one < 300]


def streams():
    """Every kind of stream with every dtype, of 3 ranks and of 72."""
    cases = [
        Case("all_reduce", "x", dtype, "native", reduction, 64, ranks, inputs=kind)
        for dtype in ALL
        for kind, reduction in SUMS + ([] if dtype in FLOATS else BITS)
        for ranks in (3, 72)
    ]
    return list(dict.fromkeys(map(stream_of, cases)))


@pytest.mark.parametrize("stream", streams(), ids=lambda one: f"{one.kind}-{one.dtype}-{one.world_size}-{one.largest}")
def test_a_device_draws_what_the_host_draws(stream):
    expected = draw(stream, 4, 1, 3001, 1 << 20)
    made = draw(stream, 4, 1, 3001, 997, partial(DeviceGenerator, device=CPU))
    assert made.dtype == expected.dtype
    assert torch.equal(bits_of(made), bits_of(expected))


@pytest.mark.parametrize("wide", [False, True])
def test_numbers_of_another_method_are_noticed(wide, monkeypatch):
    """A NumPy with another method, or a C library with another log1p, in its last bit."""
    assert agrees_with_numpy.__wrapped__(CPU, wide)
    ziggurat = device_generator._ziggurat(wide)
    number = np.float64 if wide else np.float32
    right = ziggurat._log1p
    off = lambda x: float(np.nextafter(number(right(x)), number(-9)))  # noqa: E731
    monkeypatch.setattr(ziggurat, "_log1p", off)
    assert not agrees_with_numpy.__wrapped__(CPU, wide)


def test_where_a_device_would_draw_other_numbers_the_host_draws(monkeypatch):
    stream = Stream("normal", torch.bfloat16)
    expected = draw(stream, 0, 0, 100, 100)
    elsewhere = SimpleNamespace(type="elsewhere")
    drawn = []
    monkeypatch.setattr(inputs, "draw", lambda *given: drawn.append(len(given)) or expected)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)
    for agrees in (False, True):
        monkeypatch.setattr(device_generator, "agrees_with_numpy", lambda device, wide, agrees=agrees: agrees)
        assert draw_on(elsewhere, stream, 0, 0, 100) is expected
    assert drawn == [5, 6], "the sixth argument makes the device's generators"
