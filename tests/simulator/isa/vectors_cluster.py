"""Vectors of clusters, launched in clusters of two blocks: each sample works on shared memory of the other block.

A vector begins and ends with a barrier of the cluster, so that no block is over while another uses its memory. A sample
stores what its neighbour, the same thread of the other block, has sent it at that neighbour's place of the output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from simulator_bench import SAMPLES, Array, Store, Vector
from simulator_oracle import signed, wrap
from simulator_vectors_atomic import FORMS, HALVES, bits_of, function_of, operands
from simulator_vectors_integer import samples
from simulator_vectors_memory import COUNTS, TYPES, homes

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


def to_neighbour(bits: int, value: str = "got") -> str:
    """Store a register at the neighbour's place of the output."""
    return f"mad.lo.u64 o, o, {bits // 8}, %out; st.global.b{bits} [o+{{to}}], {value}; "


def sent(key: str, name: str, text: str, kind: str, values: Array, received: Array, registers: str = "") -> Vector:
    """A vector of what samples send as "a" and their neighbours receive as "got"."""
    bits = int(kind[1:])
    rows = np.ascontiguousarray(received.astype(f"u{bits // 8}")).reshape(-1, 1).view(np.uint8)
    place = Store(rows, np.arange(SAMPLES, dtype=np.int64) * (bits // 8), SAMPLES * bits // 8)
    declared = f"{REGISTERS} .reg .{kind} got; {registers}"
    whole = PLACES + SYNC + text + SYNC + to_neighbour(bits)
    return Vector(key, name, whole, (("a", kind, values),), (), {}, {"to": place}, declared)


def family() -> list[Vector]:
    parts = (places(), addresses(), accesses(), atomics(), barriers())
    return [vector for part in parts for vector in part]


def places() -> Iterator[Vector]:
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
    text = "mov.u64 w, %gridid; cvt.u32.u64 d, w; mov.u32 e, %gridid; add.u32 d, d, e;"
    yield Vector("mov.u64", "gridid", text, (), (("d", "b32", 0 * one),), registers=".reg .b64 w; .reg .b32 e;")


def addresses() -> Iterator[Vector]:
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
        yield Vector(
            key,
            "variable",
            f"{PLACES} {key} d, pool+8; sub.u32 d, d, me;",
            (),
            (("d", "b32", np.zeros(SAMPLES)),),
            registers=REGISTERS,
        )
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


def accesses() -> Iterator[Vector]:
    """All types and vectors: a store to the neighbour, and a load from it."""
    for vector, count in COUNTS.items():
        for kind in TYPES:
            if bits_of(kind) * count > 128 or count == 8:
                continue
            for home in homes(kind):
                yield from _round_trip(vector, count, kind, home)


def _round_trip(vector: str, count: int, kind: str, home: int) -> Iterator[Vector]:
    """What a sample stores to its neighbour's block it loads from there; and the first of it the neighbour has."""
    size = bits_of(kind) // 8
    columns = [samples(home, one) for one in range(count)]
    stores, loads = ([f"{letter}{one}" for one in range(count)] for letter in "ad")
    kept = [[wrap(int(v), 8 * size) for v in column] for column in columns]
    back = [[wrap(signed(v, 8 * size) if kind[0] == "s" else v, home) for v in column] for column in kept]
    s, d = (one[0] if not vector else "{" + ", ".join(one) + "}" for one in (stores, loads))
    orders = (
        [("", ""), ("relaxed.cluster.", "acquire.cluster.")]
        if vector
        else [("weak.", "weak."), ("release.sys.", "relaxed.cta.")]
    )
    for store, load in orders:
        body = f"st.{store}shared::cluster.{vector}{kind} [r+16], {s}; {SYNC} ld.{load}shared::cluster.{vector}{kind} {d}, [r+16]; "
        width = max(16, 8 * size)
        mine = f"ld.shared.b{8 * size} got, [s+16]; "
        inputs = tuple((n, f"b{home}", c) for n, c in zip(stores, columns, strict=True))
        outputs = tuple((n, f"b{home}", np.array(c, np.uint64)) for n, c in zip(loads, back, strict=True))
        rows = np.array(kept[0], np.uint64).astype(f"u{width // 8}").reshape(-1, 1).view(np.uint8)
        place = {"to": Store(rows, np.arange(SAMPLES, dtype=np.int64) * (width // 8), SAMPLES * width // 8)}
        text = PLACES + SYNC + body + mine + SYNC + to_neighbour(width)
        for opcode in ("st", "ld"):
            key = f"{opcode}.shared::cluster.{vector}{kind}"
            yield Vector(key, f"r{home}_{store}", text, inputs, outputs, {}, place, f"{REGISTERS} .reg .b{width} got;")


def atomics() -> Iterator[Vector]:
    """Cells of the neighbour's block, by their own addresses and by generic ones."""
    forms = [(word, "", kind) for word, kinds in FORMS.items() for kind in kinds]
    forms += [("add", "noftz.", kind) for kind in HALVES]
    for word, noftz, kind in forms:
        for opcode in ("atom", "red"):
            if opcode == "red" and word in ("exch", "cas"):
                continue
            for space in ("shared::cluster.", ""):
                yield _cell(opcode, space, word, noftz, kind)


def _cell(opcode: str, space: str, word: str, noftz: str, kind: str) -> Vector:
    bits = bits_of(kind)
    columns = operands(word, kind)[: 3 if word == "cas" else 2]
    function = function_of(word, kind, in_global=False)
    new = np.array([function(*map(int, row)) for row in zip(*columns, strict=True)], np.uint64)
    names = ("first", "a", "b")[: len(columns)]
    target = "d, " if opcode == "atom" else ""
    key = f"{opcode}.{space}{word}.{noftz}{kind}"
    generic = "cvt.u64.u32 w, r; " + ("" if space else "cvta.shared::cluster.u64 w, w; ")
    text = (
        f"{PLACES} {SYNC} st.shared::cluster.b{bits} [r], first; {generic} {key} {target}[w], {', '.join(names[1:])}; "
        f"ld.shared::cluster.b{bits} e, [r]; {SYNC}"
    )
    inputs = tuple((name, f"b{bits}", values) for name, values in zip(names, columns, strict=True))
    outputs = [("e", f"b{bits}", new)] + ([("d", f"b{bits}", columns[0])] if opcode == "atom" else [])
    return Vector(key, "of_the_neighbour", text, inputs, tuple(outputs), registers=REGISTERS)


def barriers() -> Iterator[Vector]:
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
