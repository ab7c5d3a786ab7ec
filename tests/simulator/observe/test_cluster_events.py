"""Clusters as listeners see them: which blocks form one, barriers of clusters, shared memory of other blocks."""

from collections import Counter

import numpy as np
import pytest

from simulator.observe.events import BarrierArrived, BarrierCompleted, Listener
from simulator.observe.lanes import Clusters
from tests.simulator.harness import executable, launching, make_world, module, succeed


class Watch(Listener):
    """Keeps events of barriers and of shared memory in their order."""

    def __init__(self):
        self.barriers = []
        self.accesses = []

    def barrier_arrived(self, event):
        self.barriers.append(event)

    barrier_completed = barrier_arrived

    def shared_access(self, event):
        self.accesses.append(event)


def watched(body, grid, block, cluster, ranks=1, **options):
    code = executable(module(body, ["u64 mine", "u64 flag"]))
    watch, world = Watch(), make_world(ranks, **options)
    world.space.events.add(watch)
    succeed(world, launching(code, grid, block, [np.ones(64, np.uint32)] * 2, cluster=cluster))
    return watch, world


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 1), (2, 3, 1), (1, 3, 2), (2, 1, 2)])
def test_blocks_of_clusters(shape):
    """Numbers of two ranks' blocks, clusters and ranks in them against a walk over all blocks."""
    clusters = Clusters((4, 6, 2), shape, is_explicit=True)
    places = np.array([place[::-1] for place in np.ndindex(2, 2, 6, 4)])  # x, y, z, rank; a block's number is its row
    corners = [tuple(one) for one in (places // (*shape, 1))[:, ::-1].tolist()]
    numbers = {corner: number for number, corner in enumerate(sorted(set(corners)))}
    assert clusters.count * 2 == len(numbers)
    wanted = [numbers[one] for one in corners]
    ranks = [wanted[:block].count(number) for block, number in enumerate(wanted)]
    blocks = np.arange(2 * 48)
    assert clusters.numbers_of(blocks).tolist() == wanted
    assert clusters.ranks_of(blocks).tolist() == ranks
    assert clusters.blocks_of(np.array(wanted), np.array(ranks)).tolist() == blocks.tolist()
    assert set(Counter(wanted).values()) == {clusters.size}


def test_arrivals_and_waits_at_the_barrier_of_a_cluster():
    """Thread 3 comes late to the wait, after all have arrived: an event of its own."""
    body = """
      barrier.cluster.arrive.relaxed; setp.eq.u32 %p1, %lane, 3; @!%p1 bra MEET;
      mov.u32 %r2, 0; LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 99; @%p2 bra LOOP; MEET: barrier.cluster.wait;
    """
    watch, _ = watched(body, 4, 2, 2)
    arrived, *completed = watch.barriers
    assert isinstance(arrived, BarrierArrived)
    assert (arrived.unit, arrived.instruction.mnemonic) == ("cluster", "barrier.cluster.arrive.relaxed")
    assert list(arrived.lanes) == list(range(8))
    assert all(isinstance(one, BarrierCompleted) and one.unit == "cluster" for one in completed)
    assert sorted(list(one.lanes) for one in completed) == [[0, 1, 2, 4, 5, 6, 7], [3]]


def test_whose_shared_memory_it_is():
    """In the order of the accesses: the own block's, the neighbour's by its address, the neighbour's by a generic one."""
    body = """
      .shared .align 16 .b8 words[32]; st.shared.u32 [words+4], 1; barrier.cluster.arrive; barrier.cluster.wait;
      mov.u32 %r1, %cluster_ctarank; xor.b32 %r1, %r1, 1; mapa.shared::cluster.u32 %r2, words, %r1;
      ld.acquire.cluster.shared::cluster.u32 %r3, [%r2+4]; cvt.u64.u32 %d1, %r2; cvta.shared::cluster.u64 %d1, %d1;
      atom.relaxed.cluster.shared::cluster.add.u32 %r3, [%r2+4], 1; st.v2.u32 [%d1+16], {%r3, %r3};
      ld.shared::cluster.u32 %r3, [words+4]; barrier.cluster.arrive; barrier.cluster.wait;
    """
    watch, _ = watched(body, 4, 1, 2, ranks=2)
    own, load, atomic, generic, mine = watch.accesses
    pairs = [1, 0, 3, 2] * 2
    assert own.target_blocks is None
    for one, kind, order, at, width in (
        (load, "load", "acquire", 4, 4),
        (atomic, "atomic", "relaxed", 4, 4),
        (generic, "store", "weak", 16, 8),
    ):
        assert (one.kind, one.order, one.space, one.width_bytes) == (kind, order, "shared", width)
        assert one.target_blocks.tolist() == pairs
        assert np.asarray(one.addresses).tolist() == [at] * 8
        assert np.array_equal(one.target, one.viewer)
    assert load.scope == "cluster"
    assert mine.target_blocks.tolist() == mine.blocks.tolist() == [0, 1, 2, 3] * 2
