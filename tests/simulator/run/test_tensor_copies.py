"""Tensor copies in any order, what they touch for the race checker, and what is wrong with some."""

import struct

import numpy as np
import pytest

from memory.fabric import Deadlock, DeviceFault
from simulator.clock.costs import Costs
from simulator.isa import UnknownInstruction
from tests.golden import refused
from tests.simulator.harness import executable, get, make_world, module, put, run, start, succeed
from tests.simulator.isa import vectors_tensor as vectors
from tests.simulator.isa.tensor_maps import Map, NarrowMap, case_of, encoded, loaded, stored

ORDERS = [
    {"schedule": schedule, "granularity": granularity, "seed": seed, "memory": memory}
    for schedule, granularity in (("random", "access"), ("random", "block"), ("adversarial", "access"))
    for memory in ("strong", "weak")
    for seed in range(3)
]
CASES = [
    case_of(2, "bf16", 128, "whole", "inside", False, 1, 128),
    case_of(3, "u8", 64, "half", "below", False, 2, 0),
    case_of(2, "f16", 0, "whole", "odd", True, 1, 640),
]


@pytest.mark.parametrize("made", CASES, ids=str)
def test_copies_are_right_in_any_order(made):
    for options in ORDERS:
        vectors.check_load(*made, **options)
        if min(made[1]) >= 0:
            vectors.check_store(*made, **options)
    vectors.check_load(*made, "shared::cluster", 2, **ORDERS[0])


def test_reductions_are_right_in_any_order():
    for made, word in list(vectors.reductions())[::5]:
        for options in ORDERS[::4]:
            vectors.check_store(made, vectors.first_unit(made), 0, word, **options)


LISTENERS = [{"races": True}, {"clock": Costs()}]


@pytest.mark.parametrize("options", LISTENERS, ids=["races", "clock"])
def test_listeners_take_boxes_that_lie_anywhere(options):
    for made in (*CASES, case_of(2, "f32", 0, "whole", "far", False, 1, 0)):
        vectors.check_load(*made, **options)
        if min(made[1]) >= 0:
            vectors.check_store(*made, **options)


def test_a_store_by_a_multicast_address_reaches_every_replica():
    """As CUTLASS' all_reduce_tma stores its sums."""
    made, corner, shared = case_of(2, "bf16", 64, "whole", "beyond", False, 1, 0)
    tensor, box = (vectors.numbers(-(-size // 16) * 16, 7) for size in (made.tensor_bytes, made.box_bytes))
    words = [one % (1 << 32) for one in corner]

    def program(fabric):
        region, given = put(fabric, "tensor", tensor), put(fabric, "box", box)
        fabric.barrier()
        if fabric.rank == 1:
            values = [encoded(made, fabric.multicast_address(region)), given.address, made.box_bytes, shared, *words]
            start(fabric, executable(vectors.store_ptx(2)), 1, vectors.BLOCK, values)
        fabric.synchronize()
        fabric.barrier()
        return get(fabric, region, "u1").tobytes()

    for options in ORDERS:
        expected = stored(made, tensor.tobytes(), corner, shared, box.tobytes())
        assert succeed(make_world(3, **options), program).results == [expected] * 3


# Races

BYTES = Map("u8", (40, 4), (64,), (16, 4), (1, 1))
"""A box at (16, 1) is bytes 16 to 31 of rows 1 to 3 of 64 bytes; its fourth row is out of bounds."""
STAGE = (
    ".shared .align 128 .b8 stage[1024]; .shared .align 8 .b64 bar; .reg .b64 %m; .reg .pred %q; .reg .b32 %w;"
    "mov.b64 %m, kernel_map; cvta.param.u64 %m, %m; mov.u32 %r4, stage; mov.u32 %w, %tid.x; setp.eq.u32 %p0, %w, 0; "
)
FILL = "shl.b32 %r5, %w, 2; add.u32 %r5, %r5, %r4; st.shared.b32 [%r5], %w; "
FENCE = "fence.proxy.async; "
STORE = (
    "@!%p0 bra ELSE; cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {16, 1}], [%r4]; "
    "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bra END; ELSE: "
)
LOAD = (
    "@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async; "
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64; @!%p0 bra ELSE; cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%m, {16, 1}], "
    "[bar]; WAIT; bra END; ELSE: "
).replace("WAIT;", vectors.WAIT)
OTHER = "setp.eq.u32 %p1, %w, 32; @!%p1 bra END; "
OUTSIDE, INSIDE = (0, 40, 79, 96, 128 + 63, 272), (80, 95, 208, 223)
"""Bytes of the tensor that the box lacks, and that it has."""


def checked(body, place=0, **options):
    """What the race checker finds: (severity, missing) of pairs at the tensor; and of those in shared memory."""
    ptx = module(STAGE + body + "END:", ["struct128 map", "u64 tensor"])
    world = make_world(1, races=True, **options)

    def program(fabric):
        region = put(fabric, "tensor", np.zeros(512, np.uint8))
        start(fabric, executable(ptx), 1, 64, [encoded(BYTES, region.address), region.address + place])
        fabric.synchronize()

    succeed(world, program)
    return {(one.severity, one.first.tensor) for one in world.findings}


@pytest.mark.parametrize("place", [*OUTSIDE, *INSIDE])
def test_a_race_with_a_byte_of_the_box_and_none_with_its_neighbours(place):
    expected = {("race", "tensor")} if place in INSIDE else set()
    access = "mov.u16 %h1, 1; st.global.u8 [%tensor], %h1;"
    assert checked(f"{FILL} {FENCE} bar.sync 0; {STORE} {OTHER} {access}", place) == expected
    assert checked(f"{LOAD} {OTHER} {access}", place) == expected
    assert checked(f"{LOAD} {OTHER} ld.global.u8 %h1, [%tensor];", place) == set(), "two reads"


def test_a_store_writes_units_of_16_bytes_that_begin_inside():
    access = "mov.u16 %h1, 1; st.global.u8 [%tensor], %h1;"
    store, load = (one.replace("{16, 1}", "{32, 1}") for one in (STORE, LOAD))
    for place, is_written in {64 + 32: True, 64 + 39: True, 64 + 40: True, 64 + 47: True, 64 + 48: False}.items():
        written = {("race", "tensor")} if is_written else set()
        assert checked(f"{FILL} {FENCE} bar.sync 0; {store} {OTHER} {access}", place) == written
        assert bool(checked(f"{load} {OTHER} {access}", place)) == (place < 64 + 40)


def test_what_is_missing_between_shared_memory_and_the_copies():
    assert checked(f"{FILL} bar.sync 0; {STORE}") == {("proxy", "shared memory")}
    assert checked(f"{FILL} {FENCE} {STORE}") == {("race", "shared memory")}
    early = "ld.shared.b32 %r1, [%r4]; " + vectors.WAIT
    assert checked(f"{FILL} {FENCE} bar.sync 0; {LOAD}".replace(vectors.WAIT, early)) == {("race", "shared memory")}
    half = f"setp.ge.u32 %p1, %w, 12; @%p1 bra FILLED; {FILL} FILLED: {FENCE} bar.sync 0; {STORE}"
    assert checked(half) == set(), "the box's rows out of bounds are not read, and may be poison"


# Faults

BOX = Map("f32", (64, 32), (256,), (32, 8), (1, 1), 128)
PLAIN = Map("f32", (64, 32), (256,), (32, 8), (1, 1))
GO = (
    "@%p0 mbarrier.init.shared::cta.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; "
    "@%p0 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%m, {0, 0}], [bar]; "
) + vectors.WAIT


def word(at, value, mask=0xFFFFFFFF):
    """A change to a word of a map."""

    def change(content):
        words = list(struct.unpack("<32I", content))
        words[at] = words[at] & ~mask | value
        return struct.pack("<32I", *words)

    return change


def told(body=GO, change=lambda content: content, made=BOX, shift=0, is_multicast=False):
    ptx = module(STAGE.replace("[1024]", "[2048]") + body, ["struct128 map", "u64 tensor"])

    def program(fabric):
        region = put(fabric, "tensor", np.zeros(16384, np.uint8))
        address = fabric.multicast_address(region) if is_multicast else region.address + shift
        start(fabric, executable(ptx), 1, 1, [change(encoded(made, address)), region.address])
        fabric.synchronize()

    raise run(make_world(1), program).error()


STORED = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {0, 0}], [%r4]; "
REDUCED = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.bulk_group [%m, {{0, 0}}], [%r4];"
SHORT = Map("f32", (64, 32), (256,), (4, 8), (1, 1), 128)
PADDED = NarrowMap("b6x16_p32", (256, 8), (192,), (128, 4), (1, 1))
PADDED_STORE = NarrowMap("b4x16_p64", (256, 8), (128,), (128, 4), (1, 1))
FAULTS = {
    "shared_destination": {"body": GO.replace("[%r4]", "[%r4+64]")},
    "outside_shared": {"body": GO.replace("[%r4]", "[%r4+1152]")},
    "map_address": {"body": "add.u64 %m, %m, 16;" + GO},
    "no_map": {"change": word(2, 1)},
    "rank": {"body": GO.replace("2d", "3d").replace("{0, 0}", "{0, 0, 0}")},
    "rank_of_map": {"change": word(2, 7 << 4, 7 << 4)},
    "global_address": {"shift": 8},
    "row": {"change": word(13, 30 << 24, 255 << 24)},
    "span": {"change": word(13, 63 << 24, 255 << 24)},
    "row_shorter_than_the_swizzle": {"change": word(13, 3 << 24, 255 << 24), "made": SHORT},
    "interleaved": {"change": word(2, 1 << 11, 3 << 11)},
    "atoms": {"change": word(2, 1 << 22, 3 << 22)},
    "tf32": {"change": word(2, 14 << 7, 15 << 7)},
    "padded_row": {"change": word(2, 12 << 7, 15 << 7), "made": PLAIN},
    "odd_element_of_4_bits": {
        "body": GO.replace("{0, 0}", "{1, 0}"),
        "change": word(2, 11 << 7, 15 << 7),
        "made": PLAIN,
    },
    "corner": {"body": GO.replace("{0, 0}", "{2, 0}")},
    "stored_before_the_tensor": {"body": STORED.replace("{0, 0}", "{0, -1}")},
    "padded_corner": {"body": GO.replace("{0, 0}", "{64, 0}"), "made": PADDED},
    "padded_store": {"body": STORED, "made": PADDED_STORE},
    "unknown_type": {"change": word(2, 15 << 7, 15 << 7)},
    "nan_of_integers": {"change": word(2, 2 << 7 | 1 << 15, 15 << 7 | 1 << 15)},
    "beyond_the_tensor": {"body": GO.replace("{0, 0}", "{0, 60}"), "change": word(9, 99)},
    "reduction": {"body": "st.shared.b32 [%r4], 0; " + REDUCED.format("inc")},
    "poison": {"body": STORED + "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"},
    "multicast_load": {"is_multicast": True},
    "multicast_reduction": {"body": REDUCED.format("add"), "is_multicast": True},
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_tensor_copy(name):
    with refused(DeviceFault):
        told(**FAULTS[name])


@pytest.mark.parametrize("size", [512, 2048])
def test_an_mbarrier_whose_bytes_do_not_fit(size):
    with refused(Deadlock):
        told(GO.replace("1024", str(size)))


@pytest.mark.parametrize("options", [{}, *LISTENERS], ids=["plain", "races", "clock"])
def test_a_map_in_global_memory(options):
    """Such as a host puts there."""
    body = STAGE.replace("mov.b64 %m, kernel_map; cvta.param.u64 %m, %m;", "mov.b64 %m, %map;")
    ptx = module(f"{body} {GO} ld.shared.b32 %r1, [%r4+128+16]; st.global.b32 [%out], %r1;", ["u64 map", "u64 out"])

    def program(fabric):
        tensor = put(fabric, "tensor", np.arange(4096, dtype=np.uint32))
        where = put(fabric, "map", np.frombuffer(encoded(BOX, tensor.address), np.uint8))
        out = put(fabric, "out", np.zeros(4, np.uint32))
        start(fabric, executable(ptx), 1, 1, [where.address, out.address])
        fabric.synchronize()
        return int(get(fabric, out, "u4")[0])

    assert succeed(make_world(1, **options), program).results == [64], "row 1, whose first unit the swizzle puts second"


# Maps that a kernel changes

REPLACED = vectors.case_of(3, **vectors.REPLACED)[0]


@pytest.mark.parametrize("in_shared", [False, True], ids=["global", "shared"])
@pytest.mark.parametrize("rank", range(1, 6))
def test_a_map_of_which_a_kernel_replaces_the_fields(rank, in_shared):
    made = case_of(rank, **vectors.REPLACED)[0]
    for options in ({}, {"schedule": "random", "seed": 1}, {"memory": "weak", "seed": 2}, {"races": True}):
        found, box, tensor, address, world = vectors.replaced(made, in_shared, **options)
        assert found[:64] == encoded(made, address)[:64]
        assert box == loaded(made, tensor, (0,) * rank, 0)
        assert world.findings == ()


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%m], 128;"
BEFORE = [(ACQUIRE, ""), ("setp.eq.u32 %p0, %r0, 0;", f"setp.eq.u32 %p0, %r0, 0; {ACQUIRE}")]
BY_ANOTHER = [(ACQUIRE, f"setp.eq.u32 %p2, %r0, 1; @%p2 {ACQUIRE}")]


@pytest.mark.parametrize("changes", [[(ACQUIRE, "")], BEFORE, BY_ANOTHER], ids=["none", "before", "by_another"])
def test_a_copy_by_a_changed_map_wants_the_fence_behind_it(changes):
    *_, world = vectors.replaced(REPLACED, False, tuple(changes), races=True)
    missing = {(one.severity, one.missing) for one in world.findings}
    assert missing == {("proxy", "fence.proxy.tensormap::generic.acquire")}


def test_a_fence_of_a_map_is_for_global_memory():
    with refused(DeviceFault):
        told("fence.proxy.tensormap::generic.acquire.gpu [%m], 128;")


def test_a_dimension_that_maps_do_not_have_is_refused():
    with refused(UnknownInstruction):
        told("mov.b64 %m, %tensor; tensormap.replace.tile.global_stride.global.b1024.b64 [%m], 4, %tensor;")
