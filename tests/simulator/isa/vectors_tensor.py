"""Vectors of tensor copies: one launch each, of a box that a map and its corner describe (tensor_maps.py)."""

from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import pytest

import tests.simulator.isa.vectors_atomic as atomics
from memory.fabric import DeviceFault
from simulator.isa import key_of
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import ARCH, executable, get, make_world, module, put, start, succeed
from tests.simulator.isa.tensor_maps import SIZES, Map, case_of, encoded, loaded, pairwise_cases, stored
from tests.simulator.isa.vectors_bulk import TO_GLOBAL

STAGE_BYTES = 8192
BLOCK = 32
COUNTED = "mbarrier::complete_tx::bytes"
SHARED = f".shared .align 1024 .b8 stage[{STAGE_BYTES}]; .shared .align 8 .b64 bar; .reg .b64 %m, %o; .reg .pred %q;"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra AGAIN;"
EACH = "shl.b32 %r1, %r0, 2; {loop}: setp.ge.u32 %p1, %r1, %count; @%p1 bra {loop}_END; cvt.u64.u32 %d1, %r1; "
NEXT = "add.u32 %r1, %r1, 128; bra {loop}; {loop}_END:"
GROUPS = ("", "cta_group::1", "cta_group::2")
SPACES = ("shared::cta", "shared::cluster")


def each(loop, text):
    """Each thread runs the text for its words of the box, which are %d1 (%r1) bytes from its start."""
    return f"{EACH.format(loop=loop)} {text} {NEXT.format(loop=loop)}"


def corner_of(rank):
    return "{" + ", ".join(f"%c{at}" for at in range(rank)) + "}"


@cache
def load_ptx(rank, space="shared::cta", blocks=1, group=""):
    """A box to the stage, and from there to %out, of each block behind the other. group: cta_group::2 lets the even
    block's mbarrier count the bytes of both."""
    cast = ".multicast::cluster" if blocks > 1 else ""
    mask, sync = (", %h1", "barrier.cluster.arrive; barrier.cluster.wait;") if blocks > 1 else ("", "bar.sync 0;")
    form = f"cp.async.bulk.tensor.{rank}d.{space}.global.tile.{COUNTED}{cast}{group and '.' + group}"
    is_pair = group == "cta_group::2" and blocks > 1
    expected = f"shl.b32 %r7, %count, {int(is_pair)};"
    wait = f"mov.u32 %r8, %block; setp.ne.u32 %p3, %r8, 0; @%p3 bra OVER; {WAIT} OVER: {sync}" if is_pair else WAIT
    first = "setp.eq.u32 %p2, %lane, 0;"
    body = (
        "mov.b64 %m, kernel_map; prefetch.param.tensormap [%m]; cvta.param.u64 %m, %m; prefetch.tensormap [%m]; "
        "setp.eq.u32 %p0, %r0, 0; mov.u32 %r4, stage; add.u32 %r4, %r4, %at; mov.u32 %r5, bar; mov.u16 %h1, 3; "
        f"{first} @%p0 mbarrier.init.shared::cta.b64 [bar], 1; "
        f"{expected} @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r7; {sync} "
        f"@%p2 cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [%m, {corner_of(rank)}]; "
        f"@%p2 {form} [%r4], [%m, {corner_of(rank)}], [%r5]{mask}; {wait} "
        f"mul.lo.u32 %r6, %block, %count; cvt.u64.u32 %o, %r6; add.u64 %o, %o, %out; "
    )
    copy = "add.u32 %r2, %r4, %r1; ld.shared.b32 %r3, [%r2]; add.u64 %d2, %o, %d1; st.global.b32 [%d2], %r3;"
    ends = sync if blocks > 1 else ""
    return text_of(body + each("OUT", copy) + ends, rank, "sm_100a" if group else ARCH)


@cache
def store_ptx(rank, word=""):
    """%out, a box, to the stage and from there to the tensor."""
    form = f"cp{'.reduce' if word else ''}.async.bulk.tensor.{rank}d.global.shared::cta{word and '.' + word}.tile.bulk_group"
    body = "mov.b64 %m, kernel_map; cvta.param.u64 %m, %m; mov.u32 %r4, stage; add.u32 %r4, %r4, %at; "
    copy = "add.u64 %d2, %out, %d1; ld.global.b32 %r3, [%d2]; add.u32 %r2, %r4, %r1; st.shared.b32 [%r2], %r3;"
    go = (
        "fence.proxy.async; bar.sync 0; setp.eq.u32 %p0, %r0, 0; @!%p0 bra END; "
        f"{form} [%m, {corner_of(rank)}], [%r4]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:"
    )
    return text_of(body + each("IN", copy) + go, rank)


def text_of(body, rank, target=ARCH):
    corners = [f"u32 c{at}" for at in range(rank)]
    return module(body, ["struct128 map", "u64 out", "u32 count", "u32 at", *corners], "", SHARED, target)


def values_of(made, tensor, corner, shared, out):
    """The kernel's arguments; tensor and out are addresses."""
    return [encoded(made, tensor), out, made.box_bytes, shared, *(one % (1 << 32) for one in corner)]


def simulated(ptx, made, tensor, corner, shared, out, blocks, **options):
    """The bytes of the tensor and of %out after a launch."""
    arch = parse_kernel(ptx, "kernel").target

    def program(fabric):
        regions = [put(fabric, "tensor", tensor), put(fabric, "out", out)]
        values = values_of(made, regions[0].address, corner, shared, regions[1].address)
        start(fabric, executable(ptx, arch=arch), blocks, BLOCK, values, cluster=blocks)
        fabric.synchronize()
        fabric.barrier()
        return [get(fabric, one, "u1").tobytes() for one in regions]

    return succeed(make_world(1, **{"heap_bytes": 4 << 20, "arch": arch, **options}), program).results[0]


def numbers(count, seed):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def check_load(made, corner, shared, space="shared::cta", blocks=1, run=simulated, group="", **options):
    tensor = numbers(-(-made.tensor_bytes // 16) * 16, 1)
    ptx = load_ptx(len(made.box), space, blocks, group)
    out = np.zeros(blocks * made.box_bytes, np.uint8)
    _, found = run(ptx, made, tensor, corner, shared, out, blocks, **options)
    assert found == blocks * loaded(made, tensor.tobytes(), corner, shared)


def check_store(made, corner, shared, word="", run=simulated, **options):
    tensor, box = numbers(-(-made.tensor_bytes // 16) * 16, 2), numbers(made.box_bytes, 3)
    change = None
    if word:
        name = f"b{made.element[1:]}" if word in ("and", "or", "xor") else made.element
        change = atomics.function_of(word, name, in_global=False)
    found, _ = run(store_ptx(len(made.box), word), made, tensor, corner, shared, box, 1, **options)
    assert found == stored(made, tensor.tobytes(), corner, shared, box.tobytes(), change)


def check_refused(made, word, run=simulated):
    tensor, box = numbers(made.tensor_bytes, 2), numbers(made.box_bytes, 3)
    with pytest.raises(DeviceFault, match=r"it takes|ILLEGAL_INSTRUCTION"):
        run(store_ptx(len(made.box), word), made, tensor, first_unit(made), 0, box, 1)


REPLACED = {"element": "bf16", "swizzle": 128, "row": "whole", "corner": "odd", "nan": False, "step": 2, "shared": 0}
EMPTY = Map("bf16", (1,) * 5, (0,) * 4, (8, 1, 1, 1, 1), (1,) * 5, 128)
"""A map of which replace_ptx fills in the rest."""


def field_values(made, address):
    """Of each field and dimension, with its type, what a map has."""
    yield from (("rank", "", "b32", len(made.box) - 1), ("global_address", "", "b64", address))
    for name, some in (("global_dim", made.sizes), ("box_dim", made.box), ("element_stride", made.steps)):
        yield from ((name, f"{at}, ", "b32", value) for at, value in enumerate(some))
    yield from (("global_stride", f"{at}, ", "b64", value) for at, value in enumerate(made.strides))


@cache
def replace_ptx(made, in_shared, changes=()):
    """The map at %map is that of the tensor at %tensor, fenced, and a box comes by it: of one block of a warp. In shared
    memory it is changed there and copied."""
    space, at = ("shared::cta", "[%r9]") if in_shared else ("global", "[%m]")
    body = ["mov.b64 %m, %map; mov.u32 %r4, stage; mov.u32 %r9, copy; setp.eq.u32 %p0, %r0, 0; @!%p0 bra MADE;"]
    if in_shared:
        for at_byte in range(0, 128, 8):
            body += [f"ld.global.b64 %d3, [%m+{at_byte}]; st.shared.b64 [%r9+{at_byte}], %d3;"]
    for name, dimension, kind, value in field_values(made, 0):
        register = "%r8" if kind == "b32" else "%d3"
        body += [f"mov.{kind} {register}, {value};" if name != "global_address" else "mov.b64 %d3, %tensor;"]
        body += [f"tensormap.replace.tile.{name}.{space}.b1024.{kind} {at}, {dimension}{register};"]
    copy = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%m], [%r9], 128;"
    body += ["MADE: bar.warp.sync 0xffffffff;", copy if in_shared else "fence.proxy.tensormap::generic.release.gpu;"]
    body += ["bar.warp.sync 0xffffffff; fence.proxy.tensormap::generic.acquire.gpu [%m], 128;"]
    body += [
        "@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %count;"
    ]
    corner = "{" + ", ".join(["0"] * len(made.box)) + "}"
    form = f"cp.async.bulk.tensor.{len(made.box)}d.shared::cta.global.tile.{COUNTED}"
    body += [f"@%p0 {form} [%r4], [%m, {corner}], [bar]; bar.warp.sync 0xffffffff; {WAIT}"]
    body += [
        each(
            "OUT", "add.u32 %r2, %r4, %r1; ld.shared.b32 %r3, [%r2]; add.u64 %d2, %out, %d1; st.global.b32 [%d2], %r3;"
        )
    ]
    text = "\n".join(body)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    shared = f"{SHARED} .shared .align 128 .b8 copy[128];"
    return module(text, ["u64 map", "u64 tensor", "u64 out", "u32 count"], "", shared)


def replaced(made, in_shared, changes=(), **options):
    """What is in the map and in the box, the tensor's bytes and address, and the world."""
    ptx = replace_ptx(made, in_shared, changes)

    def program(fabric):
        tensor = put(fabric, "tensor", numbers(-(-made.tensor_bytes // 16) * 16, 1))
        regions = [
            put(fabric, "map", np.frombuffer(encoded(EMPTY, 0), np.uint8)),
            put(fabric, "out", np.zeros(made.box_bytes, np.uint8)),
        ]
        start(
            fabric, executable(ptx), 1, BLOCK, [regions[0].address, tensor.address, regions[1].address, made.box_bytes]
        )
        fabric.synchronize()
        fabric.barrier()
        return [get(fabric, one, "u1").tobytes() for one in (*regions, tensor)], tensor.address

    outcome = succeed(make_world(1, heap_bytes=4 << 20, **options), program)
    (found, address), world = outcome.results[0], outcome.world
    return *found, address, world


@lru_cache(maxsize=1)
def cases():
    return [case_of(**one) for one in pairwise_cases()]


REDUCTIONS = TO_GLOBAL | dict.fromkeys(("and", "or", "xor"), "u32 s32 u64")
"""A map's types by operation. An H200 refuses all others, s64 with and, or, xor too (28 November 2026)."""


def reductions():
    """Operations by type, at the end of a row, and over ranks: (map, word)."""
    for turn, (word, kinds) in enumerate(REDUCTIONS.items()):
        for at, element in enumerate(kinds.split()):
            made = _small(1 + (turn + at) % 5, element)
            yield made, word
            yield replace(made, sizes=(first_unit(made)[0] + 1, *made.sizes[1:])), word
    yield from ((_small(rank, "u32"), word) for rank in range(1, 6) for word in REDUCTIONS)


def refused_reductions():
    elements = {word: sorted({*SIZES} - {*kinds.split()}) for word, kinds in REDUCTIONS.items()}
    return [(_small(2, element), word) for word, some in elements.items() for element in some]


def first_unit(made):
    """A corner 16 bytes into a row, and 1 in all other dimensions."""
    return (16 // SIZES[made.element], *(1 for _ in made.strides))


def _small(rank, element):
    box = (16 // SIZES[element] * 2, 3, 2, 2, 2)[:rank]
    sizes, strides, reach = tuple(2 * one for one in box), [], 64
    for extent in sizes[1:]:
        strides.append(reach)
        reach *= extent
    return Map(element, sizes, tuple(strides), box, (1,) * rank)


@lru_cache(maxsize=1)
def keys():
    """Keys of the table that the vectors run."""
    how = (*((space, 1) for space in SPACES), ("shared::cluster", 2))
    made = [load_ptx(rank, *one, group) for rank in range(1, 6) for one in how for group in GROUPS]
    made += [store_ptx(rank, word) for rank in range(1, 6) for word in ("", *TO_GLOBAL)]
    made.append(load_ptx(1).replace("prefetch.param", "prefetch.const"))  # test_a_map_in_constant_memory_is_prefetched
    made += [replace_ptx(case_of(5, **REPLACED)[0], in_shared) for in_shared in (False, True)]
    kernels = [parse_kernel(one, "kernel") for one in made]
    return frozenset(key_of(one) for kernel in kernels for block in kernel.blocks for one in block.instructions)
