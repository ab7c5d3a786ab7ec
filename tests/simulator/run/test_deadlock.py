"""Deadlocks: found at once, never waited for, and told so that one sees who waits for what."""

import re

import numpy as np
import pytest

from memory.fabric import Deadlock, PeerLost
from tests.golden import same_text
from tests.patience import PATIENCE_S
from tests.simulator.harness import PEER, executable, launching, make_world, module, put, ran, run, start

FILES = '.file 1 "kernels/example.py"\n'
WAIT = """
  .loc 1 55 3
  SPIN: ld.acquire.sys.global.b32 %r1, [%flag+4];
  setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;
"""
ZEROS = np.zeros(2, np.uint32)


def deadlock(outcome):
    assert outcome.wall_s < PATIENCE_S
    assert all(isinstance(one, Deadlock) for one in outcome.errors), outcome.errors
    return re.sub(r"after \d+ steps", "after some steps", str(outcome.errors[0]))


KERNELS = {
    "a missing signal": (
        f"setp.ne.u32 %p2, %lane, 37; @%p2 ret; {WAIT}", 2, 32, 2, np.array([1, 5], np.uint32),
    ),
    "a loop that has a part behind all other code": (
        "ld.acquire.sys.global.b32 %r1, [%flag];\nSPIN: setp.ne.u32 %p1, %r1, 7; @%p1 bra AGAIN;\n"
        "st.global.b32 [%flag+4], %r1; ret;\nAGAIN: ld.acquire.sys.global.b32 %r1, [%flag]; bra.uni SPIN;",
        2, 32, 2, np.array([5, 0], np.uint32),
    ),
    "an endless loop with a load that it never comes to": (
        "mov.u32 %r2, 0;\nLOOP: setp.ne.u32 %p1, %r2, 0;\n@!%p1 bra AGAIN;\nld.global.b32 %r1, [%flag];\nAGAIN: bra LOOP;",
        1, 2, 1, np.array([5], np.uint32),
    ),
    "an atomic spin": (
        "SPIN: atom.acquire.sys.global.cas.b32 %r1, [%flag], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra SPIN;",
        1, 4, 1, np.array([1], np.uint32),
    ),
    "a spin on shared memory": (
        ".shared .b32 go; st.shared.u32 [go], 0; SPIN: ld.shared.u32 %r1, [go]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;",
        1, 4, 1, ZEROS,
    ),
    "threads that never come to a barrier": (
        f"mov.u32 %r2, %tid.x; setp.lt.u32 %p2, %r2, 3; @%p2 bra SPIN; bar.sync 0; st.global.b32 [%flag+4], 7; ret; {WAIT}",
        2, 64, 1, ZEROS,
    ),
    "threads that never come to their warp's barrier": (
        f"mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 40; @%p2 bra SPIN; bar.warp.sync -1; ret; {WAIT}", 2, 64, 1, ZEROS,
    ),
    "many waiters, in a few lines": (WAIT, 10, 1024, 4, ZEROS),
}  # fmt: skip
"""What each rank runs: body, blocks, threads of a block, ranks, and what %flag holds."""


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
class TestDeadlocks:
    @pytest.mark.parametrize("name", KERNELS)
    def test_a_kernel(self, name, options):
        body, grid, block, world_size, flag = KERNELS[name]
        same_text(deadlock(ran(body, {"flag": flag}, grid, block, world_size, FILES, **options)))

    def test_a_flag_of_a_peer_and_of_64_bits(self, options):
        body = "SPIN: ld.volatile.global.b64 %d1, [%far]; setp.ne.u64 %p1, %d1, 7; @%p1 bra SPIN;"
        values = {"flags": np.array([1 << 40], np.uint64), "far": PEER}
        same_text(deadlock(ran(body, values, ranks=2, **options)))

    def test_a_spin_through_the_switch(self, options):
        body = (
            "SPIN: multimem.ld_reduce.acquire.sys.global.add.u32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;"
        )

        def program(fabric):
            flags = put(fabric, "flags", np.ones(1, np.uint32))
            start(fabric, executable(module(body, ["u64 flag"])), 1, 1, [fabric.multicast_address(flags)])
            fabric.synchronize()

        same_text(deadlock(run(make_world(2, **options), program)))

    @pytest.mark.parametrize(("failure", "kind"), [(None, Deadlock), (RuntimeError("out of luck"), PeerLost)])
    def test_a_rank_that_left_or_failed(self, failure, kind, options):
        waits = launching(module(WAIT, ["u64 flag"], before=FILES), 1, 1, [ZEROS])

        def goes(fabric):
            put(fabric, "flag", ZEROS)
            if failure is not None:
                raise failure

        error = run(make_world(2, **options), waits, goes).errors[0]
        assert isinstance(error, kind)
        same_text(str(error), r"\d+ steps")
