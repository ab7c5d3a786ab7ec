"""Clusters on a GPU with limits: they get their places whole, and what never fits is refused."""

from dataclasses import replace

import numpy as np
import pytest

from memory.fabric import Deadlock
from tests.golden import same_text
from tests.simulator.harness import ran
from tests.simulator.run.test_residency import ORDER_IDS, ORDERS, gpu

MEET = """
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
  atom.add.global.u32 %r2, [%count], 1; add.u32 %r2, %r2, 1; atom.max.global.u32 %r3, [%count+4], %r2;
MEET:
  barrier.cluster.arrive; barrier.cluster.wait;
  @%p1 ret; atom.add.global.u32 %r2, [%count], -1; atom.add.global.u32 %r2, [%count+8], 1;
"""
"""Blocks count in, note the largest count, meet their cluster, and count out."""


def clusters(grid, cluster, body=MEET, ranks=1, **options):
    return ran(body, {"count": np.zeros(3, np.uint32)}, grid, 1024, ranks, cluster=cluster, **options)


@pytest.mark.parametrize("options", ORDERS, ids=ORDER_IDS)
def test_clusters_meet_in_waves(options):
    """Five places hold one cluster of 4, and the last block of the one before: all blocks of a cluster are there."""
    places = replace(gpu(5), threads_per_multiprocessor=1024)
    left, most, done = clusters(20, 4, gpu=places, **options).right[0]
    assert (left, done) == (0, 20)
    assert most == 4 if not options else 4 <= most <= 5


def test_more_places_hold_more_clusters():
    assert clusters(24, 4, ranks=2, gpu=gpu(4)).right == [[0, 8, 24]] * 2


def test_a_cluster_that_waits_for_one_without_a_place_is_stuck():
    body = """
      mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
      atom.add.global.u32 %r2, [%count], 1;
    SPIN: ld.acquire.gpu.global.u32 %r3, [%count]; setp.lt.u32 %p2, %r3, 12; @%p2 bra SPIN;
    MEET: barrier.cluster.arrive; barrier.cluster.wait;
    """
    assert clusters(12, 4, body, gpu=gpu(6)).right[0][0] == 12
    error = clusters(12, 4, body, gpu=gpu(5)).error()
    assert isinstance(error, Deadlock)
    text = "blocks 8 to 11 of 12 wait for a place: small holds 8 at once (5 multiprocessors x 2, limited by threads)"
    assert text in str(error)


def test_what_never_fits_is_refused():
    error = clusters(8, 4, gpu=gpu(1)).error()
    assert isinstance(error, ValueError)
    same_text(str(error))
