"""Copies to other blocks of a cluster: when they take place, whom they wake, what they count as, and what is wrong."""

import numpy as np
import pytest

from memory.fabric import Deadlock, DeviceFault
from simulator.observe.events import Listener
from tests.golden import same_text
from tests.simulator.harness import executable, in_orders, launching, make_world, module, ran, succeed

schedules = in_orders(6)
SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
COUNTED = "mbarrier::complete_tx::bytes"
SHARED = ".shared .align 16 .b8 stage[256]; .shared .align 8 .b64 bar; .reg .b32 %me; mov.u32 %me, %cluster_ctarank;"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0; @!%p3 bra AGAIN;"
INIT = f"setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 1; {SYNC}"


class Watch(Listener):
    """Keeps events of copies and of mbarriers."""

    def __init__(self):
        self.copies = []
        self.mbarriers = []

    def copy(self, event):
        self.copies.append(event)

    def mbarrier(self, event):
        self.mbarriers.append(event)


def watched(body, grid, block, cluster, **options):
    """What each thread stores as %r2, with %in as 4 KiB of numbers from 0 on."""
    text = f"{SHARED} {body} mad.lo.u64 %d1, %lane64, 4, %out; st.global.b32 [%d1], %r2; {SYNC}"
    code = executable(module(text, ["u64 in", "u64 out"]))
    world, watch = make_world(1, **options), Watch()
    world.space.events.add(watch)

    program = launching(
        code, grid, block, [np.arange(1024, dtype=np.uint32), np.full(grid * block, 99, np.uint32)], cluster=cluster
    )

    return succeed(world, program).results[0], world, watch


def failed(body):
    """The fault or deadlock of two blocks of a thread each, in one cluster."""
    error = ran(f"{SHARED} {body}", {"in": np.arange(256, dtype=np.uint32)}, 2, cluster=2).error()
    assert isinstance(error, DeviceFault | Deadlock)
    return f"{type(error).__name__}: {error}"


MULTICAST = f"""
  {INIT} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64; setp.eq.and.u32 %p2, %me, 0, %p1;
  mov.u32 %r3, stage; mov.u32 %r4, bar; mov.u16 %h1, MASK; {SYNC}
  mul.wide.u32 %d2, %block, 64; add.u64 %d2, %d2, %in;
  @%p2 cp.async.bulk.shared::cluster.global.{COUNTED}.multicast::cluster [%r3], [%d2], 64, [%r4], %h1;
  """
READ = "shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r3; ld.shared.u32 %r2, [%r5];"


@schedules
def test_one_block_reads_for_all_of_its_cluster(options):
    """The first block of each cluster of four copies 64 bytes to all of them."""
    found, world, watch = watched(MULTICAST.replace("MASK", "15") + WAIT + READ, 8, 16, 4, **options)
    assert found == [64 * cluster + word for cluster in range(2) for _ in range(4) for word in range(16)]
    assert world.counters()["accesses"]["own_read"] == {"count": 2, "bytes": 128}, (
        "global memory is read once a cluster"
    )
    moments = [(one.moment, one.blocks.tolist(), one.target_blocks) for one in watch.copies]
    issued = sorted(one for one in moments if one[0] == "issued")
    assert issued == [("issued", [0], (0, 1, 2, 3)), ("issued", [4], (4, 5, 6, 7))]
    assert sorted(one for one in moments if one[0] == "written") == [
        ("written", [block // 4 * 4], (block,)) for block in range(8)
    ]
    done = [one for one in watch.mbarriers if one.operation == "complete_tx"]
    assert sorted(int(one.target_blocks[0]) for one in done if one.target_blocks is not None) == list(range(8))
    assert {int(one.addresses[0]) for one in done} == {256}


@schedules
def test_a_mask_chooses_the_blocks(options):
    """Blocks 1 and 3 of the cluster get the data; the others never wait."""
    body = (
        MULTICAST.replace("MASK", "10") + "mov.u32 %r2, 7; and.b32 %r6, %me, 1; setp.eq.u32 %p4, %r6, 0; @%p4 bra END;"
    )
    found, _, _ = watched(f"{body} {WAIT} {READ} END:", 4, 16, 4, **options)
    words = list(range(16))
    assert found == [7] * 16 + words + [7] * 16 + words


def test_blocks_get_a_multicast_at_moments_of_their_own():
    """One block has the data while another has not."""
    orders = set()
    for seed in range(12):
        _, _, watch = watched(MULTICAST.replace("MASK", "3") + WAIT + READ, 2, 16, 2, schedule="random", seed=seed)
        orders.add(tuple(one.target_blocks for one in watch.copies if one.moment == "written"))
    assert orders == {((0,), (1,)), ((1,), (0,))}


SEND = f"""
  {INIT} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4; xor.b32 %r6, %me, 1; add.u32 %r7, %block, 50;
  mapa.shared::cluster.u32 %r3, stage, %r6; mapa.shared::cluster.u32 %r4, bar, %r6; st.shared.u32 [stage], 3; {SYNC}
"""
ASYNC = f"@%p1 st.async.shared::cluster.{COUNTED}.u32 [%r3], %r7, [%r4];"
REDUCE = f"@%p1 red.async.relaxed.cluster.shared::cluster.{COUNTED}.add.u32 [%r3], %r7, [%r4];"


@schedules
def test_stores_and_reductions_arrive_with_their_bytes(options):
    for send, add in ((ASYNC, 0), (REDUCE, 3)):
        found, _, watch = watched(f"{SEND} {send} {WAIT} ld.shared.u32 %r2, [stage];", 4, 32, 2, **options)
        assert found == [50 + (block ^ 1) + add for block in range(4) for _ in range(32)]
        first, second, *_ = (one for one in watch.copies if one.blocks.tolist() == [0])
        assert (first.moment, second.moment) == ("issued", "read")
        assert (first.source, first.destination, first.target_blocks) == (("register", -1), ("shared", 0), (1,))
        assert (first.size_bytes, first.mbarrier, first.reduction) == (4, 256, "add" if add else "")


def test_a_store_is_not_there_before_its_wait():
    """Without the wait some seed finds the old value, another the new one."""
    found = set()
    for seed in range(16):
        values, _, _ = watched(
            f"{SEND} {ASYNC} ld.shared.u32 %r2, [stage]; {WAIT}", 2, 1, 2, schedule="random", seed=seed
        )
        found |= {"old" if value == 3 else "new" for value in values}
    assert found == {"old", "new"}


@schedules
def test_remote_arrivals_let_a_block_go_on(options):
    """Each block waits for one arrival of every thread of the three others."""
    body = f"""
      setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 96; st.shared.u32 [stage], 0; {SYNC} mov.u32 %r6, 1;
      NEXT: add.u32 %r7, %me, %r6; and.b32 %r7, %r7, 3; mapa.shared::cluster.u32 %r3, stage, %r7; mapa.shared::cluster.u32 %r4, bar, %r7;
      red.relaxed.cluster.shared::cluster.add.u32 [%r3], 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
      add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 4; @%p2 bra NEXT; {WAIT} ld.shared.u32 %r2, [stage];
    """
    found, _, watch = watched(body, 4, 32, 4, **options)
    assert found == [96] * 128
    owners = [one.target_blocks for one in watch.mbarriers if one.operation == "arrive"]
    assert all(one is not None for one in owners)
    assert sorted(int(block) for one in owners if one is not None for block in one) == sorted(list(range(4)) * 96)


def test_a_deadlock_says_what_an_mbarrier_waits_for():
    said = failed(f"{INIT} {WAIT}")
    assert said.startswith("Deadlock")
    same_text(said)


COPY = f"cp.async.bulk.shared::cluster.shared::cta.{COUNTED}"
FILLED = "st.shared.v4.b32 [stage], {%r0, %r0, %r0, %r0};"


@pytest.mark.parametrize(
    "body",
    [
        f"{INIT} {SYNC} mapa.shared::cluster.u32 %r3, stage, 1; mapa.shared::cluster.u32 %r4, bar, 0; mov.u32 %r5, stage; "
        f"{FILLED} {COPY} [%r3], [%r5], 16, [%r4]; {SYNC}",
        f"{INIT} mapa.shared::cluster.u32 %r3, stage, 1; mapa.shared::cluster.u32 %r4, bar, 0; "
        f"st.async.shared::cluster.{COUNTED}.u32 [%r3], %r0, [%r4]; {SYNC}",
        f"{INIT} mapa.shared::cluster.u32 %r3, stage, 1; mapa.shared::cluster.u32 %r4, stage, 1; "
        f"st.async.shared::cluster.{COUNTED}.u32 [%r3], %r0, [%r4]; {SYNC}",
        "mapa.shared::cluster.u32 %r3, stage, 1; mapa.shared::cluster.u32 %r4, bar, 1; "  # no instruction of mbarriers
        f"st.async.shared::cluster.{COUNTED}.u32 [%r3], %r0, [%r4]; {SYNC}",
        f"{MULTICAST.replace('MASK', '5')} {SYNC}",
        f"{INIT} mapa.shared::cluster.u32 %r4, bar, 1; mbarrier.arrive.shared::cluster.b64 _, [%r4+8]; {SYNC}",
        f"{INIT} mapa.shared::cluster.u32 %r4, bar, 1; mbarrier.arrive.shared.b64 _, [%r4]; {SYNC}",
    ],
    ids=["copy_mbarrier", "store_mbarrier", "no_mbarrier", "none_in_the_kernel", "mask", "outside", "own"],
)
def test_what_is_wrong_with_a_copy_to_the_cluster(body):
    same_text(failed(body))


def test_a_block_that_ends_before_its_copy_has_come():
    """Block 0 sends to block 1, which does not wait for it."""
    body = f"{SEND} setp.eq.and.u32 %p4, %me, 0, %p1; @%p4 st.async.shared::cluster.{COUNTED}.u32 [%r3], %r7, [%r4]; {SYNC}"
    said = failed(body)
    same_text(said)
    sent = f"{INIT} {FILLED} mapa.shared::cluster.u32 %r3, stage, 1; mapa.shared::cluster.u32 %r4, bar, 1; mov.u32 %r5, stage;"
    said = failed(f"{sent} setp.eq.u32 %p4, %me, 0; @%p4 {COPY} [%r3], [%r5], 16, [%r4]; {SYNC}")
    same_text(said)
