"""What looks like a deadlock and is none: bounded spins, data loops, slow senders, hosts that write."""

import random

import numpy as np
import pytest
import torch

from tests.simulator.harness import executable, make_world, module, put, ran, start, succeed
from tests.simulator.run.test_deadlock import FILES, WAIT


def left(body, grid=1, block=1):
    """What a body leaves in the second word of %flag, of which both words are 0."""
    return int(ran(body, {"flag": np.zeros(2, np.uint32)}, grid, block).right[0][1])


class TestFalseAlarms:
    """Loops that load and end by themselves must end, however often their loads see the same."""

    @pytest.mark.parametrize("polls", [5, 100, 5000])
    def test_a_bounded_spin(self, polls):
        body = f"""mov.u32 %r2, 0; SPIN: ld.volatile.global.b32 %r1, [%flag]; add.u32 %r2, %r2, 1;
            setp.eq.u32 %p1, %r1, 1; @%p1 bra OUT; setp.lt.u32 %p1, %r2, {polls}; @%p1 bra SPIN;
            OUT: st.global.b32 [%flag+4], %r2;"""
        assert left(body) == polls

    def test_only_some_lanes_stay(self):
        """Neighbours in one loop: some wait for ever changing data, one for a flag that the slowest of them sets."""
        body = """mov.u32 %r2, 0; mul.lo.u32 %r3, %lane, 40;
            SPIN: ld.volatile.global.b32 %r1, [%flag]; setp.eq.u32 %p2, %lane, 0; @%p2 bra FIRST;
            add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r3; @%p1 bra SPIN;
            setp.ne.u32 %p1, %lane, 31; @%p1 ret; st.global.b32 [%flag], 1; ret;
            FIRST: setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN; st.global.b32 [%flag+4], 11;"""
        assert left(body, block=32) == 11

    def test_a_state_that_lives_in_predicates(self):
        """The loop's only state is one predicate that flips, and a counter hidden in its sister's lanes."""
        body = """mov.u32 %r2, 0; mov.pred %p3, 0; mov.pred %p4, 0;
            SPIN: ld.volatile.global.b32 %r1, [%flag];
            @%p3 bra A; mov.pred %p3, 1; bra SPIN;
            A: @%p4 bra B; mov.pred %p3, 0; mov.pred %p4, 1; bra SPIN;
            B: st.global.b32 [%flag+4], 12;"""
        assert left(body, 30, 64) == 12  # patience runs out over many lanes

    def test_a_constant_table_read_over_and_over(self):
        """300 loads that all see zero; only a counter kept in 64 bits' upper half moves."""
        body = """mov.u64 %d2, 0;
            LOOP: ld.global.b32 %r1, [%flag]; add.s64 %d2, %d2, 4294967296; shr.u64 %d3, %d2, 32;
            setp.lt.u64 %p1, %d3, 300; @%p1 bra LOOP; cvt.u32.u64 %r2, %d3; st.global.b32 [%flag+4], %r2;"""
        assert left(body) == 300

    def test_a_flag_the_host_sets_through_its_view(self):
        """The kernel sleeps in its spin while the hosts meet at a barrier; then the host writes."""
        ptx = module(WAIT, ["u64 flag"], before=FILES)

        def program(fabric):
            flag = put(fabric, "flag", np.zeros(2, np.uint32))
            memory = fabric.view(flag).view(torch.int32)
            start(fabric, executable(ptx), 1, 8, [flag.address])
            fabric.barrier()
            memory[1] = 7
            fabric.synchronize()
            return True

        assert succeed(make_world(2), program).results == [True, True]

    @pytest.mark.parametrize("where", ["ranks", "blocks", "threads"])
    def test_a_slow_sender(self, where):
        """The sender counts to 3000 before it stores, long after the waiters have gone to sleep."""
        body = f"""
          {"setp.eq.u32 %p3, %rank, 1" if where == "ranks" else "setp.eq.u32 %p3, %block, 1" if where == "blocks" else "setp.eq.u32 %p3, %lane, 13"};
          @!%p3 bra SPIN; mov.u32 %r2, 0; WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3000; @%p1 bra WORK;
          st.release.sys.global.b32 [%far+4], 7; {"ret;" if where == "ranks" else ""}
          {WAIT}
        """
        ptx = module(body, ["u64 flag", "u64 far", "u32 rank"], before=FILES)

        def program(fabric):
            flag = put(fabric, "flag", np.zeros(2, np.uint32))
            fabric.barrier()
            far = fabric.peer_address(flag, 0) if where == "ranks" else flag.address
            start(fabric, executable(ptx), 3, 32, [flag.address, far, fabric.rank])
            fabric.synchronize()
            return True

        for options in ({}, {"schedule": "random", "seed": 1}):
            assert all(succeed(make_world(2, **options), program).results)

    def test_random_loops(self):
        """Loops over loads with state in any mix of registers, of random lengths, beside Python."""
        for seed in range(12):
            rng = random.Random(seed)
            table = [rng.randrange(8) for _ in range(32)]
            stop, add, mask = rng.randrange(20, 150), rng.choice((0, 1, 3)), rng.choice((7, 15, 31))
            body = f"""mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, %lane;
                LOOP: and.b32 %r3, %r3, {mask}; mul.wide.u32 %d1, %r3, 4; add.s64 %d1, %d1, %table; ld.global.b32 %r4, [%d1];
                add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, {add}; add.u32 %r1, %r1, %r4; add.u32 %r2, %r2, 1;
                setp.lt.u32 %p1, %r2, {stop}; @%p1 bra LOOP;
                mad.lo.u64 %d2, %lane64, 4, %out; st.global.b32 [%d2], %r1;"""
            values = {"table": np.array(table, np.uint32), "out": np.zeros(16, np.uint32)}
            expected = []
            for lane in range(16):
                at, total = lane, 0
                for _ in range(stop):
                    at &= mask
                    total += table[at]
                    at += table[at] + add
                expected.append(total)
            assert ran(body, values, 1, 16).right == [expected], f"seed {seed}"
