"""Vectors of atomics: every sample its own cell, few cells with much contention, the last one by a fold in Python.

Lanes of one step are served in lane order, so the old values are known in the shapes that run all lanes in order.
"""

import random
from dataclasses import dataclass

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.bench import SAMPLES, Array, Store, Vector
from tests.simulator.isa.oracle import F32, F64, FORMATS, signed, wrap
from tests.simulator.isa.vectors_float import column
from tests.simulator.isa.vectors_integer import GUARD, samples

FORMS = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
}
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
SHARED = "  .shared .align 16 .b8 cells[8192];\n"
WORDS = {
    "atom": ("", "relaxed.gpu.", "release.sys.", "acq_rel.sys.", "acquire.cta.", "sys."),
    "red": ("", "relaxed.gpu.", "release.sys.", "relaxed.sys.", "release.cta.", "sys."),
}


def flushed(bits):
    """A subnormal of f32 as a zero of its sign."""
    return bits if bits & 0x7F800000 else bits & 0x80000000


def by_halves(word, kind):
    """Both halves of a word, or the only one."""
    form = FORMATS[kind.removesuffix("x2")]

    def one(a, b):
        if word == "add":
            return oracle.add(a, b, form)
        return oracle.extreme(a, b, form, word == "max", False)

    if not kind.endswith("x2"):
        return one
    return lambda a, b: one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16


def function_of(word, kind, in_global=True):
    if kind in HALVES:
        return by_halves(word, kind)
    if kind == "f64":
        return lambda old, a: oracle.add(old, a, F64)
    if kind == "f32":
        if in_global:
            return lambda old, a: flushed(oracle.add(flushed(old), flushed(a), F32))
        return lambda old, a: oracle.add(old, a, F32)
    bits = int(kind[1:])

    def number(a):
        return signed(a, bits) if kind[0] == "s" else a

    table = {
        "add": lambda old, a: wrap(old + a, bits),
        "inc": lambda old, a: 0 if old >= a else old + 1,
        "dec": lambda old, a: a if old == 0 or old > a else old - 1,
        "min": lambda old, a: min(old, a, key=number),
        "max": lambda old, a: max(old, a, key=number),
        "and": lambda old, a: old & a,
        "or": lambda old, a: old | a,
        "xor": lambda old, a: old ^ a,
        "exch": lambda old, a: a,
        "cas": lambda old, a, b: b if old == a else old,
    }
    return table[word]


def bits_of(kind):
    return 32 if kind.endswith("x2") else int(kind.lstrip("busf"))


def operands(word, kind):
    """What cells hold first, and what is given to them."""
    bits = bits_of(kind)
    if kind in HALVES:
        form = FORMATS[kind.removesuffix("x2")]
        halves = [column(form, role).astype(np.uint32) for role in (0, 1)]
        if kind.endswith("x2"):
            halves = [one | np.roll(one, 7) << np.uint32(16) for one in halves]
        first, a = (one.astype(f"u{bits // 8}") for one in halves)
        return first, a, a
    if kind in ("f32", "f64"):  # also what rounds, and NaN
        return column(FORMATS[kind], 0), column(FORMATS[kind], 1), samples(bits, 2)
    first, a, b = samples(bits, 0), samples(bits, 1), samples(bits, 2)
    return (np.where(np.arange(SAMPLES) % 2 == 0, a, first) if word == "cas" else first), a, b


@dataclass(frozen=True, slots=True)
class Cell:
    """An operation on one cell, which holds `first` before and is read into `e` afterwards.

    text: the instruction, on the cell at [w]; atom's old value goes to d. inputs, outputs: a Vector's.
    """

    key: str
    space: str
    kind: str
    bits: int
    text: str
    inputs: tuple[tuple[str, str, Array], ...]
    outputs: tuple[tuple[str, str, Array], ...]


def cells(spaces):
    """Every form of shared memory in these spaces ("shared.", "" for generic addresses)."""
    forms = [(word, "", kind) for word, kinds in FORMS.items() for kind in kinds]
    forms += [("add", "noftz.", kind) for kind in HALVES]
    for word, noftz, kind in forms:
        for opcode in ("atom", "red"):
            if opcode == "red" and word in ("exch", "cas"):
                continue
            for space in spaces:
                yield _cell(opcode, space, word, noftz, kind)


def _cell(opcode, space, word, noftz, kind):
    bits = bits_of(kind)
    columns = operands(word, kind)[: 3 if word == "cas" else 2]
    function = function_of(word, kind, in_global=False)
    new = np.array([function(*map(int, row)) for row in zip(*columns, strict=True)], np.uint64)
    names = ("first", "a", "b")[: len(columns)]
    key = f"{opcode}.{space}{word}.{noftz}{kind}"
    text = f"{key} {'d, ' if opcode == 'atom' else ''}[w], {', '.join(names[1:])};"
    inputs = tuple((name, f"b{bits}", values) for name, values in zip(names, columns, strict=True))
    outputs = [("e", f"b{bits}", new)] + ([("d", f"b{bits}", columns[0])] if opcode == "atom" else [])
    return Cell(key, space, kind, bits, text, inputs, tuple(outputs))


def shared_cells():
    """Cells in shared memory, by their own addresses and by generic ones."""
    for one in cells(("shared.", "shared::cta.", "")):
        place = f"mov.u32 p, %tid.x; mul.lo.u32 p, p, {one.bits // 8}; mov.u32 q, cells; add.u32 p, p, q;"
        generic = "cvt.u64.u32 w, p; cvta.shared.u64 w, w;" if not one.space else "cvt.u64.u32 w, p;"
        text = f"{place} {generic} st.shared.b{one.bits} [p], first; {one.text} ld.shared.b{one.bits} e, [p];"
        yield Vector(one.key, "in_shared", text, one.inputs, one.outputs, registers=".reg .b32 p, q; .reg .b64 w;")


def packed():
    """Halves, alone and as vectors, and vectors of f32: every element for itself."""
    for space in ("", "global."):
        for kind in HALVES:
            for vector in ("", "v2", "v4") if kind.endswith("x2") else ("", "v2", "v4", "v8"):
                for word in ("add", "min", "max") if vector else ("add",):
                    for opcode in ("atom", "red"):
                        yield _vector_cells(opcode, space, word, "noftz.", vector, kind)
        for vector in ("v2", "v4"):
            for opcode in ("atom", "red"):
                yield _vector_cells(opcode, space, "add", "", vector, "f32")


def _vector_cells(opcode, space, word, noftz, vector, kind):
    bits, count = bits_of(kind), int(vector[1:] or 1)
    first, a, _ = operands(word, kind)
    function = function_of(word, kind)
    olds, givens = ([np.roll(one, 11 * number) for number in range(count)] for one in (first, a))
    news = [
        np.array([function(int(x), int(y)) for x, y in zip(old, given, strict=True)], np.uint64).astype(f"u{bits // 8}")
        for old, given in zip(olds, givens, strict=True)
    ]
    names = [[f"{letter}{number}" for number in range(count)] for letter in "fad"]

    def listed(registers):
        return registers[0] if not vector else "{" + ", ".join(registers) + "}"

    size = bits // 8 * count
    at = np.arange(SAMPLES, dtype=np.int64)[::-1] * size
    key = f"{opcode}.{space}{word}.{noftz}{vector}{'.' if vector else ''}{kind}"
    stores = " ".join(
        f"st.global.b{bits} [p+{{to}}+{bits // 8 * number}], {name};" for number, name in enumerate(names[0])
    )
    target = f"{listed(names[2])}, " if opcode == "atom" else ""
    text = f"add.s64 p, at, %out; {stores} {key} {target}[p+{{to}}], {listed(names[1])};"
    inputs = [("at", "b64", at)]
    inputs += [
        (n, f"b{bits}", v)
        for group, values in zip(names, (olds, givens), strict=False)
        for n, v in zip(group, values, strict=True)
    ]
    outputs = tuple((n, f"b{bits}", v) for n, v in zip(names[2], olds, strict=True)) if opcode == "atom" else ()
    rows = np.concatenate([one.reshape(-1, 1).view(np.uint8) for one in news], axis=1)
    place = Store(rows, at, SAMPLES * size)
    return Vector(key, "cells", text, tuple(inputs), outputs, {}, {"to": place}, ".reg .b64 p;")


def own_cells():
    """The cell's first value is stored by the sample itself; old value and new value are both checked."""
    number = 0
    for word, kinds in FORMS.items():
        for kind in kinds:
            for opcode in ("atom", "red"):
                if opcode == "red" and word in ("exch", "cas"):
                    continue
                for space in ("", "global."):
                    for guarded in (False, True):
                        number += 1
                        yield _own_cell(opcode, space, WORDS[opcode][number % 6], word, kind, guarded)


def _own_cell(opcode, space, words, word, kind, guarded):
    bits = bits_of(kind)
    first, a, b = operands(word, kind)
    function = function_of(word, kind)
    columns = (first, a, b) if word == "cas" else (first, a)
    new = np.array([function(*map(int, row)) for row in zip(*columns, strict=True)], np.uint64).astype(f"u{bits // 8}")
    old = first
    g = GUARD.astype(bool)
    if guarded:
        new, old = np.where(g, new, first), np.where(g, first, first.dtype.type(77))
    places = list(range(2 * SAMPLES))
    random.Random(f"{word}{kind}").shuffle(places)
    at = np.array(places[:SAMPLES], np.int64) * (bits // 8)
    sources = "a, b" if word == "cas" else "a"
    target = "d, " if opcode == "atom" else ""
    start = f"add.s64 p, at, %out; st.global.b{bits} [p+{{to}}], first; mov.b{bits} d, 77; "
    text = f"{start}{'@g ' if guarded else ''}{opcode}.{space}{words}{word}.{kind} {target}[p+{{to}}], {sources};"
    inputs = [("at", "b64", at), ("first", f"b{bits}", first), ("a", f"b{bits}", a)]
    inputs += [("b", f"b{bits}", b)] if word == "cas" else []
    inputs += [("g", "pred", GUARD)] if guarded else []
    outputs = (("d", f"b{bits}", old),) if opcode == "atom" else ()
    place = Store(new.reshape(-1, 1).view(np.uint8), at, 2 * SAMPLES * (bits // 8))
    registers = ".reg .b64 p;" + ("" if opcode == "atom" else f" .reg .b{bits} d;")
    name = f"own{'_guarded' if guarded else ''}_{words or 'bare'}"
    return Vector(f"{opcode}.{space}{word}.{kind}", name, text, tuple(inputs), outputs, {}, {"to": place}, registers)


def wide():
    """Registers of 128 bits: packed, moved, loaded, stored, exchanged; one half at a time differs from what cas expects."""
    low, high, other, more = (samples(64, role) for role in (0, 1, 4, 6))
    pick = np.arange(SAMPLES) % 4
    wanted = np.where(pick & 1, low, low ^ np.uint64(1 << 40)), np.where(pick & 2, high, high ^ np.uint64(1))
    inputs = tuple((name, "b64", one) for name, one in (("a", low), ("b", high), ("c", other), ("e", more)))
    inputs += (("x", "b64", wanted[0]), ("y", "b64", wanted[1]))
    names = ".reg .b128 q, r, s; .reg .b64 at, base; .reg .b32 low, z<4>;"
    packed = "mov.b128 q, {a, b}; mov.b128 r, {c, e}; mov.b128 s, {x, y};"
    before, after = (("d", "b64", low), ("f", "b64", high)), (("h", "b64", other), ("k", "b64", more))
    both = (pick == 3).astype(bool)
    swapped = (("h", "b64", np.where(both, other, low)), ("k", "b64", np.where(both, more, high)))
    yield Vector("mov.b128", "packed", f"{packed} mov.b128 s, q; mov.b128 {{d, _}}, s; mov.b128 {{z0, z1, z2, z3}}, s; mov.b128 r, {{z0, z1, z2, z3}}; mov.b128 {{_, f}}, r;", inputs,
                 before, registers=names)  # fmt: skip
    cell = Store(
        np.stack([low, high], axis=1).view(np.uint8).reshape(SAMPLES, 16), np.arange(SAMPLES) * 16, SAMPLES * 16
    )
    for space in ("", ".global", ".shared", ".shared::cta"):
        is_shared = space.startswith(".shared")
        place = (
            "and.b64 at, %lane64, 511; shl.b64 at, at, 4; mov.u32 low, cells; cvt.u64.u32 base, low; add.s64 at, at, base;"
            if is_shared
            else "shl.b64 at, %lane64, 4; add.s64 at, at, %out; add.s64 at, at, {cell};"
        )
        left = "" if is_shared else f" st{space}.b128 [at], q;"
        stores = {} if is_shared else {"cell": cell}
        put, got = f"{packed} {place} st{space}.b128 [at], q;", f"ld{space}.b128 s, [at]; mov.b128 {{h, k}}, s;{left}"
        old = "mov.b128 {d, f}, r;"
        changes = {"exch": ("r, [at], r", after), "cas": ("r, [at], s, r", swapped)}
        for word, (operands, result) in changes.items():
            for name, order in (("plain", ""), ("ordered", ".acq_rel.gpu")):
                text = f"{put} atom{order}{space}.{word}.b128 {operands}; {old} {got}"
                yield Vector(f"atom{space}.{word}.b128", name, text, inputs, (*before, *result), {}, stores, names)
        for key in (f"ld{space}.b128", f"st{space}.b128"):
            text, kept = f"{put} {got}", tuple((to, "b64", one) for to, one in (("h", low), ("k", high)))
            yield Vector(key, "wide", text, inputs, kept, {}, stores, names)


def sinks():
    """The atomic operations of which only the stored value is compared."""
    a = samples(32, 1)
    at = np.arange(SAMPLES, dtype=np.int64) * 4
    text = "add.s64 p, at, %out; st.global.b32 [p+{to}], 9; atom.global.add.u32 _, [p+{to}], a;"
    place = Store((a + np.uint32(9)).reshape(-1, 1).view(np.uint8), at, SAMPLES * 4)
    inputs = (("at", "b64", at), ("a", "b32", a))
    yield Vector("atom.global.add.u32", "sink", text, inputs, (), {}, {"to": place}, ".reg .b64 p;")


def family():
    return [vector for part in (own_cells(), sinks(), shared_cells(), packed(), wide()) for vector in part]
