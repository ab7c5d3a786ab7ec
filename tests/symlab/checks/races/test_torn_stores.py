"""A vector store that an order by access tears is one access of all its elements, to listeners and the race checker."""

import numpy as np
import pytest

from simulator.isa import tearing
from simulator.memory.space import MULTICAST
from simulator.observe.events import Listener
from tests.simulator.harness import executable, make_world, module, put, start, succeed

SEEDS = range(12)
ORDERS = ("random", "adversarial")
SHARED_BYTES = 1024
SHARED = f".shared .align 16 .b8 stage[{SHARED_BYTES}];"
EACH = "shl.b64 %d1, %lane64, 4; add.u64 %d2, %mine, %d1; add.u64 %d3, %peer, %d1; add.u64 %d4, %all, %d1;"
STORES = {
    "own memory": "st.global.v4.b32 [%d2], {%lane, %lane, %lane, %lane};",
    "a peer's memory": "st.relaxed.sys.global.v2.b64 [%d3], {%d1, %d1};",
    "a generic address": "st.v4.b32 [%d3], {%lane, %lane, %lane, %lane};",
    "all replicas": "multimem.st.relaxed.sys.global.v4.f32 [%d4], {%lane, %lane, %lane, %lane};",
    "shared memory": "shl.b32 %r1, %r0, 4; st.shared.v4.b32 [%r1], {%lane, %lane, %lane, %lane};",
}
"""Stores of 16 bytes by each thread."""


class Kept(Listener):
    """The stores that a world tells, and how many of their parts it ran first."""

    def __init__(self):
        self.stores = []
        self.values = []

    def access(self, event):
        self.stores += [event] if event.action in ("store", "broadcast") else []

    shared_access = access

    def stored(self, event):
        self.values.append(event)


def ran(body, block=8, grid=2, listener=None, **options):
    """The world of two ranks on which the body has run. Each has 64 words of zeros as %mine, which peers see as %peer,
    and all at once as %all."""
    world = make_world(2, **options)
    if listener is not None:
        world.space.events.add(listener)
    kernel = executable(module(SHARED + body, ["u64 mine", "u64 peer", "u64 all", "u32 rank"]))

    def program(fabric):
        mine = put(fabric, "mine", np.zeros(64, np.uint32))
        fabric.barrier()
        values = [mine.address, fabric.peer_address(mine, 1 - fabric.rank), fabric.multicast_address(mine), fabric.rank]
        start(fabric, kernel, grid, block, values)
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    return world


@pytest.fixture
def torn(monkeypatch):
    """The elements, as bits, that came first in some torn access of the test."""
    seen = set()

    def first_of(mask, elements, original=tearing.first_of):
        seen.add(original(mask, elements))
        return original(mask, elements)

    monkeypatch.setattr(tearing, "first_of", first_of)
    return seen


def described(world, kept):
    """Of each lane that stored: who, to which index (-1: none) and address, how many bytes, with which instruction."""
    found = []
    for event in kept.stores:
        viewer, count = np.broadcast_to(event.viewer, event.count), event.count
        starts = [world.space.base(int(rank)) for rank in viewer]
        addresses = event.addresses.tolist()
        index = [-1] * count if event.index is None else event.index.tolist()
        if event.index is not None:
            window = MULTICAST * world.space.capacity if event.space == "multicast" else 0
            assert index == [one - begin - window for one, begin in zip(addresses, starts, strict=True)]
            follow = bool((np.diff(event.index) == event.width_bytes).all())
            assert event.is_affine == follow
        rest = [(event.width_bytes, event.instruction.mnemonic)] * count
        who = zip(event.ranks.tolist(), event.blocks.tolist(), event.threads.tolist(), strict=True)
        found += list(zip(who, index, addresses, rest, strict=True))
    return sorted(found)


@pytest.mark.parametrize("store", STORES.values(), ids=list(STORES))
def test_a_torn_store_is_told_as_the_whole_one(store, torn):
    whole = Kept()
    expected = described(ran(EACH + store, listener=whole), whole)
    assert len(expected) == 32
    assert not torn
    for schedule in ORDERS:
        for seed in SEEDS:
            kept = Kept()
            world = ran(EACH + store, listener=kept, schedule=schedule, seed=seed)
            assert described(world, kept) == expected
    assert any(one & 1 == 0 for one in torn), "none began with another element than the first"


def findings(body, **options):
    return ran(body, races=True, **options).findings


BESIDE = "setp.eq.u32 %p1, %block, 0; @%p1 bra FIRST; st.global.b32 [%mine+OFFSET], %lane; ret; FIRST: "
FIRST = "st.global.v4.b32 [%mine], {%lane, %lane, %lane, %lane};"


@pytest.mark.parametrize("schedule", ORDERS)
class TestRaces:
    """Seeds decide which elements come first, and not what is a race."""

    def test_neighbours_up_to_the_end_of_a_tensor_are_apart(self, schedule, torn):
        body = EACH + "st.global.v4.b32 [%d2], {%lane, %lane, %lane, %lane};"
        for seed in SEEDS:
            assert not findings(body, block=1, grid=16, schedule=schedule, seed=seed)
        assert any(one & 1 == 0 for one in torn)

    @pytest.mark.parametrize(("offset", "is_race"), [(0, True), (4, True), (12, True), (16, False), (24, False)])
    def test_who_stores_beside_a_vector_races_with_none_of_its_elements(self, schedule, offset, is_race, torn):
        body = BESIDE.replace("OFFSET", str(offset)) + FIRST
        for seed in SEEDS:
            found = findings(body, block=1, schedule=schedule, seed=seed)
            assert {one.severity for one in found} == ({"race"} if is_race else set())
        assert any(one & 1 == 0 for one in torn)


def told_values(body, **options):
    """Where in their rank's heap or block lanes stored, and what."""
    kept = Kept()
    ran(body, block=2, grid=1, listener=kept, **options)
    pairs = [pair for one in kept.values for pair in zip(one.places.tolist(), one.rows.tolist(), strict=True)]
    return {(place % SHARED_BYTES, tuple(row)) for place, row in pairs}


@pytest.mark.parametrize("space", ["global", "shared"])
def test_the_values_of_all_elements_are_told(space, torn):
    """Two lanes of a warp store to one place, what differs in the last element alone."""
    place = "%mine+32" if space == "global" else "stage+32"
    body = f"mov.u32 %r3, 5; st.{space}.v4.b32 [{place}], {{%r3, %r3, %r3, %lane}};"
    expected = told_values(body)
    assert {row for _, row in expected} == {(5, 5, 5, 0), (5, 5, 5, 1)}
    for seed in SEEDS:
        assert told_values(body, schedule="random", seed=seed) == expected
    assert any(one & 1 == 0 for one in torn)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_lanes_that_store_different_vectors_to_one_place_race(space, torn):
    place = "%mine+32" if space == "global" else "stage+32"
    body = f"mov.u32 %r3, 5; st.{space}.v4.b32 [{place}], {{%r3, %r3, %r3, %lane}};"
    for seed in SEEDS:
        found = findings(body, block=2, grid=1, schedule="random", seed=seed)
        assert {one.severity for one in found} == {"race"}
    assert torn
