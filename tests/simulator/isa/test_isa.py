"""Every entry of the table of instructions, on vectors whose expected values come from an independent source."""

from __future__ import annotations

import re

import pytest
from simulator_bench import SHAPES, Bench, compare_all
from simulator_families import FAMILIES, bench_of, proven

from simulator.isa import TABLE
from simulator.isa.registry import Operation

LONG = ("atomic", "space", "bulk", "within_shared", "mbarriers", "cluster")
"""Families that take seconds a shape: `make test` runs them in one shape, `make test-all` in the others."""

LONGEST = ("atomic", "cluster")
"""Families that take seconds in any shape, which `make test-all` alone runs."""

RUNS = [
    pytest.param(
        family, shape, marks=pytest.mark.slow if family in LONGEST or (family in LONG and shape != "range") else ()
    )
    for family in FAMILIES
    for shape in SHAPES
]


@pytest.mark.parametrize(("family", "shape"), RUNS)
def test_vectors(family: str, shape: str) -> None:
    bench = bench_of(family)
    compare_all(bench.vectors, bench.run(shape), shape)


def missing(table: dict[str, Operation]) -> list[str]:
    return sorted(set(table) - proven())


def test_every_entry_of_the_table_has_vectors() -> None:
    assert missing(TABLE) == []


def test_an_entry_without_vectors_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "frobnicate.u32", TABLE["add.u32"])
    assert missing(TABLE) == ["frobnicate.u32"]


def test_a_vector_counts_for_the_key_it_runs_only() -> None:
    vector = next(one for one in bench_of("integer").vectors if one.key == "add.u32")
    wrong = type(vector)("sub.u32", "mislabelled", vector.text, vector.inputs, vector.outputs)
    assert Bench([wrong]).keys() == set()


@pytest.mark.parametrize(
    ("key", "other"), [("add.u32", "sub.u32"), ("setp.lt.s32", "setp.le.s32"), ("shr.s64", "shr.u64")]
)
def test_a_wrong_entry_is_caught(key: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, key, Operation(key, TABLE[other].build))
    bench = Bench([one for one in bench_of("integer").vectors if one.entry == key])
    bench.ptx += f"// {key} replaced\n"  # decoded programs are kept by their text
    with pytest.raises(AssertionError, match=f"vectors of 1 keys differ: {re.escape(key)}\n.* differs in"):
        compare_all(bench.vectors, bench.run("range"), "range")
