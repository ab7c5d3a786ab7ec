"""mbarrier objects: phases of arrivals and bytes, and what a deadlock says of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from simulator_harness import executable, make_world, module, run, start

from memory.fabric import Deadlock
from simulator.fabric import SimulatorFabric
from simulator.run.mbarriers import MAX_COUNT, MBarrier, MisusedBarrier


def test_a_phase_is_over_with_its_last_arrival() -> None:
    barrier = MBarrier(3)
    barrier.arrive(2)
    assert (barrier.phase, barrier.pending) == (0, 1)
    barrier.arrive(1)
    assert (barrier.phase, barrier.pending) == (1, 3)


def test_bytes_hold_a_phase_open() -> None:
    barrier = MBarrier(1)
    barrier.expect(96)
    barrier.arrive(1)
    assert (barrier.phase, barrier.bytes_due) == (0, 96)
    barrier.complete(64)
    assert barrier.phase == 0
    barrier.complete(32)
    assert (barrier.phase, barrier.pending, barrier.bytes_due) == (1, 1, 0)


def test_bytes_may_come_before_they_are_announced() -> None:
    barrier = MBarrier(1)
    barrier.complete(32)
    assert (barrier.phase, barrier.bytes_due) == (0, -32)
    barrier.expect(32)
    assert barrier.phase == 0
    barrier.arrive(1)
    assert barrier.phase == 1


def test_too_many_arrivals_and_bytes_are_refused() -> None:
    barrier = MBarrier(2)
    with pytest.raises(MisusedBarrier, match="3 arrivals where an mbarrier in phase 0 .2 of 2 arrivals .* waits for 2"):
        barrier.arrive(3)
    barrier.expect(MAX_COUNT)
    with pytest.raises(MisusedBarrier, match="left the range"):
        barrier.expect(1)


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
@pytest.mark.parametrize("waiters", [1, 5])
def test_a_deadlock_names_the_mbarrier_and_what_it_lacks(options: dict[str, Any], waiters: int) -> None:
    """4096 bytes are announced, and only 1024 are copied."""
    body = f"""
      .shared .align 16 .b8 stage[4096];  .shared .align 8 .b8 bar[8];
      mov.u32 %r1, %tid.x; setp.ne.u32 %p2, %r1, 0; @%p2 bra READY;
      mbarrier.init.shared::cta.b64 [bar], 1;
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
      cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [stage], [%src], 1024, [bar];
      READY: bar.sync 0; setp.ge.u32 %p2, %r1, {waiters}; @%p2 ret;
      SPIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra SPIN;
    """
    ptx = module(body, ["u64 src"])

    def program(fabric: SimulatorFabric) -> None:
        source = fabric.allocate(4096, 256, "src")
        fabric.view(source).zero_()
        start(fabric, executable(ptx), 1, 8, [source.address])
        fabric.synchronize()

    outcome = run(make_world(1, **options), program)
    error = outcome.errors[0]
    assert isinstance(error, Deadlock)
    for thread in range(waiters):
        assert re.search(
            rf"rank 0, block 0, thread {thread} spins: waits for an mbarrier in phase 0 "
            r"\(0 of 1 arrivals and 3072 bytes to come\) at byte 0x1000 of shared memory; "
            r"PTX line \d+: mbarrier.try_wait.parity.shared::cta.b64",
            str(error),
        ), error
