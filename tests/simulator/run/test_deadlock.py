"""Deadlocks: found at once, never waited for, and told so that one sees who waits for what."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from simulator_harness import Outcome, executable, launching, make_world, module, put, run, start

from memory.fabric import Deadlock, PeerLost
from simulator.fabric import SimulatorFabric
from tests.patience import PATIENCE_S

FILES = '.file 1 "kernels/example.py"\n'

WAIT = """
  .loc 1 55 3
  SPIN: ld.acquire.sys.global.b32 %r1, [%flag+4];
  setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;
"""


def deadlocked(*programs: Any, world_size: int = 1, **options: Any) -> tuple[str, Outcome]:
    outcome = run(make_world(world_size, **options), *programs)
    assert outcome.wall_s < PATIENCE_S
    assert all(isinstance(one, Deadlock) for one in outcome.errors), outcome.errors
    return str(outcome.errors[0]), outcome


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
class TestDeadlocks:
    def test_a_missing_signal(self, options: dict[str, Any]) -> None:
        ptx = module(f"setp.ne.u32 %p2, %lane, 37; @%p2 ret; {WAIT}", ["u64 flag"], before=FILES)

        text, _ = deadlocked(launching(ptx, 2, 32, [np.array([1, 5], np.uint32)]), world_size=2, **options)
        line = next(number for number, one in enumerate(ptx.splitlines(), 1) if "ld.acquire" in one)
        for rank in range(2):
            assert re.search(
                rf"rank {rank}, block 1, thread 5 spins: sees 5 at 0x[0-9a-f]+ \(rank {rank}'s heap \+ 0x[0-9a-f]+, "
                rf"byte 4 of tensor 'flag' of 8 bytes\); PTX line {line}: .*ld\.acquire\.sys\.global\.b32 .*kernels/example\.py:55",
                text,
            ), text

    def test_a_loop_that_has_a_part_behind_all_other_code(self, options: dict[str, Any]) -> None:
        """As compilers place it; what stands between stores."""
        ptx = module(
            "ld.acquire.sys.global.b32 %r1, [%flag];\n"
            "SPIN: setp.ne.u32 %p1, %r1, 7; @%p1 bra AGAIN;\n"
            "st.global.b32 [%flag+4], %r1; ret;\n"
            "AGAIN: ld.acquire.sys.global.b32 %r1, [%flag]; bra.uni SPIN;",
            ["u64 flag"],
        )

        text, _ = deadlocked(launching(ptx, 2, 32, [np.array([5, 0], np.uint32)]), world_size=2, **options)
        assert re.search(r"rank 0, block 0, thread 0 spins: sees 5 at 0x[0-9a-f]+ .*tensor 'flag'", text), text

    def test_an_endless_loop_with_a_load_that_it_never_comes_to(self, options: dict[str, Any]) -> None:
        """No flag is blamed that no thread looks at."""
        ptx = module(
            "mov.u32 %r2, 0;\n"
            "LOOP: setp.ne.u32 %p1, %r2, 0;\n"
            "@!%p1 bra AGAIN;\n"
            "ld.global.b32 %r1, [%flag];\n"
            "AGAIN: bra LOOP;",
            ["u64 flag"],
        )

        def program(fabric: SimulatorFabric) -> None:
            start(fabric, executable(ptx), 1, 2, [put(fabric, "flags", np.array([5], np.uint32)).address])
            fabric.synchronize()

        text, _ = deadlocked(program, **options)
        line = next(number for number, one in enumerate(ptx.splitlines(), 1) if one.startswith("LOOP"))
        said = f"thread 1 repeats a loop that reads no memory; PTX line {line}: setp.ne.u32"
        assert said in text
        assert "ld.global" not in text

    def test_a_flag_of_a_peer_and_of_64_bits(self, options: dict[str, Any]) -> None:
        ptx = module("SPIN: ld.volatile.global.b64 %d1, [%flag]; setp.ne.u64 %p1, %d1, 7; @%p1 bra SPIN;", ["u64 flag"])

        def program(fabric: SimulatorFabric) -> None:
            flags = put(fabric, "flags", np.array([1 << 40], np.uint64))
            fabric.barrier()
            if fabric.rank == 1:
                start(fabric, executable(ptx), 1, 1, [fabric.peer_address(flags, 0)])
            fabric.synchronize()
            fabric.barrier()

        text, _outcome = deadlocked(program, world_size=2, **options)
        assert f"rank 1, block 0, thread 0 spins: sees {1 << 40} at" in text
        assert "rank 0's heap" in text
        assert "rank 0 waits on the host in 'barrier'" in text

    def test_an_atomic_spin(self, options: dict[str, Any]) -> None:
        ptx = module(
            "SPIN: atom.acquire.sys.global.cas.b32 %r1, [%flag], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra SPIN;",
            ["u64 flag"],
        )

        text, _ = deadlocked(launching(ptx, 1, 4, [np.array([1], np.uint32)]), **options)
        assert "sees 1 at" in text
        assert "tensor 'flag'" in text

    def test_a_spin_on_shared_memory(self, options: dict[str, Any]) -> None:
        body = ".shared .b32 go; st.shared.u32 [go], 0; SPIN: ld.shared.u32 %r1, [go]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;"
        ptx = module(body)

        text, _ = deadlocked(launching(ptx, 1, 4), **options)
        assert "rank 0, block 0, thread 0 spins" in text
        assert "ld.shared.u32 %r1, [go]" in text

    def test_a_spin_through_the_switch(self, options: dict[str, Any]) -> None:
        body = (
            "SPIN: multimem.ld_reduce.acquire.sys.global.add.u32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;"
        )
        ptx = module(body, ["u64 flag"])

        def program(fabric: SimulatorFabric) -> None:
            flags = put(fabric, "flags", np.ones(1, np.uint32))
            start(fabric, executable(ptx), 1, 1, [fabric.multicast_address(flags)])
            fabric.synchronize()

        text, _ = deadlocked(program, world_size=2, **options)
        assert "rank 1, block 0, thread 0 spins: PTX line" in text
        assert "multimem.ld_reduce.acquire.sys.global.add.u32 %r1, [%flag]" in text

    def test_threads_that_never_come_to_a_barrier(self, options: dict[str, Any]) -> None:
        """They spin for what comes after the barrier."""
        body = f"mov.u32 %r2, %tid.x; setp.lt.u32 %p2, %r2, 3; @%p2 bra SPIN; bar.sync 0; st.global.b32 [%flag+4], 7; ret; {WAIT}"
        ptx = module(body, ["u64 flag"], before=FILES)

        text, _ = deadlocked(launching(ptx, 2, 64, [np.zeros(2, np.uint32)]), **options)
        for block in range(2):
            assert f"rank 0, block {block}: 61 of 64 threads wait at PTX line" in text
        assert re.search(r"block [01], thread [012] spins: sees 0 at", text)

    def test_threads_that_never_come_to_their_warps_barrier(self, options: dict[str, Any]) -> None:
        body = f"mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 40; @%p2 bra SPIN; bar.warp.sync -1; ret; {WAIT}"
        ptx = module(body, ["u64 flag"], before=FILES)

        text, _ = deadlocked(launching(ptx, 2, 64, [np.zeros(2, np.uint32)]), **options)
        for block in range(2):
            assert f"rank 0, block {block}, warp 1: 31 of 32 threads wait at PTX line" in text
        assert "warp 0" not in text

    def test_two_ranks_that_wait_for_each_other(self, options: dict[str, Any]) -> None:
        ptx = module(f"{WAIT} st.release.sys.global.b32 [%peer+4], 7;", ["u64 flag", "u64 peer"], before=FILES)

        def program(fabric: SimulatorFabric) -> None:
            flags = put(fabric, "flags", np.zeros(2, np.uint32))
            peer = fabric.peer_address(flags, 1 - fabric.rank)
            start(fabric, executable(ptx), 1, 1, [flags.address, peer])
            fabric.synchronize()

        text, _ = deadlocked(program, world_size=2, **options)
        assert "rank 0, block 0, thread 0 spins" in text
        assert "rank 1, block 0, thread 0 spins" in text

    def test_many_waiters_are_a_few_lines(self, options: dict[str, Any]) -> None:
        ptx = module(WAIT, ["u64 flag"], before=FILES)

        text, _ = deadlocked(launching(ptx, 10, 1024, [np.zeros(2, np.uint32)]), world_size=4, **options)
        assert len(text.splitlines()) < 14
        assert all(f"rank {rank}, block" in text for rank in range(4))
        assert "40952 more threads" in text

    def test_a_rank_that_left_and_one_that_failed(self, options: dict[str, Any]) -> None:
        ptx = module(WAIT, ["u64 flag"], before=FILES)

        def waits(fabric: SimulatorFabric) -> None:
            flags = put(fabric, "flags", np.zeros(2, np.uint32))
            start(fabric, executable(ptx), 1, 1, [flags.address])
            fabric.synchronize()

        def leaves(fabric: SimulatorFabric) -> None:
            put(fabric, "flags", np.zeros(2, np.uint32))

        def fails(fabric: SimulatorFabric) -> None:
            put(fabric, "flags", np.zeros(2, np.uint32))
            raise RuntimeError("out of luck")

        outcome = run(make_world(2, **options), waits, leaves)
        assert isinstance(outcome.errors[0], Deadlock)
        assert "rank 1 has left" in str(outcome.errors[0])
        outcome = run(make_world(2, **options), waits, fails)
        assert isinstance(outcome.errors[0], PeerLost)
        assert "rank 1 failed: RuntimeError: out of luck" in str(outcome.errors[0])
