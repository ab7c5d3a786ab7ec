"""Clusters: places of blocks in them, shared memory of other blocks, their barriers, and what goes wrong there."""

import itertools

import numpy as np
import pytest

from memory.fabric import Deadlock, DeviceFault, Launch
from tests.golden import refused, same_text
from tests.simulator import harness

schedules = harness.in_orders(6)
SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
NEXT = (
    "mov.u32 %r10, %cluster_ctarank; mov.u32 %r11, %cluster_nctarank; add.u32 %r10, %r10, 1; rem.u32 %r10, %r10, %r11;"
)
"""%r10: the rank of the next block in the cluster."""


# Places

PLACES = (
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%is_explicit_cluster",
    "%gridid",
)


def places(grid, cluster, directives=""):
    """What each block of the second launch of each of two ranks reads, by number of the block."""
    reads = [
        "mov.u64 %d2, %gridid; cvt.u32.u64 %r1, %d2;" if one == "%gridid" else f"mov.u32 %r1, {one};" for one in PLACES
    ]
    reads[-2] = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1;"
    number = (
        "mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.y; mov.u32 %r4, %ctaid.y; mad.lo.u32 %r2, %r2, %r3, %r4;"
        "mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r2, %r2, %r3, %r4;"
    )
    stores = "".join(f"{read} st.global.b32 [%d1+{4 * at}], %r1;\n" for at, read in enumerate(reads))
    body = f"{number} mul.wide.u32 %d1, %r2, {4 * len(PLACES)}; add.s64 %d1, %d1, %out;\n{stores}"
    code = harness.executable(harness.module(body, ["u64 out"]).replace(")\n{", f")\n{directives}\n{{", 1))

    def program(fabric):
        out = fabric.allocate(4 * len(PLACES) * int(np.prod(grid)), 256, "out")
        for _ in range(2):
            harness.start(fabric, code, grid, 1, [out.address], cluster=cluster)
        return harness.get(fabric, out, "u4").reshape(-1, len(PLACES)).tolist()

    return harness.succeed(harness.make_world(2), program).results


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 1, 1), (2, 1, 1)), ((4, 6, 2), (2, 3, 1)), ((2, 2, 4), (1, 2, 4)), ((3, 2, 2), (1, 1, 1))],
)
def test_every_block_knows_its_place(grid, cluster):
    wanted = []
    for z, y, x in itertools.product(*(range(count) for count in reversed(grid))):
        place = (x, y, z)
        inside = [one % size for one, size in zip(place, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        of = [one // size for one, size in zip(place, cluster, strict=True)]
        counts = [blocks // size for blocks, size in zip(grid, cluster, strict=True)]
        size = int(np.prod(cluster))
        wanted.append([*of, *counts, *inside, *cluster, rank, size, int(size > 1), 2])
    for found in places(grid, cluster):
        assert found == wanted


def test_a_kernel_brings_the_shape_of_its_clusters():
    given = places((4, 2, 1), (2, 2, 1))
    for directives in (".reqnctapercluster 2, 2", ".explicitcluster\n.reqnctapercluster 2, 2, 1"):
        assert places((4, 2, 1), (1, 1, 1), directives) == given
        assert places((4, 2, 1), (2, 2, 1), directives) == given
    assert places((4, 2, 1), (2, 2, 1), ".maxclusterrank 4") == given
    alone = places((2, 1, 1), (1, 1, 1), ".reqnctapercluster 1")
    assert [row[-2:] for row in alone[0]] == [[1, 2], [1, 2]]


# Shared memory of other blocks

HISTOGRAM = """
  .shared .align 4 .b8 bins[64];
  mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; shl.b32 %r2, %r1, 2; mov.u32 %r3, bins; add.u32 %r2, %r2, %r3;
  @%p1 st.shared.u32 [%r2], 0;
  SYNC
  mad.lo.u64 %d1, %lane64, 4, %data; ld.global.u32 %r4, [%d1];
  shr.u32 %r5, %r4, 4; and.b32 %r6, %r4, 15; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r3;
  mapa.shared::cluster.u32 %r7, %r6, %r5;
  red.shared::cluster.add.u32 [%r7], 1;
  SYNC
  mov.u32 %r8, %cluster_ctarank; shl.b32 %r8, %r8, 4; add.u32 %r8, %r8, %r1; mul.wide.u32 %d2, %r8, 4; add.u64 %d2, %d2, %out;
  @%p1 ld.shared.u32 %r9, [%r2]; @%p1 red.relaxed.sys.global.add.u32 [%d2], %r9;
"""


def histogram(ranks, cluster, sync=SYNC, **options):
    """Each block of a cluster has 16 of its bins; all ranks add to the bins of rank 0."""
    code = harness.executable(harness.module(HISTOGRAM.replace("SYNC", sync), ["u64 data", "u64 out"]))
    data = [np.random.default_rng(rank).integers(0, 16 * cluster, 16 * 32, np.uint32) for rank in range(ranks)]

    def program(fabric):
        given = harness.put(fabric, "data", data[fabric.rank])
        out = harness.put(fabric, "out", np.zeros(16 * cluster, np.uint32))
        fabric.barrier()
        harness.start(fabric, code, 16, 32, [given.address, fabric.peer_address(out, 0)], cluster=cluster)
        fabric.synchronize()
        fabric.barrier()
        return harness.get(fabric, out, "u4")

    found = harness.succeed(harness.make_world(ranks, **options), program).results[0]
    assert np.array_equal(found, np.bincount(np.concatenate(data), minlength=16 * cluster))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@schedules
def test_a_histogram_over_the_shared_memory_of_a_cluster(options, ranks):
    histogram(ranks, 4, **options)


def test_a_histogram_without_its_barriers_is_found_out():
    """Some seed finds a block that has not begun, bins that are not cleared, or bins that are read too early."""
    wrong = 0
    for seed in range(8):
        try:
            histogram(2, 4, sync="bar.sync 0;", schedule="random", seed=seed)
        except (AssertionError, DeviceFault):
            wrong += 1
    assert wrong >= 4


@schedules
def test_generic_addresses_reach_other_blocks(options):
    """Each thread hands the address of its own word to the next block through that block's shared memory."""
    body = f"""
      .shared .align 8 .b64 slots[32]; .shared .align 4 .b32 words[32]; {NEXT}
      mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; mov.u64 %d3, words; cvta.shared.u64 %d3, %d3; add.u64 %d3, %d3, %d2;
      st.u32 [%d3], %lane; mov.u32 %r3, %cluster_ctarank; mapa.u64 %d4, %d3, %r3;
      mul.wide.u32 %d5, %r1, 8; mov.u64 %d6, slots; cvta.shared.u64 %d6, %d6; add.u64 %d6, %d6, %d5; mapa.u64 %d7, %d6, %r10;
      {SYNC} st.u64 [%d7], %d4; {SYNC} ld.u64 %d8, [%d6]; ld.u32 %r2, [%d8]; getctarank.u64 %r4, %d8; mad.lo.u32 %r2, %r4, 1000, %r2;
      isspacep.shared::cluster %p1, %d8; @!%p1 trap; isspacep.shared::cta %p2, %d8; @%p2 trap; isspacep.shared::cta %p3, %d4; @!%p3 trap;
      {SYNC}
    """
    found = harness.stored(body, 6, 32, 3, **options)
    assert found == [
        1000 * ((rank + 2) % 3) + 32 * (3 * cluster + (rank + 2) % 3) + thread
        for cluster, rank, thread in itertools.product(range(2), range(3), range(32))
    ]


def test_an_address_of_the_own_block_works_for_both_spaces():
    body = """
      .shared .align 4 .b32 word; mov.u32 %r1, %cluster_ctarank; mapa.shared::cluster.u32 %r3, word, %r1;
      st.shared::cta.u32 [%r3], %lane; ld.shared::cluster.u32 %r2, [word];
    """
    assert harness.stored(body, 4, 1, 2) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        f"{SYNC} mapa.shared::cluster.u32 %r1, word, 1; red.shared::cluster.add.noftz.f16x2 [%r1], %r2;",
        f"{SYNC} mov.u64 %d1, word; cvta.shared.u64 %d1, %d1; mapa.u64 %d1, %d1, 1; atom.add.noftz.bf16x2 %r1, [%d1], %r2;",
        f"{SYNC} mapa.shared::cluster.u32 %r1, word, 1; ld.shared.u32 %r2, [%r1];",
        "mov.u32 %r2, %lane; mapa.shared::cluster.u32 %r1, word, %r2;",
        "mov.u64 %d2, word; mapa.u64 %d1, %d2, 1;",
        f"{SYNC} mov.u32 %r1, 0x4000000; ld.shared::cluster.u32 %r2, [%r1];",
        f"{SYNC} mapa.shared::cluster.u32 %r1, word, 1; st.shared::cluster.u32 [%r1+4], 1;",
        f"{SYNC} mapa.shared::cluster.u32 %r1, word, 1; ld.shared::cluster.u32 %r2, [%r1];",
    ],
    ids=["pairs", "pairs_generic", "other_block", "no_such_rank", "not_generic", "no_such_block", "outside", "poison"],
)
def test_what_is_wrong_with_an_address(body):
    same_text(harness.failed(f".shared .align 4 .b32 word; {body}", 2, cluster=2))


def test_the_shared_memory_of_a_block_that_returned_is_gone():
    body = f"""
      .shared .align 4 .b32 word; st.shared.u32 [word], 7; {SYNC} mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 ret;
      mov.u32 %r5, 200; LOOP: sub.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOOP;
      mapa.shared::cluster.u32 %r1, word, 1; ld.shared::cluster.u32 %r2, [%r1];
    """
    same_text(harness.failed(body.replace("LOOP:", "setp.ne.u32 %p3, %block, 2; @%p3 ret; LOOP:"), 4, cluster=2))


def test_a_block_may_not_have_begun_before_a_barrier_of_the_cluster():
    body = ".shared .align 4 .b32 word; mapa.shared::cluster.u32 %r1, word, 1; st.shared::cluster.u32 [%r1], 7;"
    body += SYNC
    said = [str(harness.ran(body, {}, 2, cluster=2, schedule="random", seed=seed).errors[0]) for seed in range(8)]
    assert any("shared memory of block 1, which may not have begun: no barrier of the cluster" in one for one in said)


def test_threads_wait_for_a_word_that_another_block_stores():
    """A spin that sleeps until the shared memory of its own block changes."""
    body = f"""
      .shared .align 4 .b32 word; st.shared.u32 [word], 0; {SYNC} mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; @%p1 bra GIVE;
      SPIN: ld.acquire.cluster.shared::cluster.u32 %r2, [word]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN; bra.uni END;
      GIVE: mov.u32 %r5, 300; LOOP: sub.u32 %r5, %r5, 1; setp.ne.u32 %p3, %r5, 0; @%p3 bra LOOP; mov.u32 %r2, 5;
      mapa.shared::cluster.u32 %r3, word, 1; st.release.cluster.shared::cluster.u32 [%r3], 6;
      END: {SYNC}
    """
    for options in harness.orders(6):
        assert harness.stored(body, 4, 1, 2, **options) == [5, 6, 5, 6]


# Barriers


@schedules
def test_phases_follow_each_other(options):
    """Blocks of different speed write and read in turn, ten times."""
    body = f"""
      .shared .align 4 .b32 word; {NEXT} mapa.shared::cluster.u32 %r12, word, %r10; mov.u32 %r2, 0; mov.u32 %r3, 0; {SYNC}
      TURN: mad.lo.u32 %r5, %block, 7, 1; LOOP: sub.u32 %r5, %r5, 1; setp.ne.u32 %p3, %r5, 0; @%p3 bra LOOP;
      setp.eq.u32 %p1, %r0, 0; @%p1 st.shared::cluster.u32 [%r12], %r3; barrier.cluster.arrive.release.aligned; add.u32 %r3, %r3, 1;
      barrier.cluster.wait.acquire.aligned; ld.shared.u32 %r4, [word]; mad.lo.u32 %r2, %r2, 3, %r4; bar.sync 0; {SYNC}
      setp.ne.u32 %p2, %r3, 10; @%p2 bra TURN;
    """
    total = 0
    for turn in range(10):
        total = 3 * total + turn
    assert harness.stored(body, 8, 40, 4, **options) == [total] * 320


@schedules
def test_threads_that_returned_are_not_waited_for(options):
    """One block returns at once, of another all but a warp."""
    body = f"""
      mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 ret; setp.eq.u32 %p2, %r1, 2; setp.gt.u32 %p3, %r0, 31;
      and.pred %p2, %p2, %p3; mov.u32 %r2, 3; @%p2 bra END; {SYNC} mov.u32 %r2, 4; END:
    """
    assert harness.stored(body, 4, 64, 4, **options) == [4] * 64 + [99] * 64 + [4] * 32 + [3] * 32 + [4] * 64


@schedules
def test_an_arrival_counts_though_its_thread_returns(options):
    body = """
      mov.u32 %r2, %cluster_ctarank; barrier.cluster.arrive.relaxed; setp.eq.u32 %p1, %r2, 1; @%p1 bra END;
      barrier.cluster.wait; END:
    """
    assert harness.stored(body, 4, 32, 2, **options) == [0] * 32 + [1] * 32 + [0] * 32 + [1] * 32


def test_a_wait_at_the_end_of_a_long_way_passes_a_phase_that_is_over():
    body = """
      barrier.cluster.arrive; mov.u32 %r2, 0; setp.eq.u32 %p1, %r0, 5; @!%p1 bra MEET;
      LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 100; @%p2 bra LOOP; MEET: barrier.cluster.wait;
    """
    for options in harness.orders(6):
        assert harness.stored(body, 2, 32, 2, **options) == [100 if thread % 32 == 5 else 0 for thread in range(64)]


@schedules
def test_a_block_that_misses_the_barrier_ends_in_a_report(options):
    """Thread 33 of the second cluster's middle block goes to a barrier of its block that no other comes to."""
    body = f"setp.eq.u32 %p1, %lane, 289; @%p1 bra ELSE; {SYNC} ret; ELSE: bar.sync 1, 64;"
    said = harness.failed(body, grid=6, block=64, cluster=3, **options)
    assert said.startswith("Deadlock")
    same_text(said)
    assert "cluster 0" not in said


def test_a_report_names_blocks_in_three_dimensions_and_says_how_many_are_missing():
    body = f"mov.u32 %r1, %ctaid.y; setp.eq.u32 %p1, %r1, 1; @%p1 bra ELSE; {SYNC} ret; ELSE: bar.sync 1, 64;"
    error = harness.ran(body, {}, (2, 2, 1), 32, cluster=(1, 2, 1)).error()
    assert isinstance(error, Deadlock)
    same_text(str(error))
    assert {(one.block, one.thread) for one in error.places} == {(0, 0), (1, 0), (2, 0), (3, 0)}


@pytest.mark.parametrize(
    "body",
    ["barrier.cluster.wait;", "barrier.cluster.arrive; barrier.cluster.arrive;", f"{SYNC} barrier.cluster.wait;"],
)
def test_arrivals_and_waits_take_turns(body):
    same_text(harness.failed(body, 2, cluster=2))


def test_a_block_without_a_cluster_is_one_of_its_own():
    body = f".shared .align 4 .b32 word; mapa.shared::cluster.u32 %r1, word, 0; st.shared::cluster.u32 [%r1], %block; {SYNC} ld.shared.u32 %r2, [word];"
    assert harness.stored(body, 3, 2, 1) == [0, 0, 1, 1, 2, 2]


# What a launch can't be


@pytest.mark.parametrize(
    ("directives", "grid", "cluster"),
    [
        (".reqnctapercluster 4", 4, 2),
        (".reqnctapercluster 4", 6, 1),
        (".reqnctapercluster 4, 4", 16, 1),
        (".maxclusterrank 4", 8, 8),
        (".explicitcluster", 8, 1),
    ],
)
def test_a_cluster_that_the_kernel_can_not_have(directives, grid, cluster):
    code = harness.executable(harness.module("").replace(")\n{", f")\n{directives}\n{{", 1))
    with refused(ValueError):
        harness.make_world(1).fabric(0).launch(code, Launch(grid, 32, cluster=cluster), [])


def test_an_older_gpu_has_no_clusters():
    code = harness.executable(harness.module("", target="sm_80"), arch="sm_80")

    def program(fabric):
        fabric.launch(code, Launch(4, 32), [])
        with refused(ValueError):
            fabric.launch(code, Launch(4, 32, cluster=2), [])
        fabric.synchronize()

    harness.succeed(harness.make_world(1, arch="sm_80"), program)
