"""Vectors of min and max, and of signs: what depends on the order of floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import simulator_oracle as oracle
from simulator_bench import Array, Vector
from simulator_oracle import FORMATS, Format
from simulator_vectors_float import column, edges, literals
from simulator_vectors_integer import Function, vectors_of


def paired(kind: Format) -> list[Array]:
    """Two columns: edges against edges first (NaN, both zeros, infinities), then anything, with equal ones among it."""
    table = edges(kind)
    left, right = column(kind, 0).copy(), column(kind, 1).copy()
    count = min(len(table) ** 2, len(left) // 2)
    special = [0, kind.sign, kind.quiet, kind.infinity + 1, kind.sign | kind.quiet, kind.infinity, kind.sign | 1, 1]
    special += [kind.sign | kind.infinity, kind.sign | (kind.infinity + 1)]
    for number in range(count):
        pool = special if number < len(special) ** 2 else table
        left[number], right[number] = pool[number % len(pool)], pool[number // len(pool) % len(pool)]
    right[count::9] = left[count::9]
    return [left, right]


def doubled(function: Function) -> Function:
    def two(*operands: int) -> int:
        return function(*(one & 0xFFFF for one in operands)) | function(*(one >> 16 for one in operands)) << 16

    return two


def in_pairs(columns: list[Array]) -> list[Array]:
    return [one.astype(np.uint32) | np.roll(one, 7).astype(np.uint32) << 16 for one in columns]


def extremes() -> Iterator[Vector]:
    for kind in FORMATS.values():
        bits, columns = kind.bits, paired(kind)
        constants = {0: literals(kind), 1: literals(kind)} if bits > 16 else {}
        for word in ("min", "max"):
            for wins in ("", "NaN.") if kind.name != "f64" else ("",):

                def function(a: int, b: int, kind: Format = kind, word: str = word, wins: str = wins) -> int:
                    return oracle.extreme(a, b, kind, word == "max", bool(wins))

                key = f"{word}.{wins}{kind.name}"
                yield from vectors_of(key, function, bits, (bits, bits), columns, constants)
                if bits == 16:
                    literal = {1: [("0x7FFF8000", 0x7FFF8000)]}
                    two = doubled(function)
                    yield from vectors_of(f"{key}x2", two, 32, (32, 32), in_pairs(columns), literal)


def signs() -> Iterator[Vector]:
    """neg and abs of 16-bit floats: the sign bit alone."""
    for name in ("f16", "bf16"):
        kind = FORMATS[name]
        for opcode, function in (("neg", lambda a: a ^ 0x8000), ("abs", lambda a: a & 0x7FFF)):
            yield from vectors_of(f"{opcode}.{name}", function, 16, (16,), [column(kind, 2)])
            key, two = f"{opcode}.{name}x2", doubled(function)
            yield from vectors_of(key, two, 32, (32,), in_pairs([column(kind, 2)]))


def family() -> list[Vector]:
    return [vector for part in (extremes(), signs()) for vector in part]
