"""What a kernel may not do with memory: a wrong access is named by rank, block, thread, address, tensor and lines."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from memory.fabric import DeviceFault, PeerLost
from simulator.memory.space import MULTICAST, LaneFault
from tests.golden import refused, same_text
from tests.simulator.harness import executable, make_world, module, put, run, start

FILES = '.file 1 "kernels/example.py"\n'
SIZE = 1000  # of tensor "data": its last granule isn't full
BIG_BLOCK = 1024
BIG_GRID = 34  # 34,816 lanes of a rank: three chunks


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses the kernels of this file start from, as one rank sees them."""

    data: int
    hole: int  # where a freed tensor was
    fresh: int  # allocated, never written
    half: int  # written in its first half only
    peer: int
    multicast: int
    world: int


def launch(body, base, ranks=1, grid=1, block=1, guilty=None, **options):
    """Run body with %base = base(places) on all ranks (on the guilty one; the others get a good address)."""
    ptx = module(body, ["u64 base"], before=FILES)

    def program(fabric):
        fabric.allocate(4096, 256, "before")
        data = put(fabric, "data", np.arange(SIZE, dtype=np.uint8))
        hole = put(fabric, "gone", np.zeros(512, np.uint8))
        fresh = fabric.allocate(1 << 20, 256, "fresh")
        half = fabric.allocate(1 << 20, 256, "half")
        fabric.write(half, 0, torch.zeros(1 << 19, dtype=torch.uint8))
        fabric.free(hole)
        peers = fabric.peer_address(data, (fabric.rank + 1) % ranks), fabric.multicast_address(data)
        places = Places(data.address, hole.address, fresh.address, half.address, *peers, fabric.world_size)
        mine = guilty is None or fabric.rank == guilty
        start(fabric, executable(ptx), grid, block, [base(places) if mine else places.half])
        fabric.synchronize()
        return data

    return run(make_world(ranks, heap_bytes=(16 << 20) - 4096, **options), program)


def fault(*arguments, **more):
    outcome = launch(*arguments, **more)
    found = [one for one in outcome.errors if isinstance(one, DeviceFault)]
    assert len(found) == 1, outcome.errors
    others = [one for one in outcome.errors if one is not found[0]]
    assert all(isinstance(one, PeerLost) and str(found[0]) in str(one) for one in others)
    return str(found[0])


LOAD = "  .loc 1 42 7\n  ld.global.b32 %r1, [%base];"
STORE = "  .loc 1 43 7\n  st.global.b32 [%base], %r1;"
ADD = "  .loc 1 44 7\n  red.global.add.u32 [%base], 1;"
TRY = "  .loc 1 45 7\n  atom.global.cas.b32 %r1, [%base], 0, 1;"


@pytest.mark.parametrize("body", [LOAD, STORE, ADD, TRY], ids=["load", "store", "red", "cas"])
@pytest.mark.parametrize(
    "base",
    [
        lambda p: p.data + SIZE,
        lambda p: p.data + SIZE + 24,
        lambda p: p.data + 4096,
        lambda p: p.data - 4,
        lambda p: p.data + 2,
        lambda p: p.data + 1,
        lambda p: p.hole + 16,
        lambda p: p.fresh + (8 << 20),
        lambda p: 0,
        lambda p: 8,
        lambda p: 1 << 20,
        lambda p: (1 << 63) + 8,
        lambda p: -4,
        lambda p: p.data + (3 << 24),
        lambda p: p.multicast,
    ],
)
def test_one_thread(body, base):
    same_text(fault(body, base))


@pytest.mark.parametrize(
    "base",
    [
        lambda p: p.data - 8,
        lambda p: p.data - (1 << 64) - 8,
        lambda p: p.data - 2000,
        lambda p: p.data + ((1 << 32) - 3) * 4,
        lambda p: p.data + 64 + ((1 << 32) - 1) * 8,
        lambda p: p.data + (1 << 32) - 4,
    ],
)
@pytest.mark.parametrize("ranks", [1, 72])
def test_an_index_that_wrapped_below_zero(base, ranks):
    same_text(fault(LOAD, lambda p: base(p) % 2**64, ranks=ranks, guilty=0))


def test_an_access_that_begins_inside_and_ends_past_the_end():
    text = fault("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%base];", lambda p: p.data + 992)
    said = "byte 992 of tensor 'data' of 1000 bytes): outside every live tensor, it ends 8 bytes past the end; PTX line"
    assert said in text


@pytest.mark.parametrize("body", [LOAD, ADD, TRY], ids=["load", "red", "cas"])
def test_poison(body):
    same_text(fault(body, lambda p: p.fresh + 64))


def test_the_ptx_line_is_the_one_of_the_text():
    same_text(fault("  // a comment\n\n  /* two\n  lines */\n" + LOAD, lambda p: p.fresh))


@pytest.mark.parametrize("body", [LOAD, "multimem.ld_reduce.global.add.f32 %r1, [%base];"], ids=["own", "multicast"])
def test_another_ranks_address(body):
    """An address means something on the rank it was made for only; the others' kernels go on until they hear of it."""
    ptx = module(body, ["u64 base"], before=FILES)

    def program(fabric):
        data = put(fabric, "data", np.zeros(64, np.uint8))
        notes = fabric.exchange(str(data.address if body == LOAD else fabric.multicast_address(data)))
        start(fabric, executable(ptx), 1, 1, [int(notes[0])])
        fabric.synchronize()

    error = run(make_world(2), program).errors[1]
    assert isinstance(error, DeviceFault)
    same_text(str(error))


@pytest.mark.parametrize(
    "body",
    [
        "multimem.ld_reduce.relaxed.sys.global.add.f32 %r1, [%base];",
        "multimem.st.relaxed.sys.global.f32 [%base], %r1;",
        "multimem.red.release.sys.global.add.u32 [%base], %r1;",
    ],
)
class TestMultimem:
    def test_on_an_ordinary_address(self, body):
        for base in (lambda p: p.data, lambda p: p.peer, lambda p: 0):
            same_text(fault(body, base, ranks=2))

    def test_misaligned(self, body):
        same_text(fault(body, lambda p: p.multicast + 2))

    def test_past_the_end(self, body):
        same_text(fault(body, lambda p: p.multicast + SIZE, ranks=2))

    def test_freed(self, body):
        assert "freed tensor 'gone'" in fault(body, lambda p: p.multicast + p.hole - p.data)

    def test_poison(self, body):
        if "multimem.st" in body:
            assert not any(launch(body, lambda p: p.multicast + p.fresh - p.data).errors)
        else:
            assert "never written (poison)" in fault(body, lambda p: p.multicast + p.fresh - p.data)


WIDE = [
    ("multimem.ld_reduce.global.add.v4.f32 {%r1, %r2, %r3, %r4}, [%base];", 16, True),
    ("multimem.ld_reduce.global.min.v8.bf16 {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}, [%base];", 16, True),
    ("multimem.ld_reduce.global.add.acc::f32.v2.f16x2 {%r1, %r2}, [%base];", 8, True),
    ("multimem.red.global.add.v4.f16x2 [%base], {%r1, %r2, %r3, %r4};", 16, True),
    ("multimem.st.global.v2.bf16x2 [%base], {%r1, %r2};", 8, True),
    ("ld.volatile.global.v4.b32 {%r1, %r2, %r3, %r4}, [%base];", 16, False),
    ("st.relaxed.sys.global.v2.b64 [%base], {%d1, %d2};", 16, False),
]


@pytest.mark.parametrize(("body", "width", "switch"), WIDE, ids=[body.split(" ")[0] for body, _, _ in WIDE])
def test_a_vector_is_aligned_to_its_whole_width(body, width, switch):
    def place(p):
        return p.multicast if switch else p.data

    assert not any(launch(body, lambda p: place(p) + width).errors)
    same_text(fault(body, lambda p: place(p) + width // 2))


def test_a_replica_that_one_rank_has_not_written():
    ptx = module("  multimem.ld_reduce.global.add.f32 %r1, [%base];", ["u64 base"])

    def program(fabric):
        data = fabric.allocate(64, 256, "data")
        if fabric.rank != 2:
            fabric.write(data, 0, torch.zeros(64, dtype=torch.uint8))
        start(fabric, executable(ptx), 1, 1, [fabric.multicast_address(data)])
        fabric.synchronize()

    outcome = run(make_world(4), program)
    assert "never written (poison)" in str(outcome.error())
    assert "rank 2's heap" in str(outcome.error())


WIDTHS = [
    ("b8", "", 1),
    ("b16", "", 2),
    ("b32", "", 4),
    ("b64", "", 8),
    ("b32", "v2.", 8),
    ("b64", "v2.", 16),
    ("b32", "v4.", 16),
]


@pytest.mark.parametrize(("kind", "vector", "width"), WIDTHS)
def test_up_to_the_last_byte(kind, vector, width):
    """The last access that fits passes; the next one, and one that begins inside and ends outside, do not."""
    part = "%d" if kind == "b64" else "%h" if kind in ("b8", "b16") else "%r"
    count = int(vector[1]) if vector else 1
    names = ", ".join(f"{part}{one + 1}" for one in range(count))
    target = names if count == 1 else "{" + names + "}"
    size = 1000 // width * width
    load = f"ld.global.{vector}{kind} {target}, [%base];"
    store = f"st.global.{vector}{kind} [%base], {target};"
    for body in (load, store):
        assert not any(launch(body, lambda p: p.data + size - width).errors)
        end = -(-SIZE // width) * width
        assert "outside every live tensor" in fault(body, lambda p, end=end: p.data + end)
        if width > 1:
            same_text(fault(body, lambda p: p.data + size - width + width // 2))
    if SIZE % width:
        assert "outside every live tensor" in fault(load, lambda p: p.data + size)


def test_partial_poison():
    """One unwritten byte of four is enough."""
    ptx = module("  ld.global.b32 %r1, [%base+4];", ["u64 base"])
    for missing in range(4, 8):

        def program(fabric, missing=missing):
            data = fabric.allocate(64, 256, "data")
            for byte in range(12):
                if byte != missing:
                    fabric.write(data, byte, torch.zeros(1, dtype=torch.uint8))
            start(fabric, executable(ptx), 1, 1, [data.address])
            fabric.synchronize()

        outcome = run(make_world(1), program)
        same_text(str(outcome.error()))


# Big launches: the lane that does wrong is in the middle of a chunk, and every shape of access has its own way through.

VICTIM = 20_000


def spread(shape, wrong):
    """Every lane's address in "half", and the victim's off it."""
    place = {
        "affine": "mul.wide.u32 %d1, %lane, 4;",
        "reversed": f"mov.u32 %r2, {BIG_GRID * BIG_BLOCK - 1}; sub.u32 %r2, %r2, %lane; mul.wide.u32 %d1, %r2, 4;",
        "strided": "mul.wide.u32 %d1, %lane, 8;",
        "uniform": "mov.u64 %d1, 64;",
    }[shape]
    return f"{place} add.s64 %d1, %d1, %base; setp.eq.u32 %p1, %lane, {VICTIM}; @%p1 {wrong}"


@pytest.mark.parametrize("shape", ["affine", "reversed", "strided", "uniform"])
@pytest.mark.parametrize(
    "wrong", ["add.s64 %d1, %d1, 1048576;", "add.s64 %d1, %d1, 2;", "mov.b64 %d1, 16;", "add.s64 %d1, %d1, 524288;"]
)
@pytest.mark.parametrize("schedule", ["fair", "random"])
def test_a_lane_in_the_middle(shape, wrong, schedule):
    body = f"{spread(shape, wrong)}\n  .loc 1 77 3\n  ld.global.b32 %r1, [%d1];"
    same_text(fault(body, lambda p: p.half, grid=BIG_GRID, block=BIG_BLOCK, schedule=schedule))


@pytest.mark.parametrize("shape", ["affine", "strided"])
@pytest.mark.parametrize(("grid", "block"), [(3, 96), (BIG_GRID, BIG_BLOCK)])
def test_the_guilty_rank(shape, grid, block):
    """Frames of small launches hold several ranks' lanes, of big ones one rank's."""
    victim = 200
    body = spread(shape, "add.s64 %d1, %d1, %extra;").replace(str(VICTIM), str(victim))
    ptx = module(body + "\n  ld.global.b32 %r1, [%d1];", ["u64 base", "u64 extra"])

    def program(fabric):
        half = put(fabric, "half", np.zeros(1 << 19, np.uint8))
        start(fabric, executable(ptx), grid, block, [half.address, (1 << 20) if fabric.rank == 2 else 0])
        fabric.synchronize()

    outcome = run(make_world(4, heap_bytes=4 << 20), program)
    assert [type(one) for one in outcome.errors] == [PeerLost, PeerLost, DeviceFault, PeerLost]
    same_text(str(outcome.errors[2]))


def test_a_guarded_access_names_the_thread_that_did_it():
    """The lanes that run are fewer than those that come by: positions among them are not positions in the block."""
    body = "and.b32 %r1, %lane, 3; setp.eq.u32 %p1, %r1, 3; mul.wide.u32 %d1, %lane, 4; add.s64 %d1, %d1, %base;"
    text = fault(body + " @%p1 st.global.b32 [%d1], %r1;", lambda p: p.data, grid=5, block=64)
    same_text(text)  # byte 1004 of 1000; thread 250 ends at 1004 and isn't one of them


def test_a_diverged_group_names_the_thread_that_did_it():
    body = (
        "and.b32 %r1, %lane, 3; setp.ne.u32 %p1, %r1, 3; mul.wide.u32 %d1, %lane, 4; add.s64 %d1, %d1, %base;"
        "@%p1 bra END; st.global.b32 [%d1], %r1; END:"
    )
    same_text(fault(body, lambda p: p.data, grid=5, block=64))


SHARED = ".shared .align 4 .b8 buffer[20];"


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r2, buffer; ld.shared.b32 %r1, [%r2];",
        "mov.u32 %r2, buffer; st.shared.b32 [%r2+20], %r1;",
        "mov.u32 %r2, buffer; st.shared.b32 [%r2+2], %r1;",
        "mov.u32 %r2, buffer; st.shared.b32 [%r2+-4], %r1;",
        "mov.u32 %r2, buffer; st.shared.v4.b32 [%r2+16], {%r1, %r1, %r1, %r1};",
        "st.shared.b8 [buffer], %r1; st.shared.b8 [buffer+3], %r1; ld.shared.b32 %r1, [buffer];",
        "st.shared.b8 [buffer+1], %r1; st.shared.b16 [buffer+2], %r1; ld.shared.b32 %r1, [buffer];",
    ],
)
def test_shared_memory(body):
    same_text(fault(SHARED + body, lambda p: p.data))


STAGE = ".shared .align 16 .b8 s[16]; st.shared.v4.u32 [s], {%r1, %r1, %r1, %r1};"
DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
BULK = "cp.async.bulk.global.shared::cta.bulk_group"
REACHES = {
    "a load": "ld.global.u32 %r1, [%base];",
    "a store": "st.global.u32 [%base], %lane;",
    "an atomic": "atom.global.add.u32 %r1, [%base], 1;",
    "lanes of both ranks": "setp.eq.u32 %p1, %lane, 0; selp.b64 %d1, %data, %base, %p1; ld.global.u32 %r1, [%d1];",
    "a copy of a lane": ".shared .align 16 .b8 s[16]; cp.async.ca.shared.global [s], [%base], 4;",
    "a bulk copy": f"{STAGE} {BULK} [%base], [s], 16; {DONE}",
    "multimem": "multimem.red.global.add.u32 [%many], %lane;",
    "a bulk multimem": f"{STAGE} multimem.{BULK} [%many], [s], 16; {DONE}",
}


@pytest.mark.parametrize("how", [*REACHES, "own"])
@pytest.mark.parametrize("is_local", [True, False])
def test_local_buffers_are_reached_by_their_own_rank_only(how, is_local):
    """A local buffer's address on the other rank, from where a symmetric one lies there."""
    body = REACHES.get(how, REACHES["a store"])
    ptx = module(body, ["u64 base", "u64 data", "u64 many"])

    def program(fabric):
        data, mine = (put(fabric, name, np.zeros(256, np.uint8)) for name in ("data", "mine"))
        many = fabric.multicast_address(mine)
        if is_local:
            fabric.declare_local(mine)
        fabric.barrier()
        other = fabric.peer_address(data, 1 - fabric.rank if how != "own" else fabric.rank)
        values = [other + mine.address - data.address, data.address, many]
        start(fabric, executable(ptx), 1, 4 if "lanes" in how else 1, values)
        fabric.synchronize()

    errors = run(make_world(2), program).errors
    if not is_local or how == "own":
        assert errors == [None, None]
        return
    found = next(str(one) for one in errors if isinstance(one, DeviceFault))
    same_text(found)


def test_a_freed_local_buffer_leaves_nothing_behind():
    """Tensors that follow where it lay are everyone's again."""
    ptx = module(REACHES["a store"], ["u64 base"])

    def program(fabric):
        mine = put(fabric, "mine", np.zeros(256, np.uint8))
        fabric.declare_local(mine)
        fabric.free(mine)
        ours = put(fabric, "ours", np.zeros(256, np.uint8))
        assert ours.address == mine.address
        fabric.barrier()
        start(fabric, executable(ptx), 1, 1, [fabric.peer_address(ours, 1 - fabric.rank)])
        fabric.synchronize()

    assert run(make_world(2), program).errors == [None, None]


def test_the_bytes_just_outside_all_heaps_hold_nothing():
    """Below the first heap and behind the last one, to a bulk copy; the same of multicast addresses."""
    space = make_world(1).space
    for outside in (-1, space.heaps_end):
        with refused(LaneFault):
            space.resolve_bulk(0, space.base(0) + outside, 16, "load")
    for outside in (-1, space.capacity):
        with refused(LaneFault):
            space.resolve_bulk_multicast(0, space.base(0) + MULTICAST * space.capacity + outside, 16, "copy")
