"""Streams of numbers: what each kind is made of, and where special values lie."""

import numpy as np
import pytest
import torch

from cases.dtypes import ALL, DTYPES, FLOATS, INTEGERS
from kernels.numeric.formats import FORMATS, bits_of, is_nan, same_bits, to_float64
from runner.case.streams import KINDS, TOGETHER, Stream, draw, specials

ROUND = KINDS * TOGETHER
"""After so many elements the kinds of special elements come again."""


def made(stream, rank, numel, seed=5):
    return draw(stream, seed, rank, numel, 1 << 20)


def unsigned(value):
    """The patterns."""
    return value.view(torch.uint8).numpy().view(f"u{value.dtype.itemsize}").tolist()


def edge_parts(dtype, world_size, numel):
    base = "normal" if dtype in FLOATS else "bits"
    return [made(Stream("edge", DTYPES[dtype], world_size, base=base), rank, numel) for rank in range(world_size)]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("world_size", [9, 17, 72])
def test_sparse_elements_come_from_as_many_ranks(dtype, world_size):
    most = 1 << FORMATS[DTYPES[dtype]].significand_bits
    if most >= world_size:
        return
    stream = Stream("sparse", DTYPES[dtype], world_size, largest=most)
    parts = torch.stack([to_float64(made(stream, rank, 2000)) for rank in range(world_size)])
    assert set(parts.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert (parts != 0).sum(0).tolist() == [most] * 2000
    assert bool(((parts != 0).sum(1) > 2000 * most / world_size * 0.7).all())
    assert float((parts == 1).double().mean()) == pytest.approx(float((parts == -1).double().mean()), abs=0.02)
    assert not bool(torch.signbit(parts[parts == 0]).any())


@pytest.mark.parametrize("dtype", FLOATS)
def test_specials_of_floats(dtype):
    form, width = FORMATS[DTYPES[dtype]], DTYPES[dtype].itemsize
    patterns = np.array(specials(DTYPES[dtype]), dtype=f"u{width}")
    values = torch.from_numpy(patterns.view(f"i{width}")).view(DTYPES[dtype])
    numbers = to_float64(values)
    tiny, largest = form.smallest_subnormal, form.largest
    wanted = [0.0, tiny, form.smallest_normal - tiny, form.smallest_normal, largest]
    wanted += [float("inf")] if form.has_infinity else []
    finite = numbers[~numbers.isnan()].tolist()
    assert sorted(map(str, finite)) == sorted(map(str, wanted + [-one for one in wanted])), "both zeros"
    nans = unsigned(values[is_nan(values)])
    assert len(set(nans)) == (2 if dtype == "float8_e4m3fn" else 4)
    assert {one >> (8 * width - 1) for one in nans} == {0, 1}


@pytest.mark.parametrize("dtype", [*INTEGERS, "uint8"])
def test_specials_of_integers(dtype):
    info = np.iinfo(dtype)
    patterns = np.array(specials(DTYPES[dtype]), dtype=f"u{DTYPES[dtype].itemsize}").view(dtype).tolist()
    wanted = {int(info.min), int(info.max), 0, 1, int(info.max) - 1}
    wanted |= {-1} if info.min else {int(info.max) // 2, int(info.max) // 2 + 1}
    assert set(patterns) == wanted


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_most_elements_have_one_or_two_special_ranks(dtype, world_size):
    numel = 100 * ROUND
    kind = DTYPES[dtype]
    base = Stream("normal" if dtype in FLOATS else "bits", kind)
    parts = edge_parts(dtype, world_size, numel)
    plain = [bits_of(made(base, rank, numel)) for rank in range(world_size)]
    changed = torch.stack([bits_of(part) != one for part, one in zip(parts, plain, strict=True)])
    alone = torch.arange(numel) % TOGETHER != TOGETHER - 1
    count = changed.sum(0)[alone]
    assert set(count.tolist()) <= {0, 1, 2}  # 0: a special value that was there already
    assert float((count == 0).double().mean()) < (0.05 if kind.itemsize == 1 else 0.01)
    assert 0.2 < float((count == 2).double().mean()) < 0.6
    held = torch.stack([bits_of(part) for part in parts])[:, alone][changed[:, alone]]
    assert set(unsigned(held.view(kind))) == set(specials(kind)), "each of them comes, and nothing else"
    for rank in range(world_size):
        assert float(changed[rank][alone].double().mean()) > 0.8 / world_size


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_elements_that_are_special_on_all_ranks(dtype, world_size):
    numel = 100 * ROUND
    kind = DTYPES[dtype]
    form = FORMATS[kind]
    parts = edge_parts(dtype, world_size, numel)
    columns = [torch.stack([to_float64(part[at::ROUND].clone()) for part in parts]) for at in range(3, ROUND, TOGETHER)]
    minus, largest, infinities, one_nan, subnormal, zeros = columns
    assert bool(((minus == 0) & torch.signbit(minus)).all())
    assert bool((largest.abs() == form.largest).all())
    assert bool((largest == largest[0]).all())
    assert {float(one) for one in largest[0]} == {form.largest, -form.largest}
    endless = float("inf") if form.has_infinity else form.largest
    assert (infinities == endless).sum(0).tolist() == [1] * 100
    assert (infinities == -endless).sum(0).tolist() == [world_size > 1] * 100
    assert one_nan.isnan().sum(0).tolist() == [1] * 100
    assert bool((subnormal.abs() < form.smallest_normal).all())
    assert float((subnormal != 0).double().mean()) > (0.6 if kind.itemsize == 1 else 0.95)
    assert bool((zeros == 0).all())
    assert torch.signbit(zeros).sum(0).tolist() == [1] * 100
    if world_size > 1:
        for column in (infinities == endless, one_nan.isnan(), torch.signbit(zeros)):
            assert bool(column.any(1).all()), "on every rank"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_are_special_on_all_ranks(dtype):
    info = np.iinfo(dtype)
    low, high, ones = int(info.min), int(info.max), -1 if info.min else int(info.max)
    parts = edge_parts(dtype, 4, 20 * ROUND)
    rows = np.stack([part.view(torch.uint8).numpy().view(dtype) for part in parts])
    expected = [[low] * 4, [high] * 4, [low] + [high] * 3, [low] * 3 + [high], [0] * 4, sorted([0, ones, ones, ones])]
    for turn, wanted in enumerate(expected):
        for element in range(TOGETHER * turn + 3, 20 * ROUND, ROUND):
            assert sorted(rows[:, element].tolist()) == wanted


@pytest.mark.parametrize("dtype", ALL)
def test_a_stream_drawn_in_pieces_is_the_same(dtype):
    kind = DTYPES[dtype]
    streams = [Stream("bits", kind), Stream("edge", kind, 3, base="bits")]
    if dtype in FLOATS:
        streams += [Stream("normal", kind), Stream("sparse", kind, 5, largest=2)]
        streams += [Stream("edge", kind, 3, base="normal")]
    elif dtype in INTEGERS:
        streams += [Stream("integers", kind, largest=9), Stream("ones", kind, 8), Stream("zeros", kind, 3)]
    for stream in streams:
        whole = draw(stream, 1, 2, 3001, 1 << 20)
        for piece in (1000, 999, 1):
            length = 3001 if piece > 1 else 50
            assert torch.equal(bits_of(draw(stream, 1, 2, length, piece)), bits_of(whole[:length].clone()))
        assert not bool(same_bits(draw(stream, 2, 2, 3001, 1 << 20), whole).all()), "the seed matters"


def test_nothing_is_drawn_of_nothing():
    for kind in ("bits", "normal"):
        assert made(Stream(kind, torch.float16), 0, 0).shape == (0,)
    assert made(Stream("edge", torch.float16, 2, base="normal"), 0, 0).shape == (0,)
