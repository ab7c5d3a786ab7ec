"""The clock on small kernels whose critical path is known: what overlaps, what waits for what, and how it is counted."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simulator.clock.costs import KINDS, Costs
from tests.golden import refused
from tests.simulator.harness import executable, launching, make_world, module, put, start, succeed

COSTS = Costs(
    own_load=0.25,
    remote_load=1.0,
    own_atomic=3.0,
    remote_atomic=5.0,
    look=0.125,
    hop=0.5,
    own_hop=0.375,
    switch_load=7.0,
    switch_hop=9.0,
    fence=2.0,
    fence_after_stores=4.0,
    block_fence=0.0625,
    bulk_own_load=11.0,
    bulk_remote_load=13.0,
    bulk_store=17.0,
    bulk_read=6.0,
    lane_copy=19.0,
)
"""Sums of different steps are different."""
PARAMETERS = ["u64 mine", "u64 peer", "u64 flag", "u64 peer_flag", "u32 rank", "u64 all", "u64 all_flags"]
SHARED = (
    """  .shared .align 128 .b8 room[4096];\n  .shared .align 8 .b8 bar[16];\n  .reg .b64 %state; .reg .pred %q;\n"""
)


def profiles(body, world_size=2, grid=1, block=32, launches=1, waits=True, cluster=1, costs=COSTS, **how):
    """Launch a body on all ranks. mine and flag: 4 KiB of the own rank; peer and peer_flag: of the next one; all and
    all_flags: of all, by multicast. room, bar: shared memory. grid: of all ranks, or of each. waits: the hosts wait for the
    end of each launch, not of the last alone."""
    code = executable(module(body, PARAMETERS, registers=SHARED))
    world = make_world(world_size, clock=costs, **{"heap_bytes": 1 << 20, **how})

    def program(fabric):
        own = [put(fabric, name, np.zeros(1024, np.uint32)) for name in ("mine", "flag")]
        fabric.barrier()
        far = [fabric.peer_address(one, (fabric.rank + 1) % world_size) for one in own]
        values = [own[0].address, far[0], own[1].address, far[1], fabric.rank, *map(fabric.multicast_address, own)]
        blocks = grid[fabric.rank] if isinstance(grid, list) else grid
        for _ in range(launches):
            start(fabric, code, blocks, block, values, cluster=cluster)
            if waits:
                fabric.synchronize()
                fabric.barrier()
        fabric.synchronize()

    succeed(world, program)
    for one in world.profiles:
        assert one.path.total_us == pytest.approx(max(one.ends_us))
        weighed = sum(count * getattr(costs, kind) for kind, count in one.path.counts.items())
        assert weighed == pytest.approx(one.path.total_us)
        for before, after in pairwise(one.path.segments):
            assert before.to_us == after.from_us
    return world.profiles


def profile(body, **how):
    """The only launch of a body."""
    (found,) = profiles(body, **how)
    return found


def kinds(found):
    """The kinds of a path's steps, those that take no time left out."""
    return [one.kind for one in found.path.segments if one.to_us > one.from_us]


def places(found):
    """All steps of a path as kind@rank.block.warp; who waits comes behind whom it waited for."""
    return [f"{one.kind}@{one.rank}.{one.block}.{one.warp}" for one in found.path.segments]


LOAD_BULK = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [room+{at}], [{source}], 1024, [bar+{bar}];"
STORE_BULK = "cp.async.bulk.global.shared::cta.bulk_group [{target}], [room], 1024; cp.async.bulk.commit_group;"
WAIT_BULK = "W{bar}: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar+{bar}], 0; @!%q bra W{bar};"
INIT = "mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.init.shared::cta.b64 [bar+8], 1;"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar+{bar}], 1024;"
FILL = " ".join(f"st.shared.b32 [room+{at}], 0;" for at in range(0, 1024, 4))


def load_bulk(source, bar):
    """A bulk load of 1 KiB that counts at an mbarrier."""
    return EXPECT.format(bar=bar) + LOAD_BULK.format(at=128 * bar, source=source, bar=bar)


PATHS = """
two independent loads overlap: remote_load
  ld.global.u32 %r1, [%peer]; ld.global.u32 %r2, [%peer+64]; add.u32 %r3, %r1, %r2;
two dependent loads do not: remote_load own_load
  ld.global.u32 %r1, [%peer]; cvt.u64.u32 %d1, %r1; add.u64 %d2, %d1, %mine; ld.global.u32 %r2, [%d2]; add.u32 %r3, %r2, 1;
a dependence goes through arithmetic and guards: own_load remote_load
  ld.global.u32 %r1, [%mine]; setp.eq.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r2, [%peer]; add.u32 %r3, %r2, 1;
loads that a loop uses follow each other: remote_load remote_load remote_load
  LOOP ld.global.u32 %r1, [%peer]; add.u32 %r2, %r2, %r1; UNTIL 3
what a loop waits for, while a load before it is under way: own_load own_load own_load own_load own_load
  ld.global.u32 %r7, [%peer]; bra NEXT; NEXT: LOOP ld.global.u32 %r1, [%mine]; add.u32 %r2, %r2, %r1; UNTIL 5 add.u32 %r8, %r7, 1;
a load that takes longer than the loop after it: remote_load
  ld.global.u32 %r7, [%peer]; bra NEXT; NEXT: LOOP ld.global.u32 %r1, [%mine]; add.u32 %r2, %r2, %r1; UNTIL 2 add.u32 %r8, %r7, 1;
a load of the next round overlaps with this one, of whose value only the move waits: remote_load remote_load remote_load
  ld.global.u32 %r1, [%peer];
  LOOP add.u32 %r2, %r2, %r1; ld.global.u32 %r3, [%peer]; mov.u32 %r1, %r3; UNTIL 5
a release fences: fence_after_stores
  st.global.u32 [%peer], 1; st.release.sys.global.u32 [%peer_flag], 1;
a fence before a release counts once: fence_after_stores
  st.global.u32 [%peer], 1; fence.acq_rel.sys; st.release.sys.global.u32 [%peer_flag], 1;
a membar before a release counts once: fence_after_stores
  st.global.u32 [%peer], 1; membar.sys; st.release.sys.global.u32 [%peer_flag], 1;
two fences: fence fence
  fence.acq_rel.sys; st.global.u32 [%mine], 1; fence.acq_rel.sys;
stores before a fence are not outstanding after it: fence_after_stores fence
  st.global.u32 [%peer], 1; fence.acq_rel.sys; st.global.u32 [%mine], 1; fence.acq_rel.sys;
a fence waits for loads before it: remote_load fence
  ld.global.u32 %r1, [%peer]; bra NEXT; NEXT: fence.acq_rel.sys; add.u32 %r2, %r1, 1;
a fence waits for loads of its own step: remote_load fence
  ld.global.u32 %r1, [%peer]; fence.acq_rel.sys; add.u32 %r2, %r1, 1;
a fence waits for stores of other warps that a barrier has met, block=64: fence_after_stores
  setp.lt.u32 %p1, %r0, 32; @%p1 bra MEET; st.global.u32 [%peer], 1;
  MEET: bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 ret; fence.acq_rel.sys;
a poll that finds its flag costs a look: look
  ld.acquire.sys.global.u32 %r1, [%flag]; add.u32 %r2, %r1, 1;
a look at a peer's flag costs a load: remote_load
  ld.acquire.sys.global.u32 %r1, [%peer_flag]; add.u32 %r2, %r1, 1;
looks with something between them are different looks: look look look look look
  LOOP ld.relaxed.sys.global.u32 %r1, [%flag]; st.global.u32 [%mine], %r1; UNTIL 5
a poll of the own rank is an own hop, grid=2: remote_load own_hop
  setp.ne.u32 %p1, %block, 0; @%p1 bra WAIT; ld.global.u32 %r3, [%peer]; add.u32 %r3, %r3, 1;
  st.relaxed.gpu.global.u32 [%flag], %r3; ret; WAIT: ld.relaxed.sys.global.u32 %r1, [%flag];
  setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;
the last of several flags counts, of which one is stored at once and the other after a load: remote_load hop
  setp.eq.u32 %p1, %rank, 1; @%p1 bra WAIT; st.relaxed.sys.global.u32 [%peer_flag], 1;
  ld.global.u32 %r3, [%peer]; add.u32 %r3, %r3, 1; st.relaxed.sys.global.u32 [%peer_flag+128], %r3; ret;
  WAIT: ld.relaxed.sys.global.u32 %r1, [%flag]; ld.relaxed.sys.global.u32 %r2, [%flag+128];
  and.b32 %r1, %r1, %r2; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;
counters wait for all who add, of which one is late, grid=4 block=1: remote_load own_hop
  setp.ne.u32 %p1, %block, 2; @%p1 bra ADD; ld.global.u32 %r3, [%peer]; cvt.u64.u32 %d1, %r3;
  ADD: add.u64 %d2, %flag, %d1; red.relaxed.gpu.global.add.u32 [%d2], 1;
  WAIT: ld.relaxed.gpu.global.u32 %r1, [%flag]; setp.lt.u32 %p2, %r1, 4; @%p2 bra WAIT;
an atomic operation of the own rank, block=1: own_atomic
  atom.relaxed.gpu.global.add.u32 %r1, [%flag], 1; add.u32 %r2, %r1, 1;
an atomic operation of a peer's memory, block=1: remote_atomic
  atom.relaxed.sys.global.add.u32 %r1, [%peer_flag], 1; add.u32 %r2, %r1, 1;
a bulk copy after a wait follows the one before, block=1: bulk_own_load bulk_remote_load
  INIT LOAD0 WAIT0 LOAD8 WAIT8
a bulk store is over at its wait, block=1: bulk_store own_load
  FILL STORE cp.async.bulk.wait_group 0; ld.global.u32 %r1, [%mine]; add.u32 %r2, %r1, 1;
a bulk store is read before it is over, block=1: bulk_store
  FILL STORE cp.async.bulk.wait_group.read 0; ld.global.u32 %r2, [%mine]; bra ONE; ONE: add.u32 %r1, %r1, %r2;
  ld.global.u32 %r3, [%mine]; bra TWO; TWO: add.u32 %r1, %r1, %r3; cp.async.bulk.wait_group 0;
numbered barriers take who only arrives, block=64: remote_load own_load
  setp.lt.u32 %p1, %r0, 32; @%p1 bra WAITS; ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1; bra COME;
  COME: bar.arrive 3, 64; ret; WAITS: bar.sync 3, 64; ld.global.u32 %r3, [%mine]; add.u32 %r4, %r3, 1;
a barrier does not reach other blocks, grid=2: remote_load own_load
  setp.eq.u32 %p1, %block, 0; @%p1 bra FAST; ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1;
  FAST: bar.sync 0; ld.global.u32 %r3, [%mine]; add.u32 %r4, %r3, 1;
a launch ends with its last bulk store, block=1: bulk_store
  FILL STORE cp.async.bulk.wait_group.read 0;
"""
"""What each is about with its launch and the kinds of its path, then its body."""
PLACES = """
a barrier takes the slower warp, block=64: remote_load@0.0.1 barrier@0.0.0 own_load@0.0.0
  setp.lt.u32 %p1, %r0, 32; @%p1 bra FAST; ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1; bra MEET;
  FAST: ld.global.u32 %r3, [%mine]; add.u32 %r4, %r3, 1; MEET: bar.sync 0;
  setp.ge.u32 %p2, %r0, 32; @%p2 ret; ld.global.u32 %r5, [%mine+64]; add.u32 %r6, %r5, 1;
an mbarrier takes the last to arrive, block=64: barrier@0.0.1 remote_load@0.0.1 mbarrier@0.0.0 own_load@0.0.0
  setp.ne.u32 %p1, %r0, 0; @%p1 bra MET; mbarrier.init.shared::cta.b64 [bar], 2; MET: bar.sync 0;
  setp.ge.u32 %p1, %r0, 32; @%p1 bra LATE; bra COME;
  LATE: ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1; bra COME;
  COME: and.b32 %r3, %r0, 31; setp.ne.u32 %p1, %r3, 0; @%p1 ret; mbarrier.arrive.shared::cta.b64 %state, [bar];
  WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra WAIT;
  setp.ge.u32 %p1, %r0, 32; @%p1 ret; ld.global.u32 %r4, [%mine]; add.u32 %r5, %r4, 1;
clusters meet across blocks, grid=2 cluster=2: remote_load@0.1.0 cluster_barrier@0.0.0 own_load@0.0.0
  mov.u32 %r7, %cluster_ctarank; setp.eq.u32 %p1, %r7, 0; @%p1 bra FAST;
  ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1; bra FAST; FAST: barrier.cluster.arrive; barrier.cluster.wait;
  setp.ne.u32 %p1, %r7, 0; @%p1 ret; ld.global.u32 %r3, [%mine]; add.u32 %r4, %r3, 1;
bulk copies overlap until their mbarriers are waited for, block=1: bulk_remote_load@0.0.0 mbarrier@0.0.0; read 0 1 1024
  INIT LOAD0 LOAD8 WAIT0 WAIT8
a flag by multimem.red is seen by who waits for all, world_size=3 block=1: remote_load@2.0.0 switch_store@2.0.0 switch_hop@0.0.0
  setp.ne.u32 %p1, %rank, 2; @%p1 bra ADD; ld.global.u32 %r3, [%peer]; cvt.u64.u32 %d1, %r3;
  ADD: add.u64 %d2, %all_flags, %d1; multimem.red.relaxed.sys.global.add.u32 [%d2], 1;
  WAIT: ld.relaxed.sys.global.u32 %r1, [%flag]; setp.lt.u32 %p2, %r1, 3; @%p2 bra WAIT;
copies by lanes end with their group: lane_copy@0.0.0 own_load@0.0.0; read 0 0 256
  mov.u32 %r3, room; shl.b32 %r4, %r0, 2; add.u32 %r3, %r3, %r4; mad.lo.u64 %d1, %lane64, 4, %mine;
  cp.async.ca.shared.global [%r3], [%d1], 4; cp.async.commit_group;
  cp.async.wait_group 0; ld.global.u32 %r5, [%mine]; add.u32 %r6, %r5, 1;
a reduction through the switch: switch_load@0.0.0; reduce 0 -1 128, reduce 1 -1 128
  multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%all]; add.u32 %r2, %r1, 1;
"""
"""The same with all steps as places() has them, and what moves: viewer, target and bytes."""


def cases(text):
    """The cases of PATHS or PLACES."""
    found = re.findall(r"^(\w.*?)((?:,? \w+=\d+)*): (.*)\n((?:  .*\n)+)", text, re.MULTILINE)
    return pytest.mark.parametrize(
        ("launch", "expected", "body"), [one[1:] for one in found], ids=[one[0] for one in found]
    )


def profile_of(launch, body):
    """The profile of a case."""
    body = body.replace("LOOP ", "mov.u32 %r5, 0;\nLOOP: ")
    body = re.sub("UNTIL (.)", r"add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, \1; @%p1 bra LOOP;", body)
    parts = {"INIT": INIT, "FILL": FILL, "STORE": STORE_BULK.format(target="%peer")}
    parts |= {"LOAD0": load_bulk("%mine", 0), "LOAD8": load_bulk("%peer", 8)}
    parts |= {f"WAIT{bar}": WAIT_BULK.format(bar=bar) for bar in (0, 8)}
    for name, part in parts.items():
        body = re.sub(rf"\b{name}\b(?!:)", part, body)
    return profile(body, **{name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", launch)})


@cases(PATHS)
def test_a_path_has_these_steps(launch, expected, body):
    assert kinds(profile_of(launch, body)) == expected.split()


@cases(PLACES)
def test_a_path_has_these_places(launch, expected, body):
    found = profile_of(launch, body)
    steps, _, moves = expected.partition(";")
    assert places(found) == steps.split()
    for kind, viewer, target, size_bytes in re.findall(r"(\w+) (\d) (-?\d) (\d+)", moves):
        assert found.phases[0].bytes(kind, int(viewer), int(target)) == int(size_bytes)


PING_PONG = """
mov.u32 %r1, 0; setp.eq.u32 %p1, %rank, 1;
ROUND: add.u32 %r1, %r1, 1; @%p1 bra WAIT;
SEND: st.{store}.sys.global.u32 [%peer_flag], %r1; @%p1 bra NEXT;
WAIT: ld.{load}.sys.global.u32 %r2, [%flag]; setp.lt.u32 %p2, %r2, %r1; @%p2 bra WAIT;
@%p1 bra SEND;
NEXT: setp.lt.u32 %p3, %r1, {rounds}; @%p3 bra ROUND;
"""
"""Rank 0 stores, rank 1 answers."""


@pytest.mark.parametrize("rounds", [1, 2, 7, 30])
def test_ping_pong_of_n_hops_has_n_hops(rounds):
    found = profile(PING_PONG.format(store="relaxed", load="relaxed", rounds=rounds), block=1)
    assert found.path.counts["hop"] == 2 * rounds
    assert found.path.total_us == 2 * rounds * COSTS.hop
    assert [one.rank for one in found.path.segments if one.kind == "hop"] == [1, 0] * rounds


def test_a_release_adds_a_fence_to_each_hop():
    found = profile(PING_PONG.format(store="release", load="acquire", rounds=3), block=1)
    counts = found.path.counts
    assert counts["hop"] == 6
    assert counts["fence"] + counts["fence_after_stores"] == 6


POLL = "{at}: ld.relaxed.sys.global.u32 %r1, [{flag}]; setp.eq.u32 %p2, %r1, 0; @%p2 bra {at};"


@pytest.mark.parametrize("delay", [0, 1, 40])
def test_a_poll_waits_for_the_store_however_often_it_looked(delay):
    """Rank 0 stores after a number of dependent loads; rank 1 looks all the time."""
    chain = "".join("ld.global.u32 %r3, [%d1]; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2;" for _ in range(delay))
    found = profile(
        f"""setp.eq.u32 %p1, %rank, 1; @%p1 bra WAIT; mov.u64 %d1, %mine; {chain}
        add.u64 %d3, %d1, %peer_flag; sub.u64 %d3, %d3, %mine; st.relaxed.sys.global.u32 [%d3], 1; ret;
        {POLL.format(at="WAIT", flag="%flag")}"""
    )
    assert kinds(found) == ["own_load"] * delay + ["hop"]
    *_, store, hop = found.path.segments
    assert (store.rank, hop.rank) == (0, 1)


def test_flags_of_launches_before_do_not_count():
    first, second = profiles(
        f"st.relaxed.sys.global.u32 [%peer_flag], 1; {POLL.format(at='WAIT', flag='%flag')}", launches=2
    )
    assert kinds(first) == ["hop"]
    assert kinds(second) == ["hop"]
    only_reads, again = profiles(
        """ld.relaxed.sys.global.u32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
        bra SLOW; SLOW: st.relaxed.sys.global.u32 [%flag], 1;""",
        launches=2,
    )
    assert kinds(only_reads) == kinds(again) == ["look"]


def test_costs_are_checked():
    with pytest.raises(ValueError, match="hop"):
        Costs(hop=-1.0)
    with refused(ValueError):
        Costs.of({"hops": 1.0})
    assert Costs.of(COSTS.document()) == COSTS
    assert set(COSTS.document()) == set(KINDS)


def test_the_clock_wants_the_fair_order_and_strong_memory():
    with pytest.raises(ValueError, match="schedule=fair"):
        make_world(2, clock=COSTS, schedule="random")
    with pytest.raises(ValueError, match="memory=strong"):
        make_world(2, clock=COSTS, memory="weak")


def test_a_world_without_a_clock_has_no_listener():
    world = make_world(2)
    assert world.clock is None
    assert world.profiles == ()
    assert len(world.space.events._listeners) == 2


def test_a_fence_waits_for_bulk_stores_to_other_ranks():
    costs = replace(COSTS, bulk_store=1.0, bulk_read=0.5)
    for target, kind in (("%peer", "fence_after_stores"), ("%mine", "fence")):
        store = FILL + STORE_BULK.format(target=target) + "cp.async.bulk.wait_group.read 0; fence.acq_rel.sys;"
        assert kinds(profile(store, block=1, costs=costs)) == ["bulk_read", kind]


def test_a_flag_through_the_switch_is_seen_by_all_ranks():
    found = profile(
        f"""setp.ne.u32 %p1, %rank, 2; @%p1 bra WAIT; ld.global.u32 %r3, [%peer]; add.u32 %r3, %r3, 1;
        multimem.st.relaxed.sys.global.u32 [%all_flags], %r3; {POLL.format(at="WAIT", flag="%flag")}""",
        world_size=3,
        block=1,
    )
    assert kinds(found) == ["remote_load", "switch_hop"]
    assert found.ends_us == (10.0, 10.0, 10.0)


def test_phases_say_what_moves_between_waits():
    """64 threads of a block: a flag each way, then 4 bytes a thread from the other rank, then a flag again."""
    found = profile(
        f"""setp.ne.u32 %p1, %r0, 0; @%p1 bra BODY; st.release.sys.global.u32 [%peer_flag], 1;
        {POLL.format(at="ENTRY", flag="%flag")}
        BODY: bar.sync 0; mad.lo.u64 %d1, %lane64, 4, %peer; ld.global.u32 %r3, [%d1];
        ld.global.u32 %r4, [%d1+1024]; add.u32 %r3, %r3, %r4;
        mad.lo.u64 %d2, %lane64, 4, %mine; st.global.u32 [%d2+2048], %r3;
        bar.sync 0; @%p1 ret; st.release.sys.global.u32 [%peer_flag+4], 1;
        {POLL.format(at="EXIT", flag="%flag+4")}""",
        block=64,
    )
    entry, body = found.phases
    assert (entry.bytes("write", 0, 1), entry.bytes("write", 1, 0)) == (4, 4)
    assert body.bytes("read", viewer=0, target=1) == 2 * 4 * 64
    assert body.bytes("write", viewer=1, target=1) == 4 * 64
    assert body.bytes("write", viewer=1, target=0) == 4, "the flag that ends the launch"
    assert {(one.rank, one.read, one.written) for one in body.lines} == {(0, 4, 3), (1, 4, 3)}


@pytest.mark.parametrize("block", [1, 7, 33, 96, 256])
def test_blocks_of_any_size(block):
    found = profile(
        """setp.ne.u32 %p1, %block, 1; @%p1 bra FAST; ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1;
        FAST: bar.sync 0; mad.lo.u64 %d1, %lane64, 4, %mine; st.global.u32 [%d1], %r2;""",
        grid=3,
        block=block,
    )
    assert kinds(found) == ["remote_load"]
    assert found.phases[0].bytes("write") == 2 * 3 * block * 4


def test_launches_of_different_grids_meet():
    """Ranks that launch different grids are two profiles, and a poll of one waits for a store of the other."""
    found = profiles(
        f"""setp.eq.u32 %p1, %rank, 1; @%p1 bra WAIT; ld.global.u32 %r3, [%peer]; add.u32 %r3, %r3, 1;
        st.relaxed.sys.global.u32 [%peer_flag], %r3; ret; {POLL.format(at="WAIT", flag="%flag")}""",
        grid=[1, 2],
    )
    first, second = sorted(found, key=lambda one: one.ranks)
    assert (first.ranks, second.ranks) == ((0,), (1,))
    assert kinds(first) == ["remote_load"]
    assert kinds(second) == ["remote_load", "hop"]
    assert [one.rank for one in second.path.segments if one.to_us > one.from_us] == [0, 1]


def test_launches_in_a_row_begin_where_the_one_before_ended():
    """Without a wait of the host between them; each profile counts from its own beginning."""
    found = profiles("ld.global.u32 %r1, [%peer]; add.u32 %r2, %r1, 1;", launches=3, waits=False)
    assert [(one.number, one.path.total_us) for one in found] == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_a_program_begins_with_no_profiles():
    code = module("ld.global.u32 %r1, [%mine]; add.u32 %r2, %r1, 1;", ["u64 mine"])
    world = make_world(1, clock=COSTS)
    for _ in range(2):
        succeed(world, launching(code, 1, 32, [np.zeros(8, np.uint32)]))
        assert len(world.profiles) == 1
