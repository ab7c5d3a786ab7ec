"""Vectors of bulk copies and reductions, and of the fences between proxies. When they take place is test_copies' business.

Each thread has 64 bytes of the stage and an mbarrier of its own, which it makes and takes away again.
"""

import numpy as np

import tests.simulator.isa.vectors_atomic as atomics
from tests.simulator.bench import SAMPLES, Store, Vector

SHARED = "  .shared .align 16 .b8 bulk_stage[8192];\n  .shared .align 8 .b8 bulk_barriers[1024];\n"
REGISTERS = ".reg .b32 t, s, m; .reg .b64 g, o, c; .reg .pred p;"
ROW_BYTES = 64
PLACES = (
    "mov.u32 t, %tid.x; mov.u32 s, bulk_stage; mad.lo.u32 s, t, 64, s; mov.u32 m, bulk_barriers; "
    "mad.lo.u32 m, t, 8, m; mad.lo.u64 g, %lane64, 64, %in; mad.lo.u64 o, %lane64, 64, %out; "
)
SEEN = "fence.proxy.async; "
"""Lets bulk copies see what the thread has stored: a GPU needs it, the simulator does not."""
POLICY = "createpolicy.fractional.L2::evict_first.b64 c, 1.0; "
WORDS = np.random.default_rng(11).integers(0, 1 << 32, (SAMPLES, ROW_BYTES // 4), np.uint64).astype(np.uint32)
OFFSETS = np.arange(SAMPLES, dtype=np.int64) * ROW_BYTES
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
COUNTED = "mbarrier::complete_tx::bytes"
WITHIN = {"add": "u32 s32 u64", "min": "u32 s32", "max": "u32 s32", "inc": "u32", "dec": "u32"}
WITHIN |= {"and": "b32", "or": "b32", "xor": "b32"}
TO_GLOBAL = {"add": "u32 s32 u64 f32 f64 f16 bf16", "inc": "u32", "dec": "u32"}
TO_GLOBAL |= {"min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16"}
TO_GLOBAL |= {"and": "b32 b64", "or": "b32 b64", "xor": "b32 b64"}
"""The PTX ISA's table of operations and types of cp.reduce.async.bulk; ptxas takes the same (test_ptxas)."""


def family():
    return [vector for part in (loads(), stores(), waits(), reductions(), hints(), fences()) for vector in part]


def family_masks():
    return list(masks())


def wait_for(parity, word="try_wait", space="shared::cta"):
    return f"AGAIN: mbarrier.{word}.parity.{space}.b64 p, [m], {parity}; @!p bra AGAIN; "


def loads():
    """Each word of a copy of 48 bytes, which the wait has made visible."""
    for space in ("shared::cta", "shared::cluster"):
        key = f"cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes"
        for number in (0, 5, 11):
            text = (
                f"{PLACES} mbarrier.init.shared::cta.b64 [m], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 48; "
                f"{key} [s], [g+{{from}}], 48, [m]; {wait_for(0)} ld.shared.b32 d, [s+{4 * number}]; "
                "mbarrier.inval.shared::cta.b64 [m];"
            )
            blobs = {"from": WORDS}
            yield Vector(key, f"word_{number}", text, (), (("d", "b32", WORDS[:, number]),), blobs, {}, REGISTERS)


def stores():
    """From global memory through the stage and out again, one after the other, 16 bytes and more."""
    for size in (16, 64):
        text = (
            f"{PLACES} mbarrier.init.shared::cta.b64 [m], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], {size}; "
            f"{LOAD} [s], [g+{{from}}], {size}, [m]; {wait_for(0)} {STORE} [o+{{to}}], [s], {size}; "
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mbarrier.inval.shared::cta.b64 [m];"
        )
        rows = WORDS.view(np.uint8)[:, :size].copy()
        place = {"to": Store(rows, OFFSETS, SAMPLES * ROW_BYTES)}
        yield Vector(STORE, f"{size}_bytes", text, (), (), {"from": WORDS}, place, REGISTERS)


def waits():
    """What a wait for groups promises: of all but the latest n groups; read back from global memory."""
    a = WORDS[:, 0]
    begin = f"{PLACES} add.u64 o, o, {{to}}; add.u32 b, a, 1; " + "".join(
        f"st.shared.b32 [s+{4 * number}], a; " for number in range(8)
    )
    overwrite = "".join(f"st.shared.b32 [s+{4 * number}], b; " for number in range(4))
    first, second = f"{STORE} [o], [s], 16; ", f"{STORE} [o+16], [s+16], 16; "
    commit, all_done, back = "cp.async.bulk.commit_group; ", "cp.async.bulk.wait_group 0; ", "ld.global.b32 d, [o+12]; "
    are_read = "cp.async.bulk.wait_group.read 0; "
    texts = {
        "cp.async.bulk.commit_group": [first, commit, second, commit, "cp.async.bulk.wait_group 1; ", back, all_done],
        "cp.async.bulk.wait_group": [first, second, commit, all_done, back],
        # The source may be overwritten once it has been read: what arrives is what it held before.
        "cp.async.bulk.wait_group.read": [first, second, commit, are_read, overwrite, all_done, back],
    }
    for key, parts in texts.items():
        place = {"to": Store(np.repeat(a, 8).view(np.uint8).reshape(SAMPLES, 32), OFFSETS, SAMPLES * ROW_BYTES)}
        inputs, outputs, registers = (("a", "b32", a),), (("d", "b32", a),), f"{REGISTERS} .reg .b32 b;"
        yield Vector(key, "read_back", "".join([begin, SEEN, *parts]), inputs, outputs, {}, place, registers)


def reductions():
    """A target of elements in global memory, each changed once; subnormals are kept, those of f32 too."""
    for word, kinds in TO_GLOBAL.items():
        for kind in kinds.split():
            noftz = ".noftz" if word == "add" and kind in ("f16", "bf16") else ""
            yield _reduction(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{word}{noftz}.{kind}", word, kind)


def family_within():
    """The same in shared memory, in a launch with clusters."""
    return [
        _within(f"cp.reduce.async.bulk.shared::cluster.shared::cta.{COUNTED}.{word}.{kind}", word, kind)
        for word, kinds in WITHIN.items()
        for kind in kinds.split()
    ]


def elements(word, kind):
    """16 bytes a sample as words: what the target holds, what is given, and what it holds afterwards."""
    first, given, _ = atomics.operands(word, kind)
    function = atomics.function_of(word, kind, in_global=False)
    count = 128 // atomics.bits_of(kind)
    columns = [[np.roll(one, 13 * number) for number in range(count)] for one in (first, given)]
    after = [
        np.array([function(int(x), int(y)) for x, y in zip(old, new, strict=True)], np.uint64).astype(old.dtype)
        for old, new in zip(*columns, strict=True)
    ]
    old, new, end = (np.stack(one, axis=1).view(np.uint32) for one in (*columns, after))
    return old, new, end


def inputs_of(**words):
    return tuple((f"{name}{at}", "b32", values[:, at]) for name, values in words.items() for at in range(4))


def _reduction(key, word, kind):
    old, new, after = elements(word, kind)
    text = (
        f"{PLACES} add.u64 o, o, {{to}}; st.global.v4.b32 [o], {{f0, f1, f2, f3}}; "
        f"st.shared.v4.b32 [s], {{a0, a1, a2, a3}}; {SEEN}{key} [o], [s], 16; cp.async.bulk.commit_group; "
        "cp.async.bulk.wait_group 0; "
    )
    place = {"to": Store(after.view(np.uint8), OFFSETS, SAMPLES * ROW_BYTES)}
    return Vector(key, "elements", text, inputs_of(f=old, a=new), (), {}, place, REGISTERS)


def _within(key, word, kind):
    old, new, after = elements(word, kind)
    text = (
        f"{PLACES} mbarrier.init.shared.b64 [m], 1; st.shared.v4.b32 [s], {{f0, f1, f2, f3}}; "
        f"st.shared.v4.b32 [s+16], {{a0, a1, a2, a3}}; mbarrier.arrive.expect_tx.shared.b64 _, [m], 16; "
        f"{SEEN}{key} [s], [s+16], 16, [m]; {wait_for(0)} ld.shared.v4.b32 {{d0, d1, d2, d3}}, [s]; mbarrier.inval.shared.b64 [m];"
    )
    outputs = tuple((f"d{at}", "b32", after[:, at]) for at in range(4))
    return Vector(key, "elements", text, inputs_of(f=old, a=new), outputs, {}, {}, REGISTERS)


def masks():
    """A bit a byte of each 16: what it leaves out stays, in the target, and may be poison in the source."""
    key = f"{STORE}.cp_mask"
    bits = np.random.default_rng(3).integers(0, 1 << 16, SAMPLES).astype(np.uint16)
    chosen = np.tile(bits[:, None] >> np.arange(16, dtype=np.uint16) & 1 == 1, (1, 2))
    raw = WORDS[:, :8].copy().view(np.uint8)
    rows = np.where(chosen, raw, 0x77).astype(np.uint8)
    begin = f"{PLACES} add.u64 o, o, {{to}}; " + "".join(f"st.global.b32 [o+{4 * at}], 0x77777777; " for at in range(8))
    fill = "".join(f"ld.global.b32 t, [g+{{from}}+{4 * at}]; st.shared.b32 [s+{4 * at}], t; " for at in range(8))
    end = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; "
    for name, words, policy in (("drawn", "", ""), ("with_a_hint", ".L2::cache_hint", " g,")):
        text = f"{begin}{POLICY}{fill}{SEEN}{STORE}{words}.cp_mask [o], [s], 32,{policy} b; {end}"
        place = {"to": Store(rows, OFFSETS, SAMPLES * ROW_BYTES)}
        yield Vector(key, name, text, (("b", "b16", bits),), (), {"from": WORDS}, place, REGISTERS)


def hints():
    """A policy changes nothing, and neither does a prefetch."""
    key, store = LOAD, f"{STORE}.L2::cache_hint"
    text = (
        f"{PLACES}{POLICY} mbarrier.init.shared::cta.b64 [m], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 16; "
        "cp.async.bulk.prefetch.L2.global [g+{from}], 16; cp.async.bulk.prefetch.L2.global.L2::cache_hint [g+{from}], 16, c; "
        f"{key}.L2::cache_hint [s], [g+{{from}}], 16, [m], c; {wait_for(0)} {store} [o+{{to}}], [s], 16, c; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mbarrier.inval.shared::cta.b64 [m];"
    )
    rows = WORDS.view(np.uint8)[:, :16].copy()
    for named in (key, STORE, "cp.async.bulk.prefetch.L2.global"):
        place = {"to": Store(rows, OFFSETS, SAMPLES * ROW_BYTES)}
        yield Vector(named, "hint", text, (), (), {"from": WORDS}, place, REGISTERS)
    key = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
    hinted = _reduction(key, "add", "u32")
    text = hinted.text.replace(".bulk_group.add", ".bulk_group.L2::cache_hint.add").replace("[s], 16;", "[s], 16, c;")
    yield Vector(key, "hint", POLICY + text, hinted.inputs, (), {}, hinted.stores, REGISTERS)


def fences():
    """They leave every register as it was; memory is one here, whichever proxy looks at it."""
    a = WORDS[:, 1]
    forms = {
        "fence.mbarrier_init": "fence.mbarrier_init.release.cluster",
        "fence.proxy.async": "fence.proxy.async",
        "fence.proxy.async.global": "fence.proxy.async.global",
        "fence.proxy.async.shared::cta": "fence.proxy.async.shared::cta",
    }
    for key, spelled in forms.items():
        text = f"add.u32 d, a, 1; {spelled}; add.u32 d, d, 1;"
        yield Vector(key, "nothing", text, (("a", "b32", a),), (("d", "b32", a + np.uint32(2)),))
