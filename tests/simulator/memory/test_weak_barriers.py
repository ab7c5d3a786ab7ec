"""Cluster barriers and mbarriers under weak memory: .relaxed and scopes order no more than PTX says, and no less."""

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.memory.clocks import BASE, SCOPES, Clocks
from simulator.observe.lanes import Clusters, Launched
from simulator.ptx.assembler import assembled, find_ptxas
from tests.rooms import needs
from tests.simulator.harness import launching, make_world, module, ran, run

SEEDS = 40
"""The number of seeds within which each kernel here shows what it may."""
BEFORE = ".shared .align 8 .b64 barrier;"
ALL = "barrier.cluster.arrive; barrier.cluster.wait;"


@dataclass(frozen=True, slots=True)
class Way:
    """How 5 is handed on: qualifiers of arrival and wait, and what is before the one and after the other.

    kind: "mbarrier" or "cluster", the barrier. where: the receiver is another thread of the "block", or of the
    "cluster". is_ordered: whether PTX orders the store before the load.
    """

    kind: str
    where: str
    arrive: str
    wait: str
    is_ordered: bool
    before: str = ""
    after: str = ""

    def __str__(self):
        words = (self.kind, self.where, self.before, self.arrive, self.wait, self.after)
        return "-".join(word.strip(".;") for word in words if word)


def _fence(scope, order="acq_rel"):
    return f"fence.{order}.{scope};"


WAYS = [
    Way("cluster", "cluster", "", "", True),
    Way("cluster", "cluster", ".release", ".acquire", True),
    Way("cluster", "cluster", ".relaxed", "", False),
    Way("cluster", "block", ".relaxed", "", False),
    Way("cluster", "cluster", ".relaxed", "", True, _fence("cluster")),
    Way("cluster", "cluster", ".relaxed", "", True, _fence("gpu", "release")),
    Way("cluster", "cluster", ".relaxed", "", False, _fence("gpu", "acquire")),
    Way("cluster", "cluster", ".relaxed", "", False, _fence("cta")),
    Way("cluster", "block", ".relaxed", "", True, _fence("cta")),
    Way("cluster", "cluster", ".relaxed", "", False, "", _fence("cluster")),
    Way("mbarrier", "block", "", "", True),
    Way("mbarrier", "block", ".release.cta", ".acquire.cta", True),
    Way("mbarrier", "block", ".relaxed.cta", ".acquire.cta", False),
    Way("mbarrier", "block", ".release.cta", ".relaxed.cta", False),
    Way("mbarrier", "block", ".relaxed.cta", ".acquire.cta", True, _fence("cta")),
    Way("mbarrier", "block", ".release.cta", ".relaxed.cta", True, "", _fence("cta")),
    Way("mbarrier", "block", ".relaxed.cta", ".relaxed.cta", True, _fence("cta", "release"), _fence("cta", "acquire")),
    Way("mbarrier", "block", ".relaxed.cta", ".relaxed.cta", False, _fence("cta", "acquire"), _fence("cta")),
    Way("mbarrier", "cluster", ".release.cluster", ".acquire.cluster", True),
    Way("mbarrier", "cluster", "", "", True),  # by the letter of PTX not: symlab/checks/races/README.md
    Way("mbarrier", "cluster", ".relaxed.cluster", "", False),
    Way("mbarrier", "cluster", ".release.cta", "", False),
    Way("mbarrier", "cluster", ".release.cluster", ".acquire.cta", False),
    Way("mbarrier", "cluster", "", ".acquire.cluster", True),
    Way("mbarrier", "cluster", "", ".acquire.cta", False),
    Way("mbarrier", "cluster", ".relaxed.cluster", ".acquire.cluster", False),
    Way("mbarrier", "cluster", ".release.cluster", ".relaxed.cluster", False),
    Way("mbarrier", "cluster", ".relaxed.cluster", ".acquire.cluster", True, _fence("cluster")),
    Way("mbarrier", "cluster", ".relaxed.cluster", ".acquire.cluster", False, _fence("cta")),
    Way("mbarrier", "cluster", ".release.cluster", ".relaxed.cluster", True, "", _fence("gpu")),
    Way("mbarrier", "cluster", ".release.cluster", ".relaxed.cluster", False, "", _fence("cta")),
    Way("mbarrier", "cluster", ".release.cluster", ".relaxed.cta", False, "", _fence("cluster")),
    Way("mbarrier", "cluster", ".relaxed.cluster", ".relaxed.cluster", True, _fence("cluster"), _fence("cluster")),
]
ORDERED = [one for one in WAYS if one.is_ordered]
UNORDERED = [one for one in WAYS if not one.is_ordered]
NARROW = Way("cluster", "block", ".relaxed", "", True, _fence("cta"))
"""The checker finds a race here, which is a limit that symlab/checks/races/README.md names."""
EVERY = 3
"""One kernel of this many is in the fast tests."""


def sampled(ways):
    """The ways, most of them for the slow tests."""
    return [pytest.param(one, marks=() if at % EVERY == 0 else pytest.mark.slow) for at, one in enumerate(ways)]


def kernel(way):
    """Thread 0 of block 0 hands 5 to thread 1 of block 0, or to thread 0 of block 1."""
    receiver = {"block": 1, "cluster": 2}[way.where]
    if way.kind == "cluster":
        send = f"barrier.cluster.arrive{way.arrive}; barrier.cluster.wait{way.wait};"
        take, rest = f"barrier.cluster.arrive; barrier.cluster.wait{way.wait};", ALL
    else:
        send = (
            f"mapa.shared::cluster.u32 %r7, %r6, {receiver // 2};"
            f"mbarrier.arrive{way.arrive}.shared::cluster.b64 _, [%r7];"
        )
        take, rest = f"AGAIN: mbarrier.try_wait.parity{way.wait}.shared::cta.b64 %p3, [%r6], 0; @!%p3 bra AGAIN;", ""
    return module(
        f"""
        mov.u32 %r6, barrier; setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
        mbarrier.init.shared.b64 [%r6], 1;
        READY: {ALL}
        setp.eq.u32 %p1, %lane, 0; @%p1 bra SEND;
        setp.eq.u32 %p1, %lane, {receiver}; @%p1 bra TAKE;
        {rest} bra END;
        SEND: st.global.u32 [%data], 5;
        {way.before}
        ARRIVE: {send} bra END;
        TAKE: {take}
        {way.after}
        ld.global.u32 %r2, [%data];
        st.global.u32 [%out], %r2;
        END:""",
        ["u64 data", "u64 out"],
        before=BEFORE,
    )


def received(ptx, **options):
    """What the receiver found, and the checker's findings."""
    regions = [np.zeros(16, np.uint32)] * 2
    outcome = run(make_world(1, **options), launching(ptx, 2, 2, regions, at=0, cluster=(2, 1, 1)))
    (value,), findings = outcome.right, outcome.world.findings if options.get("races") else ()
    outcome.world.close()
    return value, findings


def shown(way):
    ptx = kernel(way)
    return {received(ptx, schedule="random", memory="weak", seed=seed)[0] for seed in range(SEEDS)}


@pytest.mark.parametrize("way", sampled(UNORDERED), ids=str)
def test_what_the_barrier_does_not_order_is_seen_late(way):
    assert shown(way) == {0, 5}


@pytest.mark.parametrize("way", sampled(ORDERED), ids=str)
def test_what_the_barrier_orders_is_never_seen_late(way):
    assert shown(way) == {5}


@needs("checks")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_checker_finds_a_race_just_where_the_barrier_does_not_order(way):
    value, findings = received(kernel(way), races=True)
    assert value == 5
    assert bool(findings) != (way.is_ordered and way != NARROW), [one.sentence() for one in findings]


def test_the_assembler_takes_the_kernels():
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    for way in WAYS[::5]:
        assert assembled(ptxas, kernel(way), "sm_90a").problems == (), way


def test_an_observer_of_several_blocks_has_whole_clusters():
    """Otherwise blocks of one cluster could be in two places, and what a scope of cluster orders be seen late."""
    clusters = Clusters((12, 1, 1), (4, 1, 1), True)
    launched = Launched("kernel", (0,), (0,), 12, 1024, clusters)
    clocks = Clocks(1, 4)
    clocks.begin(launched)
    found = clocks.observers_of(launched, np.arange(0, 12 * 1024, 1024))
    assert found.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_an_acquire_takes_only_what_was_observed_at_its_place():
    """A strong read of a flag observes what the writer's fence releases: an acquire of another word, of other bytes or
    through another address does not take it."""
    clocks, scope = Clocks(1, 2), SCOPES["gpu"]
    clocks.release_fence(0, scope)
    released = clocks.heads_of_write(0, 7, 1, 0, scope, False)
    clocks.observe(1, released, 7, 1, 0)
    for place in ((8, 1, 0), (7, 2, 0), (7, 1, 1)):
        clocks.acquire_read(1, *place, scope)
        assert clocks.rows[1, BASE, 0] == 0
    clocks.acquire_read(1, 7, 1, 0, scope)
    assert clocks.rows[1, BASE, 0] == released[0].count > 0


PAIRS = """
    shr.u32 %r3, %lane, 6; add.u32 %r4, %r3, 1; mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %data, %d1; add.u64 %d3, %out, %d1; and.b32 %r5, %lane, 63;
    setp.ne.u32 %p1, %r5, 0; @%p1 bra MEET; st.global.u32 [%d2], 5;
    MEET: bar.sync %r4, 64;
    setp.ne.u32 %p1, %r5, 32; @%p1 bra END; ld.global.u32 %r2, [%d2]; st.global.u32 [%d3], %r2;
    END:"""


@pytest.mark.parametrize("seed", range(12))
def test_barriers_whose_number_a_register_has_are_apart(seed):
    """Two pairs of warps meet, each at a barrier of its own, in any order."""
    values = {name: np.zeros(2, np.uint32) for name in ("data", "out")}
    assert ran(PAIRS, values, 1, 128, schedule="random", memory="weak", seed=seed).right == [[5, 5]]
