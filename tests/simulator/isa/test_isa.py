"""Every entry of the table of instructions, on vectors whose expected values come from an independent source."""

import re
from dataclasses import replace

import numpy as np
import pytest

from simulator.isa import TABLE
from simulator.isa.registry import Operation
from tests.simulator.bench import SAMPLES, SHAPES, Bench, Vector, compare_all
from tests.simulator.isa.families import FAMILIES, bench_of, proven

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
def test_vectors(family, shape):
    bench = bench_of(family)
    compare_all(bench.vectors, bench.run(shape), shape)


def missing(table, keys):
    return sorted(set(table) - set(keys))


def test_every_entry_of_the_table_has_vectors():
    assert missing(TABLE, proven()) == []


def test_a_vector_counts_for_the_key_it_runs_only():
    """And an entry without vectors is noticed."""
    ones = np.ones(SAMPLES, np.uint32)
    vector = Vector("add.u32", "plain", "add.u32 d, a, 1;", (("a", "b32", ones),), (("d", "b32", 2 * ones),))
    wrong = replace(vector, key="sub.u32")
    assert Bench([wrong]).keys() == set()
    assert missing(["add.u32", "sub.u32"], Bench([vector, wrong]).keys()) == ["sub.u32"]


@pytest.mark.parametrize(
    ("key", "other"), [("add.u32", "sub.u32"), ("setp.lt.s32", "setp.le.s32"), ("shr.s64", "shr.u64")]
)
def test_a_wrong_entry_is_caught(key, other, monkeypatch):
    monkeypatch.setitem(TABLE, key, Operation(key, TABLE[other].build))
    family = "comparison" if key.startswith("setp") else "integer"
    bench = Bench([one for one in FAMILIES[family]() if one.entry == key])
    bench.ptx += f"// {key} replaced\n"  # decoded programs are kept by their text
    with pytest.raises(AssertionError, match=f"vectors of 1 keys differ: {re.escape(key)}\n.* differs in"):
        compare_all(bench.vectors, bench.run("range"), "range")
