"""Meetings of some lanes of a warp, and of some threads of a block: who is waited for, and who hangs."""

import pytest

from tests.golden import same_text
from tests.simulator.harness import failed, in_orders, stored

schedules = in_orders(6)


@schedules
def test_lanes_that_come_from_different_ways_meet(options):
    """Each lane loops as often as its number says before it comes."""
    body = """
      mov.u32 %r3, %laneid; mov.u32 %r4, 0; LOOP: add.u32 %r4, %r4, 5; sub.s32 %r3, %r3, 1; setp.ge.s32 %p1, %r3, 0; @%p1 bra LOOP;
      shfl.sync.down.b32 %r2, %r4, 1, 31, -1;
    """
    assert stored(body, **options) == [5 * min(lane % 32 + 2, 32) for lane in range(128)]


@schedules
def test_parts_of_a_warp_meet_apart(options):
    """Both halves are at one instruction with masks of their own; one of them is late."""
    body = """
      mov.u32 %r3, %laneid; setp.lt.u32 %p1, %r3, 16; selp.b32 %r4, 0xffff, 0xffff0000, %p1; mov.u32 %r5, 9;
      @%p1 bra ON; LATE: sub.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LATE; ON:
      redux.sync.add.u32 %r2, %r3, %r4; match.any.sync.b32 %r6, %r3, %r4; popc.b32 %r6, %r6; add.u32 %r2, %r2, %r6;
    """
    expected = [sum(range(16)) + 1] * 16 + [sum(range(16, 32)) + 1] * 16
    assert stored(body, **options) == expected * 4


@schedules
def test_lanes_that_have_returned_are_not_waited_for(options):
    body = "mov.u32 %r3, %laneid; setp.gt.u32 %p1, %r3, 20; @%p1 ret; vote.sync.ballot.b32 %r2, !%p1, -1; bar.warp.sync 0x1fffff;"
    assert stored(body, **options) == [(1 << 21) - 1 if lane % 32 <= 20 else 99 for lane in range(128)]


def test_a_short_last_warp():
    body = "vote.sync.ballot.b32 %r2, %p1, -1; redux.sync.add.u32 %r2, 1, -1;"
    assert stored(body, grid=2, block=40) == ([32] * 32 + [8] * 8) * 2


def test_a_shuffle_from_a_lane_that_takes_no_part_gives_poison():
    body = (
        "mov.u32 %r2, 5; mov.u32 %r3, %laneid; setp.lt.u32 %p1, %r3, 8; @%p1 shfl.sync.down.b32 %r2, %r3, 4, 31, 0xff;"
    )
    assert stored(body, grid=1, block=32) == [4, 5, 6, 7, *[0xFFFFFFFF] * 4, *[5] * 24]


def test_a_lane_that_never_comes_is_named():
    said = failed(
        "mov.u32 %r3, %laneid; setp.eq.u32 %p1, %r3, 7; @%p1 bar.sync 0; shfl.sync.idx.b32 %r2, %r3, 0, 31, -1;",
        block=32,
    )
    assert said.startswith("Deadlock")
    same_text(said)


def test_a_lane_outside_its_own_mask_is_a_fault():
    same_text(failed("shfl.sync.idx.b32 %r2, %lane, 0, 31, 0xffff;", block=32))


RING = """
  .shared .align 4 .b8 box[128];
  mov.u32 %r1, %tid.x; mov.u32 %r3, box; and.b32 %r4, %r1, 31; shl.b32 %r4, %r4, 2; add.u32 %r3, %r3, %r4; mov.u32 %r2, 0;
  setp.lt.u32 %p1, %r1, 32; mov.u32 %r5, 0;
  NEXT: @!%p1 bra READ;
    bar.sync 2, 64; add.u32 %r6, %r5, %r1; st.shared.u32 [%r3], %r6; bar.arrive 1, 64; bra ON;
  READ: bar.arrive 2, 64; bar.sync 1, 64; ld.shared.u32 %r6, [%r3]; add.u32 %r2, %r2, %r6;
  ON: add.u32 %r5, %r5, 100; setp.lt.u32 %p2, %r5, 500; @%p2 bra NEXT;
"""


@schedules
def test_producers_and_consumers_meet_at_two_barriers(options):
    assert stored(RING, **options) == ([0] * 32 + [1000 + 5 * lane for lane in range(32)]) * 2


@schedules
def test_reductions_over_some_threads_of_a_block(options):
    body = """
      mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 64; and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 1; @!%p1 bra REST;
      bar.red.popc.u32 %r2, 4, 64, %p2; bra ON;
      REST: bar.red.and.pred %p3, 5, 32, %p2; selp.b32 %r2, 7, 8, %p3; bar.red.or.pred %p3, 5, 32, %p2; selp.b32 %r4, 10, 20, %p3; add.u32 %r2, %r2, %r4;
      ON: bar.red.popc.u32 %r5, 0, !%p1; add.u32 %r2, %r2, %r5;
    """
    assert stored(body, grid=2, block=96, **options) == ([64] * 64 + [50] * 32) * 2


@pytest.mark.parametrize(
    "body",
    [
        "bar.sync 16;",
        "bar.sync 1, 33;",
        "setp.lt.u32 %p1, %lane, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, 96;",
        "bar.sync 1, 32;",
    ],
)
def test_wrong_numbers_of_barriers_and_threads(body):
    found = failed(body)
    assert found.startswith("DeviceFault")
    same_text(found)


@schedules
def test_bar_sync_waits_for_no_thread_of_the_block_that_has_returned(options):
    """Half of the first warp passes the barrier by and ends, as does the whole second one: hardware waits for neither
    (PTX ISA, barrier and exit)."""
    body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 16; mov.u32 %r2, 5; @%p1 bra ON; bar.sync 0; mov.u32 %r2, 6; ON:"
    assert stored(body, grid=2, block=64, **options) == ([6] * 16 + [5] * 48) * 2


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "bar.sync 1, 64;", "bar.sync 1, 32;"])
def test_a_warp_has_come_to_a_barrier_with_all_of_its_threads_that_have_not_returned(barrier):
    """The upper halves of warps wait for what the lower ones do behind the barrier: on hardware they hang."""
    body = f"""
      .shared .align 4 .b32 flag; mov.u32 %r1, %tid.x; and.b32 %r3, %r1, 31; setp.lt.u32 %p1, %r3, 16; mov.u32 %r2, 1;
      setp.eq.u32 %p2, %r1, 0; mov.u32 %r4, 0; @%p2 st.shared.u32 [flag], %r4; bar.sync 2; @!%p1 bra SPIN;
      {barrier} st.volatile.shared.u32 [flag], %r2; bra ON;
      SPIN: ld.volatile.shared.u32 %r4, [flag]; setp.eq.u32 %p3, %r4, 0; @%p3 bra SPIN; ON:
    """
    assert failed(body, block=64).startswith("Deadlock")
