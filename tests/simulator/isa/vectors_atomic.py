"""Vectors of atomics: each sample has its own cell, whose old and new bits are both checked.

The oracle works on Python's integers by the definitions of the PTX ISA. Contention: tests/simulator/run/.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import simulator_oracle as oracle
from simulator_bench import SAMPLES, Store, Vector
from simulator_defined_atomics import forms
from simulator_oracle import F32
from simulator_vectors_integer import GUARD, samples

WORDS = {
    "atom": ("", "relaxed.gpu.", "release.sys.", "acq_rel.sys.", "acquire.cta.", "sys."),
    "red": ("", "relaxed.gpu.", "release.sys.", "relaxed.sys.", "release.cta.", "sys."),
}


def new_value(word: str, kind: str, old: int, a: int, b: int = 0) -> int:
    """Return the bits that an operation stores for the bits old, by its definition; none takes a NumPy operation."""
    bits = int(kind[1:])
    if word == "cas":
        return b if old == a else old
    if word == "exch":
        return a
    if word in ("and", "or", "xor"):
        is_set = {"and": (0, 0, 1), "or": (0, 1, 1), "xor": (0, 1, 0)}[word]  # by how many of the two bits are set
        return sum(is_set[(old >> at & 1) + (a >> at & 1)] << at for at in range(bits))
    if kind == "f32":
        return _flushed(oracle.add(_flushed(old), _flushed(a), F32))
    if word == "add":
        return (old + a) % (1 << bits)
    assert word in ("min", "max")
    # Two's complement with its sign bit inverted has the order of unsigned numbers.
    bias = 1 << (bits - 1) if kind[0] == "s" else 0
    first, last = sorted((old, a), key=lambda number: number ^ bias)
    return first if word == "min" else last


def _flushed(bits: int) -> int:
    """Return a float32 with a zero of its sign in place of a subnormal: its exponent is 0."""
    return bits & F32.sign if not bits & F32.infinity else bits


def own_cells() -> Iterator[Vector]:
    """The cell's first value is stored by the sample itself; old value and new value are both checked."""
    number = 0
    for opcode in ("atom", "red"):
        for word, kinds in forms(opcode).items():
            for kind, space, guarded in product(kinds, ("", "global."), (False, True)):
                number += 1
                yield _own_cell(opcode, space, WORDS[opcode][number % 6], word, kind, guarded)


def _own_cell(opcode: str, space: str, words: str, word: str, kind: str, guarded: bool) -> Vector:
    bits = int(kind[1:])
    first, a, b = samples(bits, 0), samples(bits, 1), samples(bits, 2)
    if word == "cas":
        first = np.where(np.arange(SAMPLES) % 2 == 0, a, first)
    if kind == "f32":  # also what rounds, subnormals and NaN
        from simulator_vectors_float import column

        first, a = column(F32, 0), column(F32, 1)
    columns = (first, a, b) if word == "cas" else (first, a)
    rows = zip(*columns, strict=True)
    new = np.array([new_value(word, kind, *map(int, row)) for row in rows], np.uint64).astype(f"u{bits // 8}")
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
    """atom whose old value is thrown away."""
    a = samples(32, 1)
    at = np.arange(SAMPLES, dtype=np.int64) * 4
    text = "add.s64 p, at, %out; st.global.b32 [p+{to}], 9; atom.global.add.u32 _, [p+{to}], a;"
    place = Store((a + np.uint32(9)).reshape(-1, 1).view(np.uint8), at, SAMPLES * 4)
    inputs = (("at", "b64", at), ("a", "b32", a))
    yield Vector("atom.global.add.u32", "sink", text, inputs, (), {}, {"to": place}, ".reg .b64 p;")


def family() -> list[Vector]:
    return [vector for part in (own_cells(), sinks()) for vector in part]
