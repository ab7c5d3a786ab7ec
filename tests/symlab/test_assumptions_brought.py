"""Assumptions about hardware are declared wherever a kernel is brought, and a failure that one excludes names it."""

import pytest
import torch

import symlab
from memory.fabric import Launch
from runner.custom.description import _launch
from runner.request_error import RequestError
from tests.golden import refused
from tests.rooms import needs
from tests.simulator.harness import module

PACKETS = module(
    """mul.wide.u32 %d1, %lane, 8; setp.eq.u32 %p1, %rank, 1; @%p1 bra WAIT;
    add.u64 %d2, %mail, %d1; add.u32 %r1, %lane, 70; mov.u32 %r2, 1; st.volatile.global.v2.u32 [%d2], {%r1, %r2}; ret;
    WAIT: add.u64 %d2, %mail, %d1; ld.volatile.global.v2.u32 {%r3, %r4}, [%d2]; setp.ne.u32 %p2, %r4, 1; @%p2 bra WAIT;
    mad.lo.u64 %d3, %lane64, 4, %out; st.global.u32 [%d3], %r3;""",
    ["u64 mail", "u64 out", "u32 rank"],
)
"""An LL protocol: 4 bytes of data and 4 of flag in one store."""
HOW = {
    "ranks": 2, "grid": 1, "block": 64, "arguments": [("peer", "mail", 1), "out", ("u32", "rank")],
    "buffers": {"mail": ((128,), "int32", 0), "out": ((64,), "int32", 0)},
}  # fmt: skip
EXPECTED = {"out": [torch.zeros(64, dtype=torch.int32), torch.arange(70, 134, dtype=torch.int32)]}


@needs("checks")
def test_packets_of_eight_bytes_are_no_race():
    for assumptions in ([], ["vector_8"]):
        done = symlab.simulate(PACKETS, schedule="fair", races=True, assumptions=assumptions, **HOW)
        assert done.findings == ()


@needs("checks")
@pytest.mark.parametrize("memory", ["strong", "weak"])
def test_an_exploration_keeps_vectors_whole_that_are_said_to_be(memory):
    how = {**HOW, "expected": EXPECTED, "seeds": 40, "shrink_s": 1, "processes": 1, "memory": memory}
    torn = symlab.explore(PACKETS, **how)
    if memory == "strong":
        assert "vector_8 or vector_16 excludes that" in torn.found.text()
    assert symlab.explore(PACKETS, **how, assumptions=["vector_8"]).found is None


ARRIVALS = module("atom.global.add.u32 %r1, [%counter], 1; st.global.u32 [%out], %r1;", ["u64 counter", "u64 out"])


@pytest.mark.parametrize("assumptions", [[], ["gpu_atomics"]])
def test_weak_memory_counts_arrivals_of_all_gpus_where_atomics_are_of_all(assumptions):
    """atom without a scope has .gpu."""
    how = {"ranks": 4, "grid": 1, "block": 1, "memory": "weak", "seeds": 10, "assumptions": assumptions}
    buffers = {"counter": (1, "int32", 0), "out": (1, "int32")}
    done = symlab.simulate(ARRIVALS, buffers=buffers, arguments=[("peer", "counter", 0), "out"], **how)
    seen = [sorted(int(out) for out in run.outputs["out"]) for run in done.runs]
    assert all(one == [0, 1, 2, 3] for one in seen) == bool(assumptions)


@needs("checks")
def test_a_world_takes_them_too():
    with symlab.world(ranks=2, races=True) as world:
        how = {name: value for name, value in HOW.items() if name != "ranks"}
        assert world.launch(PACKETS, assumptions=["vector_8"], **how).findings == ()


@pytest.mark.parametrize("given", [["luck"], "vector_8", 8])
def test_others_are_refused(given):
    with refused():
        symlab.simulate(PACKETS, assumptions=given, **HOW)


def test_a_description_has_them_beside_the_launch():
    assert _launch({"grid": 1, "block": 64, "assumptions": ["vector_8"]}, is_function=False) == (
        Launch(1, 64),
        {"assumptions": ("vector_8",), "stream": None},
    )
    with refused(RequestError):
        _launch({"grid": 1, "block": 64, "assumptions": ["luck"]}, is_function=False)
