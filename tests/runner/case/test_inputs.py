"""Inputs: reproducible to the bit, exact where they say so, and unkind to a dropped rank or a shifted index."""

import hashlib
from dataclasses import replace

import pytest
import torch

from cases.case import Case
from cases.dtypes import ALL, DTYPES, FLOATS, INTEGERS, reductions_of
from kernels.numeric.formats import bits_of, to_float64
from runner.case import inputs
from runner.case.inputs import digest_of, largest_exact, make_input, stream_of
from tests.golden import refused, same_text

WORLD_SIZES = [1, 2, 3, 8, 16, 72]


def case(dtype="bfloat16", world_size=8, kind="exact", seed=0, reduction="sum"):
    return Case("all_reduce", "one_shot", dtype, "float32", reduction, 4096, world_size, inputs=kind, seed=seed)


PLAIN = ["float32", "float16", "bfloat16"]
"""Floats with room for integers of 72 ranks."""


@pytest.fixture(autouse=True)
def _nothing_kept():
    inputs.forget_inputs()


DIGESTS = {
    "exact": ("94e84f8299b1e31c", "a03cbfc7da3890f2", "d876eeb43e5e45a1"),
    "normal": ("81923d96b10bcb2e", "5aa01b87ada57c60", "cbd83a9e32505539"),
}


@pytest.mark.parametrize("kind", DIGESTS)
def test_pinned_bits(kind):
    """A change here changes what every seed in every record means."""
    made = [make_input(case(dtype, kind=kind, seed=7), rank=3, numel=1000) for dtype in PLAIN]
    assert tuple(digest_of(one)[:16] for one in made) == DIGESTS[kind]


def whole_numbers(part):
    """Exact integers of any type."""
    if part.dtype.is_floating_point:
        numbers = to_float64(part).tolist()
        assert all(number.is_integer() for number in numbers)
        return [int(number) for number in numbers]
    name = str(part.dtype).removeprefix("torch.")
    return part.view(torch.uint8).numpy().view(name).tolist()


LIMITS = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "float8_e4m3fn": 16, "float8_e5m2": 8}
LIMITS |= {"int32": 2**31 - 1, "int64": 2**63 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_exact_means_exact(dtype, world_size):
    """Every partial sum in any order is an integer within the format's, and the sum of all sizes bounds them all.

    Those of 64 bits need more than half of them: or a float32 accumulator, or a sum of 32 bits, would pass."""
    rows = [whole_numbers(make_input(case(dtype, world_size), rank, 4000)) for rank in range(world_size)]
    assert max(sum(map(abs, column)) for column in zip(*rows, strict=True)) <= LIMITS[dtype]
    most = largest_exact(DTYPES[dtype], world_size)
    everything = [number for row in rows for number in row]
    if most == 0:
        assert set(everything) == {-1, 0, 1}
        return
    assert most == min(LIMITS[dtype] // world_size, 2**32)
    assert 0 not in everything
    if most < 100:
        assert sorted(set(everything)) == [n for n in range(-most, most + 1) if n]
    else:
        assert max(map(abs, everything)) > 0.97 * most
    positive = sum(number > 0 for number in everything) / len(everything)
    assert positive == 1 if dtype.startswith("u") else 0.45 < positive < 0.55


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_exact_minima_and_maxima_have_the_whole_range(dtype):
    parts = [make_input(case(dtype, 8, reduction=one), 3, 4000) for one in ("min", "max")]
    assert torch.equal(bits_of(parts[0]), bits_of(parts[1]))
    numbers = whole_numbers(parts[0])
    assert 0.9 * min(LIMITS[dtype], 2**32) < max(map(abs, numbers)) <= LIMITS[dtype]
    assert 0 not in numbers


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("world_size", [2, 8, 72])
def test_a_rank_left_out_of_bitwise_reductions_shows(dtype, world_size):
    for reduction, combine in (("and", torch.bitwise_and), ("or", torch.bitwise_or), ("xor", torch.bitwise_xor)):
        one = case(dtype, world_size, reduction=reduction)
        parts = [bits_of(make_input(one, rank, 500)) for rank in range(world_size)]
        rest = parts[1]
        for part in parts[2:]:
            rest = combine(rest, part)
        total = combine(rest, parts[0])
        shows = float((total != rest).double().mean())
        assert shows > (0.99 if reduction == "xor" else {2: 0.99, 8: 0.7, 72: 0.1}[world_size])


@pytest.mark.parametrize("dtype", ALL)
def test_ops_that_only_move_data_get_patterns_of_any_kind(dtype):
    made = [make_input(case(dtype, kind=kind, reduction="none"), 1, 2000) for kind in ("exact", "normal")]
    assert torch.equal(bits_of(made[0]), bits_of(made[1]))
    assert int(bits_of(made[0]).unique().numel()) > 250
    edge = make_input(case(dtype, kind="edge", reduction="none"), 1, 2000)
    changed = float((bits_of(edge) != bits_of(made[0])).double().mean())
    assert 0.2 < changed < 0.5


def test_which_streams_there_are():
    """Sums and averages share theirs, and only some depend on the world size."""
    for dtype in (*FLOATS, *INTEGERS):
        kinds = [
            f"{reduction} {kind}: {stream_of(case(dtype, 72, kind, reduction=reduction)).kind}"
            for reduction in reductions_of(dtype)
            for kind in ("exact", "normal", "edge")
        ]
        same_text(f"{dtype}: {', '.join(kinds)}")
    assert stream_of(case(world_size=4, kind="normal")) == stream_of(case(world_size=8, kind="normal"))
    assert stream_of(case(world_size=4)) != stream_of(case(world_size=8))


@pytest.mark.parametrize("kind", ["exact", "normal", "edge"])
def test_a_smaller_buffer_is_the_beginning_of_a_larger_one(kind):
    for dtype, reduction in (("bfloat16", "sum"), ("float8_e5m2", "sum"), ("int32", "or"), ("uint8", "none")):
        one = case(dtype, 72, kind, reduction=reduction)
        long = make_input(one, 1, 5000)
        for numel in (1, 15, 4097):
            inputs.forget_inputs()
            assert torch.equal(bits_of(make_input(one, 1, numel)), bits_of(long[:numel]))


def test_kept_inputs_are_shared_and_bounded(monkeypatch):
    """Smaller ones are slices of the largest."""
    first = make_input(case(), 0, 100)
    other_algorithm = replace(case(), algorithm="two_shot", accumulator="native", placement="in_place")
    assert make_input(other_algorithm, 0, 100) is first
    assert make_input(case(world_size=4), 0, 100) is not first
    long = make_input(case(), 1, 5000)
    short = make_input(case(), 1, 700)
    assert short.data_ptr() == long.data_ptr()
    assert make_input(case(), 1, 700) is short
    longer = make_input(case(), 1, 6000)
    assert torch.equal(longer[:5000], long)
    assert make_input(case(), 1, 5000).data_ptr() == longer.data_ptr()
    assert len(inputs._kept_on_cpu) == 3
    monkeypatch.setattr(inputs, "_kept_on_cpu", inputs._latest(450))
    for rank in range(1, 5):
        make_input(case(), rank, 100)
    assert len(inputs._kept_on_cpu) == 2
    assert torch.equal(make_input(case(), 0, 100), first)


def test_unknown_requests():
    for changes in ({"kind": "ones"}, {"seed": -1}):
        with refused():
            make_input(case(**changes), 0, 4)


def test_all_ranks_inputs_at_once_are_what_each_alone_is(monkeypatch):
    alone = [make_input(case(kind="normal"), rank, 3000) for rank in range(8)]
    inputs.forget_inputs()
    monkeypatch.setattr(inputs, "CHUNK_ELEMENTS", 1000)
    together = inputs.make_inputs(case(kind="normal"), range(8), 3000)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert inputs.make_inputs(case(kind="normal"), range(8), 10)[7].data_ptr() == together[7].data_ptr()


@pytest.mark.parametrize("reduction", ["sum", "none", "xor", "and"])
@pytest.mark.parametrize("kind", ["exact", "normal", "edge"])
def test_an_input_of_no_elements_has_bytes_too(kind, reduction):
    """On 2026-11-22 GPUs refused it: NumPy's empty arrays have a stride of 0, and torch sees no bytes in such."""
    dtype = "bfloat16" if reduction in ("sum", "none") else "int32"
    made = make_input(case(dtype, kind=kind, reduction=reduction), 0, 0)
    assert made.view(torch.uint8).numel() == 0
    assert made.stride() == (1,)
    assert digest_of(made) == hashlib.sha256(b"").hexdigest()


def test_the_digest_is_of_the_elements_in_order_whatever_the_strides(monkeypatch):
    """It is made once."""
    whole = torch.arange(12, dtype=torch.bfloat16).view(3, 4)
    one = torch.ones((), dtype=torch.bfloat16)
    views = [whole.T, whole[:, 1], whole[1:, ::2], one, one.expand(1), one.expand(5), one.expand(1, 1), whole[:0, 1]]
    for data in (*views, make_input(case(), 1, 1000)):
        copied = torch.tensor(data.tolist(), dtype=torch.bfloat16).flatten().view(torch.uint8).numpy().tobytes()
        assert digest_of(data) == hashlib.sha256(copied).hexdigest()
    monkeypatch.setattr(inputs, "sha256_of", None)
    assert digest_of(data) == hashlib.sha256(copied).hexdigest()
