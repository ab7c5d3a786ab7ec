"""Inputs: reproducible to the bit, exact where they say so, and unkind to a dropped rank or a shifted index."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

from kernels.dtypes import DTYPES
from kernels.spec import Case
from runner import inputs
from runner.inputs import largest_exact, make_input

WORLD_SIZES = [1, 2, 3, 8, 16, 72]


def case(dtype: str = "bfloat16", world_size: int = 8, kind: str = "exact", seed: int = 0) -> Case:
    return Case("all_reduce", "one_shot", dtype, "float32", "sum", 4096, world_size, inputs=kind, seed=seed)


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    inputs._kept.clear()


@pytest.mark.parametrize(
    ("dtype", "kind", "digest"),
    [
        ("float32", "exact", "94e84f8299b1e31c"),
        ("float16", "exact", "a03cbfc7da3890f2"),
        ("bfloat16", "exact", "d876eeb43e5e45a1"),
        ("float32", "normal", "81923d96b10bcb2e"),
        ("float16", "normal", "5aa01b87ada57c60"),
        ("bfloat16", "normal", "cbd83a9e32505539"),
    ],
)
def test_pinned_bits(dtype: str, kind: str, digest: str) -> None:
    """A change here changes what every seed in every record means."""
    made = make_input(case(dtype, kind=kind, seed=7), rank=3, numel=1000)
    assert hashlib.sha256(made.view(torch.uint8).numpy().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_exact_means_exact(dtype: str, world_size: int) -> None:
    """Every partial sum in any order is an integer within the format's, and the sum of all sizes bounds them all."""
    parts = [make_input(case(dtype, world_size), rank, 4000).to(torch.float64) for rank in range(world_size)]
    assert all(bool((part == part.round()).all()) and bool((part != 0).all()) for part in parts)
    worst = torch.stack([part.abs() for part in parts]).sum(0).max()
    assert worst <= {"float32": 2**24, "float16": 2**11, "bfloat16": 2**8}[dtype]
    most = largest_exact(DTYPES[dtype], world_size)
    assert most >= 3
    everything = torch.cat(parts)
    if most < 100:
        assert sorted(set(everything.tolist())) == [n for n in range(-most, most + 1) if n]
    else:
        assert float(everything.abs().max()) > 0.97 * most
    assert 0.45 < float((everything > 0).double().mean()) < 0.55


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("world_size", [2, 8, 72])
def test_a_dropped_rank_or_a_shifted_index_shows(dtype: str, world_size: int) -> None:
    parts = [make_input(case(dtype, world_size), rank, 4000).to(torch.float64) for rank in range(world_size)]
    total = torch.stack(parts).sum(0)
    for rank in range(world_size):
        assert bool((total - parts[rank] != total).all())
        twice = total - parts[rank] + parts[(rank + 1) % world_size]
        assert float((twice != total).double().mean()) > 0.5
    for shift in (1, 2, 8, 16):
        assert float((total.roll(shift) != total).double().mean()) > 0.5


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_normal_inputs_are_standard_normal(dtype: str) -> None:
    made = make_input(case(dtype, kind="normal"), 0, 100_000).to(torch.float64)
    assert abs(float(made.mean())) < 0.02
    assert abs(float(made.std()) - 1) < 0.02
    assert 3.5 < float(made.abs().max()) < 6
    as_float32 = make_input(case("float32", kind="normal"), 0, 100_000)
    assert torch.equal(made, as_float32.to(DTYPES[dtype]).to(torch.float64))


@pytest.mark.parametrize("kind", ["exact", "normal"])
def test_a_smaller_buffer_is_the_beginning_of_a_larger_one(kind: str) -> None:
    long = make_input(case(kind=kind), 1, 5000)
    for numel in (1, 15, 4097):
        assert torch.equal(make_input(case(kind=kind), 1, numel), long[:numel])


def test_seeds_and_ranks_give_independent_streams() -> None:
    made = [make_input(case("float32", kind="normal", seed=seed), rank, 2000) for seed in (0, 1) for rank in range(3)]
    for one in range(6):
        for other in range(one):
            assert abs(float((made[one] * made[other]).mean())) < 0.1


def test_kept_inputs_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_input(case(), 0, 100)
    other_algorithm = replace(case(), algorithm="two_shot", accumulator="native", placement="in_place")
    assert make_input(other_algorithm, 0, 100) is first
    assert make_input(case(world_size=4), 0, 100) is not first
    monkeypatch.setattr(inputs, "KEPT_BYTES", 450)
    for rank in range(1, 5):
        make_input(case(), rank, 100)
    assert len(inputs._kept) == 2
    assert torch.equal(make_input(case(), 0, 100), first)


def test_unknown_requests() -> None:
    with pytest.raises(ValueError, match="inputs 'ones': must be exact or normal"):
        make_input(case(kind="ones"), 0, 4)
    with pytest.raises(ValueError, match="seed -1: must be 0 or more"):
        make_input(case(seed=-1), 0, 4)


@pytest.mark.parametrize("kind", ["exact", "normal"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_large_inputs_are_drawn_in_pieces_with_the_same_bits(
    kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_input(case(dtype, kind=kind), 2, 10_000)
    inputs.forget_inputs()
    monkeypatch.setattr(inputs, "CHUNK_ELEMENTS", 999)
    pieces = make_input(case(dtype, kind=kind), 2, 10_000)
    assert pieces is not whole
    assert torch.equal(pieces, whole)


def test_smaller_inputs_are_slices_of_the_largest_kept() -> None:
    long = make_input(case(), 1, 5000)
    short = make_input(case(), 1, 700)
    assert short.data_ptr() == long.data_ptr()
    assert make_input(case(), 1, 700) is short
    longer = make_input(case(), 1, 6000)
    assert torch.equal(longer[:5000], long)
    assert make_input(case(), 1, 5000).data_ptr() == longer.data_ptr()
    assert len(inputs._kept) == 1


def test_all_ranks_inputs_at_once_are_what_each_alone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [make_input(case(kind="normal"), rank, 3000) for rank in range(8)]
    inputs.forget_inputs()
    monkeypatch.setattr(inputs, "CHUNK_ELEMENTS", 1000)
    together = inputs.make_inputs(case(kind="normal"), range(8), 3000)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert inputs.make_inputs(case(kind="normal"), range(8), 10)[7].data_ptr() == together[7].data_ptr()
