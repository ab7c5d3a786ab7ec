"""Vectors of clusters, launched in clusters of two blocks: each sample works on shared memory of the other block.

A vector begins and ends with a barrier of the cluster, so that no block is over while another uses its memory. A sample
stores what its neighbour, the same thread of the other block, has sent it at that neighbour's place of the output.
"""

import numpy as np

from tests.simulator.bench import SAMPLES, Store, Vector
from tests.simulator.isa.vectors_atomic import bits_of, cells, function_of, operands
from tests.simulator.isa.vectors_integer import samples
from tests.simulator.isa.vectors_memory import COUNTS, TYPES, homes, round_trip

CLUSTER = 2
SHARED = "  .shared .align 16 .b8 pool[16384];\n  .shared .align 8 .b8 pool_barriers[1024];\n"
REGISTERS = ".reg .b32 t, s, r, m, n, me, you; .reg .b64 o, w, v; .reg .pred ok;"
SYNC = "barrier.cluster.arrive; barrier.cluster.wait; "
PLACES = (
    "mov.u32 t, %tid.x; mov.u32 s, pool; mad.lo.u32 s, t, 32, s; mov.u32 m, pool_barriers; mad.lo.u32 m, t, 8, m; "
    "mov.u32 me, %cluster_ctarank; xor.b32 you, me, 1; mapa.shared::cluster.u32 r, s, you; mapa.shared::cluster.u32 n, m, you; "
    "sub.s32 t, you, me; mov.u32 you, %ntid.x; mad.lo.s32 t, t, you, %lane; cvt.u64.u32 o, t; mov.u32 t, %tid.x; xor.b32 you, me, 1; "
)
"""s, m: the sample's 32 bytes and its mbarrier in its own block; r, n: the same of its neighbour; o: whose number it is."""


def to_neighbour(bits, value="got"):
    """Store a register at the neighbour's place of the output."""
    return f"mad.lo.u64 o, o, {bits // 8}, %out; st.global.b{bits} [o+{{to}}], {value}; "


def sent(key, name, text, kind, values, received, registers=""):
    """A vector of what samples send as "a" and their neighbours receive as "got"."""
    bits = int(kind[1:])
    rows = np.ascontiguousarray(received.astype(f"u{bits // 8}")).reshape(-1, 1).view(np.uint8)
    place = Store(rows, np.arange(SAMPLES, dtype=np.int64) * (bits // 8), SAMPLES * bits // 8)
    declared = f"{REGISTERS} .reg .{kind} got; {registers}"
    whole = PLACES + SYNC + text + SYNC + to_neighbour(bits)
    return Vector(key, name, whole, (("a", kind, values),), (), {}, {"to": place}, declared)


def family():
    parts = (places(), addresses(), accesses(), atomics(), barriers(), mbarriers(), copies(), stores(), reductions())
    return [vector for part in parts for vector in part]


def places():
    """Special registers in a grid of one row of clusters."""
    one = np.ones(SAMPLES, np.uint32)
    text = (
        "mov.u32 a, %ctaid.x; shr.u32 b, a, 1; mov.u32 c, %clusterid.x; sub.u32 d, c, b; and.b32 b, a, 1;"
        "mov.u32 c, %cluster_ctarank; sub.u32 c, c, b; or.b32 d, d, c; mov.u32 c, %cluster_ctaid.x; sub.u32 c, c, b; or.b32 d, d, c;"
        "mov.u32 a, %nctaid.x; mov.u32 b, %nclusterid.x; shl.b32 b, b, 1; sub.u32 b, b, a; or.b32 d, d, b; add.u32 d, d, 1;"
    )
    yield Vector("mov.u32", "places", text, (), (("d", "b32", one),), registers=".reg .b32 a, b, c;")
    for name in ("%cluster_nctaid.x", "%cluster_nctarank"):
        yield Vector("mov.u32", name[1:], f"mov.u32 d, {name};", (), (("d", "b32", 2 * one),))
    yield Vector("mov.pred", "explicit", "mov.pred d, %is_explicit_cluster;", (), (("d", "pred", one),))
    text = "mov.u64 w, %gridid; cvt.u32.u64 d, w; mov.u32 e, %gridid; sub.u32 d, d, e; setp.gt.u64 p, w, 0;"
    outputs = (("d", "b32", 0 * one), ("p", "pred", one))
    yield Vector("mov.u64", "gridid", text, (), outputs, registers=".reg .b64 w; .reg .b32 e;")


def addresses():
    """An address that mapa makes holds what the neighbour stored there, and getctarank tells whose it is."""
    a = samples(32, 0)
    for kind, register in (("u32", "r"), ("u64", "w")):
        start = "cvt.u64.u32 v, s; " if kind == "u64" else "mov.u32 w, s; "
        source = "v" if kind == "u64" else "s"
        key = f"mapa.shared::cluster.{kind}"
        start = start if kind == "u64" else ""
        text = f"st.shared.b32 [s], a; {start}{key} {register}, {source}, you; {SYNC} ld.shared::cluster.b32 got, [{register}]; "
        yield sent(key, "register", text, "b32", a, a)
        text = f"shl.b32 s, t, 2; mov.u32 r, pool; add.u32 s, s, r; st.shared.b32 [s], a; {key} {register}, pool+4, you; {SYNC}"
        wide = "mad.wide.u32 w, t, 4, w; " if kind == "u64" else "mad.lo.u32 r, t, 4, r; "
        yield sent(key, "variable", text + f"{wide} ld.shared::cluster.b32 got, [{register}+-4]; ", "b32", a, a)
        key = f"getctarank.shared::cluster.{kind}"
        convert = "cvt.u64.u32 v, s; cvt.u64.u32 w, r; " if kind == "u64" else ""
        names = ("v", "w") if kind == "u64" else ("s", "r")
        text = (
            f"{convert}{key} d, {names[0]}; {key} e, {names[1]}; sub.u32 d, d, me; sub.u32 e, e, you; add.u32 d, d, 5;"
        )
        outputs = (("d", "b32", np.full(SAMPLES, 5)), ("e", "b32", np.zeros(SAMPLES)))
        yield Vector(key, "both", PLACES + text, (), outputs, registers=REGISTERS)
        text = f"{PLACES} {key} d, pool+8; sub.u32 d, d, me;"
        yield Vector(key, "variable", text, (), (("d", "b32", np.zeros(SAMPLES)),), registers=REGISTERS)
    generic = "cvt.u64.u32 v, s; cvta.shared.u64 v, v; "
    text = f"st.shared.b32 [s], a; {generic} mapa.u64 w, v, you; {SYNC} ld.b32 got, [w]; "
    yield sent("mapa.u64", "generic", text, "b32", a, a)
    text = f"st.shared.b32 [s], a; cvt.u64.u32 v, r; cvta.shared::cluster.u64 v, v; {SYNC} ld.b32 got, [v]; "
    yield sent("cvta.shared::cluster.u64", "used", text, "b32", a, a)
    text = f"{PLACES} {generic} mapa.u64 w, v, you; getctarank.u64 d, v; getctarank.u64 e, w; sub.u32 d, d, me; sub.u32 e, e, you;"
    outputs = (("d", "b32", np.zeros(SAMPLES)), ("e", "b32", np.zeros(SAMPLES)))
    yield Vector("getctarank.u64", "both", text, (), outputs, registers=REGISTERS)
    for space, good in (("shared::cta", 0), ("shared::cluster", 1), ("shared", 0), ("global", 0)):
        text = (
            f"{PLACES} {generic} mapa.u64 w, v, you; isspacep.{space} d, w; mapa.u64 w, v, me; isspacep.{space} e, w;"
        )
        own = int(space != "global")
        outputs = (("d", "pred", np.full(SAMPLES, good)), ("e", "pred", np.full(SAMPLES, own)))
        yield Vector(f"isspacep.{space}", "of_the_neighbour", text, (), outputs, registers=REGISTERS)


def accesses():
    """All types and vectors: a store to the neighbour, and a load from it."""
    for vector, count in COUNTS.items():
        for kind in TYPES:
            if bits_of(kind) * count > 128 or count == 8:
                continue
            for home in homes(kind):
                yield from _round_trip(vector, count, kind, home)


def _round_trip(vector, count, kind, home):
    """What a sample stores to its neighbour's block it loads from there; and the first of it the neighbour has."""
    size = bits_of(kind) // 8
    s, d, inputs, outputs = round_trip(count, kind, home, "ad")
    sent = inputs[0][2].astype(f"u{size}").astype(f"u{max(2, size)}")
    orders = (
        [("", ""), ("relaxed.cluster.", "acquire.cluster.")]
        if vector
        else [("weak.", "weak."), ("release.sys.", "relaxed.cta.")]
    )
    for store, load in orders:
        body = f"st.{store}shared::cluster.{vector}{kind} [r+16], {s}; {SYNC} ld.{load}shared::cluster.{vector}{kind} {d}, [r+16]; "
        width = max(16, 8 * size)
        mine = f"ld.shared.b{8 * size} got, [s+16]; "
        rows = sent.reshape(-1, 1).view(np.uint8)
        place = {"to": Store(rows, np.arange(SAMPLES, dtype=np.int64) * (width // 8), SAMPLES * width // 8)}
        text = PLACES + SYNC + body + mine + SYNC + to_neighbour(width)
        for opcode in ("st", "ld"):
            key = f"{opcode}.shared::cluster.{vector}{kind}"
            yield Vector(key, f"r{home}_{store}", text, inputs, outputs, {}, place, f"{REGISTERS} .reg .b{width} got;")


def atomics():
    """Cells of the neighbour's block, by their own addresses and by generic ones."""
    for one in cells(("shared::cluster.", "")):
        generic = "cvt.u64.u32 w, r; " + ("" if one.space else "cvta.shared::cluster.u64 w, w; ")
        whose = ""
        if one.kind.endswith("x2"):  # of the own block, by its address in the cluster: see test_clusters
            whose = "mapa.shared::cluster.u32 r, s, me; "
        text = (
            f"{PLACES} {whose} {SYNC} st.shared::cluster.b{one.bits} [r], first; {generic} {one.text} "
            f"ld.shared::cluster.b{one.bits} e, [r]; {SYNC}"
        )
        yield Vector(one.key, "of_the_neighbour", text, one.inputs, one.outputs, registers=REGISTERS)


def barriers():
    """Without the barrier a sample would not find what its neighbour stored."""
    a = samples(32, 1)
    forms = {
        "barrier.cluster.arrive": ("barrier.cluster.arrive; barrier.cluster.wait;",),
        "barrier.cluster.arrive.release": ("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",),
        "barrier.cluster.arrive.relaxed": (
            "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
        ),
        "barrier.cluster.wait": ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",),
        "barrier.cluster.wait.acquire": (
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
        ),
    }
    for key, texts in forms.items():
        for barrier in texts:
            text = f"st.shared::cluster.b32 [r], a; {barrier} ld.shared.b32 got, [s]; "
            yield sent(key, "exchange", text, "b32", a, a)
    for key, fence in {
        "fence.sync_restrict::shared::cta": "fence.release.sync_restrict::shared::cta.cluster",
        "fence.sync_restrict::shared::cluster": "fence.acquire.sync_restrict::shared::cluster.cluster",
        "fence.proxy.async.shared::cluster": "fence.proxy.async.shared::cluster",
    }.items():
        text = f"st.shared::cluster.b32 [r], a; {fence}; {SYNC} ld.shared.b32 got, [s]; "
        yield sent(key, "fence", text, "b32", a, a)


# What an mbarrier of the neighbour's block counts

COUNTED = "mbarrier::complete_tx::bytes"
INIT = "mbarrier.init.shared::cta.b64 [m], {count}; "
GONE = "mbarrier.inval.shared::cta.b64 [m]; "
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], {size}; "
WAIT = "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 ok, [m], 0; @!ok bra AGAIN; "


def mbarriers():
    """What a sample does to its neighbour's mbarrier, and what it finds at its own when both have done it."""
    arrive = "mbarrier.arrive{more}.shared::cluster.b64 _, [n]{operand}; "
    one = arrive.format(more="", operand="")
    expecting = arrive.format(more=".expect_tx.release.cluster", operand=", 8")
    drop = "mbarrier.arrive_drop.shared::cluster.b64 _, [n]; "
    dropping = "mbarrier.arrive_drop.expect_tx.relaxed.cluster.shared::cluster.b64 _, [n], 8; "
    expect = "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [n], 24; "
    complete = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [n], {size}; "
    scripts = {
        "mbarrier.arrive.shared::cluster.b64": (
            (3, one, "0?", arrive.format(more=".release.cluster", operand=", 2"), "0?", "1?"),
            "010",
        ),
        "mbarrier.arrive.expect_tx.shared::cluster.b64": ((1, expecting, "0?", complete.format(size=8), "0?"), "01"),
        "mbarrier.arrive_drop.shared::cluster.b64": ((2, drop, "0?", one, "0?", one, "1?"), "011"),
        "mbarrier.arrive_drop.expect_tx.shared::cluster.b64": (
            (2, dropping, one, "0?", complete.format(size=8), "0?", one, "1?"),
            "011",
        ),
        "mbarrier.expect_tx.shared::cluster.b64": ((1, expect, one, "0?", complete.format(size=24), "0?"), "01"),
        "mbarrier.complete_tx.shared::cluster.b64": (
            (1, expect, complete.format(size=16), one, "0?", complete.format(size=8), "0?"),
            "01",
        ),
    }
    for key, ((count, *steps), answers) in scripts.items():
        ask = "mbarrier.test_wait.parity.shared::cta.b64 ok, [m], @; selp.b32 t, 1, 0, ok; shl.b32 d, d, 1; or.b32 d, d, t; "
        meaning = {"0?": ask.replace("@", "0"), "1?": ask.replace("@", "1")}
        script = "".join(SYNC + meaning.get(step, step) for step in steps)
        text = f"{PLACES} mov.u32 d, 0; {INIT.format(count=count)} {script} {SYNC} {GONE}"
        expected = np.full(SAMPLES, int(answers, 2), np.uint32)
        yield Vector(key, "of_the_neighbour", text, (), (("d", "b32", expected),), registers=REGISTERS)


ROWS = np.random.default_rng(12).integers(0, 1 << 32, (SAMPLES, 4), np.uint64).astype(np.uint32)


def counted(key, name, begin, issue, value, size, received, **how):
    """A vector of samples that send `size` bytes to their neighbours, who wait for them and read `value` into "got"."""
    rows = np.ascontiguousarray(received.astype(np.uint32)).reshape(-1, 1).view(np.uint8)
    place = Store(rows, np.arange(SAMPLES, dtype=np.int64) * 4, SAMPLES * 4)
    text = f"{PLACES} {INIT.format(count=1)} {EXPECT.format(size=size)} {begin} {SYNC} {issue} {WAIT} {value} {SYNC} {GONE} {to_neighbour(32)}"
    inputs, blobs = how.get("inputs", ()), how.get("blobs", {})
    registers = f"{REGISTERS} .reg .b32 got; {how.get('registers', '')}"
    return Vector(key, name, text, inputs, (), blobs, {"to": place}, registers)


def copies():
    """Bulk copies to the neighbour's memory, from shared memory and from global memory; and to both blocks at once."""
    key = f"cp.async.bulk.shared::cluster.shared::cta.{COUNTED}"
    held = {"from": ROWS}
    fill = "mad.lo.u64 v, %lane64, 16, %in; " + "".join(
        f"ld.global.b32 t, [v+{{from}}+{4 * number}]; st.shared.b32 [s+{4 * number}], t; " for number in range(4)
    )
    for number in (0, 3):
        read = f"ld.shared.b32 got, [s+{16 + 4 * number}]; "
        issue = f"{key} [r+16], [s], 16, [n]; "
        yield counted(key, f"word_{number}", fill, issue, read, 16, ROWS[:, number], blobs=held)
    load = f"cp.async.bulk.shared::cluster.global.{COUNTED}"
    begin = "mad.lo.u64 v, %lane64, 16, %in; "
    issue, read = f"{load} [r], [v+{{from}}], 16, [n]; ", "ld.shared.b32 got, [s+8]; "
    yield counted(load, "to_the_neighbour", begin, issue, read, 16, ROWS[:, 2], blobs=held)
    # Both samples of a pair send to both blocks, each to its own half of the 32 bytes.
    key = f"{load}.multicast::cluster"
    half, both = "shl.b32 t, me, 4; add.u32 s, s, t; ", ".reg .b16 both;"
    for hint, policy in (("", ""), (".L2::cache_hint", ", w")):
        name = f"{key}{hint}"
        mask = "mov.u64 w, 0; mov.u16 both, 3; "
        issue = f"{mask} {name} [s], [v+{{from}}], 16, [m], both{policy}; "
        read = "xor.b32 s, s, 16; ld.shared.b32 got, [s+4]; "
        yield counted(key, f"both{hint}", begin + half, issue, read, 32, ROWS[:, 1], blobs=held, registers=both)
    issue = f"mov.u16 both, 1; shl.b16 both, both, you; {key} [s], [v+{{from}}], 16, [m], both; "
    read = "ld.shared.b32 got, [s+12]; "
    yield counted(key, "one", begin, issue, read, 16, ROWS[:, 3], blobs=held, registers=both)


GENERIC = "cvt.u64.u32 v, r; cvta.shared::cluster.u64 v, v; cvt.u64.u32 w, n; cvta.shared::cluster.u64 w, w; "


def stores():
    """Registers sent to the neighbour: the last word of what comes, for all types and vectors."""
    for vector, kinds in (("", "bus"), ("v2.", "bus"), ("v4.", "bus")):
        for kind in (f"{letter}{bits}" for bits in (32, 64) for letter in (*kinds, "f")):
            count, bits = int(vector[1:2] or 1), int(kind[1:])
            if count * bits > 128:
                continue
            names = [f"a{number}" for number in range(count)]
            columns = [samples(bits, number) for number in range(count)]
            last = columns[-1] >> np.uint64(32) if bits == 64 else columns[-1]
            listed = names[0] if count == 1 else "{" + ", ".join(names) + "}"
            size = bits // 8 * count
            inputs = tuple((name, f"b{bits}", column) for name, column in zip(names, columns, strict=True))
            for space in ("shared::cluster.", ""):
                key = f"st.async.{space}{COUNTED}.{vector}{kind}"
                spelled = key if space else key.replace("st.async.", "st.async.weak.")
                places = ("r", "n") if space else ("v", "w")
                generic = "" if space else GENERIC
                issue = f"{generic} {spelled} [{places[0]}], {listed}, [{places[1]}]; "
                read = f"ld.shared.b32 got, [s+{size - 4}]; "
                yield counted(key, "sent", "", issue, read, size, last, inputs=inputs)


def reductions():
    """The cell's first value is the sender's, too: the neighbour finds what becomes of it."""
    forms = {"add": "u32 s32 u64 s64", **dict.fromkeys(("inc", "dec"), "u32")}
    forms |= {**dict.fromkeys(("min", "max"), "u32 s32"), **dict.fromkeys(("and", "or", "xor"), "b32")}
    for word, kinds in forms.items():
        for kind in kinds.split():
            bits = bits_of(kind)
            first, a, _ = operands(word, kind)
            function = function_of(word, kind)
            new = np.array([function(int(x), int(y)) for x, y in zip(first, a, strict=True)], np.uint64)
            last = new >> np.uint64(32) if bits == 64 else new
            inputs = (("first", f"b{bits}", first), ("a", f"b{bits}", a))
            for space in ("shared::cluster.", ""):
                key = f"red.async.{space}{COUNTED}.{word}.{kind}"
                spelled = key.replace("red.async.", "red.async.relaxed.cluster.")
                places = ("r", "n") if space else ("v", "w")
                generic = "" if space else GENERIC
                issue = f"st.shared::cluster.b{bits} [r], first; {generic} {spelled} [{places[0]}], a, [{places[1]}]; "
                read = f"ld.shared.b32 got, [s+{bits // 8 - 4}]; "
                yield counted(key, "sent", "", issue, read, bits // 8, last, inputs=inputs)
