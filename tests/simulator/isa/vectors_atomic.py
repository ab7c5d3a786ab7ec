"""Vectors of atomics: every sample its own cell, few cells with much contention, the last one by a fold in Python.

Lanes of one step are served in lane order, so the old values are known in the shapes that run all lanes in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import simulator_oracle as oracle
from simulator_bench import SAMPLES, Store, Vector
from simulator_oracle import F32, signed, wrap
from simulator_vectors_integer import GUARD, samples

FORMS = {
    "add": ("u32", "s32", "u64", "f32"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b32", "b64"),
}
WORDS = {
    "atom": ("", "relaxed.gpu.", "release.sys.", "acq_rel.sys.", "acquire.cta.", "sys."),
    "red": ("", "relaxed.gpu.", "release.sys.", "relaxed.sys.", "release.cta.", "sys."),
}


def function_of(word: str, kind: str) -> Callable[..., int]:
    bits = int(kind[1:])

    def number(a: int) -> int:
        return signed(a, bits) if kind[0] == "s" else a

    table: dict[str, Callable[..., int]] = {
        "add": lambda old, a: oracle.add(old, a, F32) if kind == "f32" else wrap(old + a, bits),
        "min": lambda old, a: min(old, a, key=number),
        "max": lambda old, a: max(old, a, key=number),
        "and": lambda old, a: old & a,
        "or": lambda old, a: old | a,
        "xor": lambda old, a: old ^ a,
        "exch": lambda old, a: a,
        "cas": lambda old, a, b: b if old == a else old,
    }
    return table[word]


def own_cells() -> Iterator[Vector]:
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


def _own_cell(opcode: str, space: str, words: str, word: str, kind: str, guarded: bool) -> Vector:
    bits = int(kind[1:])
    first, a, b = samples(bits, 0), samples(bits, 1), samples(bits, 2)
    if word == "cas":
        first = np.where(np.arange(SAMPLES) % 2 == 0, a, first)
    if kind == "f32":  # also what rounds, and NaN
        from simulator_vectors_float import column

        first, a = column(F32, 0), column(F32, 1)
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


def sinks() -> Iterator[Vector]:
    """atom whose old value nobody wants."""
    a = samples(32, 1)
    at = np.arange(SAMPLES, dtype=np.int64) * 4
    text = "add.s64 p, at, %out; st.global.b32 [p+{to}], 9; atom.global.add.u32 _, [p+{to}], a;"
    place = Store((a + np.uint32(9)).reshape(-1, 1).view(np.uint8), at, SAMPLES * 4)
    inputs = (("at", "b64", at), ("a", "b32", a))
    yield Vector("atom.global.add.u32", "sink", text, inputs, (), {}, {"to": place}, ".reg .b64 p;")


def family() -> list[Vector]:
    return [vector for part in (own_cells(), sinks()) for vector in part]
