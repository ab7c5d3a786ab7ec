"""A warp's access to a line of 128 bytes is whole where the kernel declares it; a warp that votes sleeps as a whole."""

import dataclasses

import numpy as np
import pytest

from memory.fabric import Deadlock
from tests.simulator.harness import executable, launching, make_world, module, put, ran, run, start, succeed

SEEDS = range(64)
LINE = 8
"""Lanes that share a line: 16 bytes each."""

# The first warp stores 16 bytes a lane, the second loads them and keeps their sum.
STORE_AND_LOAD = module(
    "and.b32 %r2, %lane, 31; cvt.u64.u32 %d1, %r2; mad.lo.u64 %d2, %d1, 16, %data;\n"
    "setp.ge.u32 %p1, %lane, 32; @%p1 bra LOAD;\n"
    "mov.u64 %d3, 1; st.global.v2.b64 [%d2], {%d3, %d3}; ret;\n"
    "LOAD: ld.volatile.global.v2.b64 {%d4, %d5}, [%d2]; add.u64 %d4, %d4, %d5;\n"
    "mad.lo.u64 %d6, %d1, 8, %sums; st.global.b64 [%d6], %d4;",
    ["u64 data", "u64 sums"],
)


def seen(assumptions, seed, threads=64):
    """What the second warp saw of each line."""
    kernel = dataclasses.replace(executable(STORE_AND_LOAD), assumptions=assumptions)

    world = make_world(schedule="random", seed=seed, granularity="access")
    program = launching(kernel, 1, threads, [np.zeros(64, np.uint64), np.zeros(32, np.uint64)])
    sums = np.array(run(world, program).right[0], "u4").view("u8")
    lanes = sums[: threads - 32]
    return [set(map(int, lanes[first : first + LINE])) for first in range(0, len(lanes), LINE)]


@pytest.mark.parametrize("threads", [64, 48], ids=["two warps", "a warp and a half"])
def test_a_line_is_stored_and_loaded_whole_where_that_is_declared(threads):
    lines = [line for seed in SEEDS for line in seen(("warp_128",), seed, threads)]
    assert {frozenset(line) for line in lines} == {frozenset({0}), frozenset({2})}


def test_a_line_comes_apart_where_that_is_not_declared():
    lines = [line for seed in SEEDS for line in seen((), seed)]
    assert any(len(line) > 1 for line in lines), "lanes of a line see different times"
    assert any(1 in line for line in lines), "so do the halves of a lane's 16 bytes"


FIVE = np.array([5], np.uint32)


def voting(counts):
    """A loop that loads a flag and ends when a lane of the warp has counted to 100, or when the flag is 7. counts: what
    each lane adds."""
    return (
        f"mov.u32 %r2, 0; setp.eq.u32 %p1, %lane, 0; {counts}\n"
        "SPIN: ld.volatile.global.b32 %r1, [%flag]; add.u32 %r2, %r2, %r3;\n"
        "setp.eq.u32 %p2, %r1, 7; setp.ge.u32 %p3, %r2, 100; or.pred %p2, %p2, %p3;\n"
        "vote.sync.any.pred %p4, %p2, 0xffffffff; @!%p4 bra SPIN;"
    )


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
class TestVotes:
    def test_lanes_whose_registers_stay_leave_by_anothers_vote(self, options):
        """One lane counts, the other 31 come back as they were; no memory changes."""
        assert ran(voting("selp.u32 %r3, 1, 0, %p1;"), {"flag": FIVE}, 1, 32, **options).right == [[5]]

    def test_a_warp_all_of_whose_lanes_stay_is_a_deadlock(self, options):
        error = ran(voting("mov.u32 %r3, 0;"), {"flag": FIVE}, 1, 64, **options).error()
        assert isinstance(error, Deadlock), error
        assert "spins: sees 5 at" in str(error)
        assert "tensor 'flag'" in str(error)

    def test_a_warp_that_sleeps_wakes_when_the_flag_comes(self, options):
        kernel = executable(module(voting("mov.u32 %r3, 0;"), ["u64 flag"]))
        signal = executable(module("mov.u32 %r1, 7; st.release.sys.global.b32 [%flag], %r1;", ["u64 flag"]))

        def program(fabric):
            flag = put(fabric, "flag", FIVE)
            fabric.barrier()
            if fabric.rank == 0:
                start(fabric, kernel, 1, 64, [flag.address])
            else:
                start(fabric, signal, 1, 1, [fabric.peer_address(flag, 0)])
            fabric.synchronize()
            fabric.barrier()

        succeed(make_world(2, **options), program)
