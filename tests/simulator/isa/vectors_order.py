"""Vectors of min and max, and of signs: what depends on the order of floats."""

from itertools import product

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.isa.oracle import FORMATS, cleared
from tests.simulator.isa.vectors_float import column, doubled, edges, in_pairs, literals
from tests.simulator.isa.vectors_integer import vectors_of


def paired(kind):
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


def extremes():
    forms = product(FORMATS.values(), ("min", "max"), ("", ".NaN"), ("", ".ftz"))
    for kind, word, wins, flush in forms:
        if (wins and kind.name == "f64") or (flush and kind.name not in ("f16", "f32")):
            continue
        bits, columns = kind.bits, paired(kind)
        constants = {0: literals(kind), 1: literals(kind)} if bits > 16 else {}

        def function(a, b, how=(kind, word == "max", bool(wins), flush)):
            kind, is_larger, propagate, flush = how
            a, b = (cleared(one, kind) if flush else one for one in (a, b))
            return oracle.extreme(a, b, kind, is_larger, propagate)

        key = f"{word}{flush}{wins}.{kind.name}"
        yield from vectors_of(key, function, bits, (bits, bits), columns, constants)
        if bits == 16:
            literal = {1: [("0x7FFF8000", 0x7FFF8000)]}
            yield from vectors_of(f"{key}x2", doubled(function), 32, (32, 32), in_pairs(columns), literal)


def signs():
    """neg and abs: the sign bit alone. With .ftz any bits may come of NaN."""
    for kind, word, flush in product(FORMATS.values(), ("neg", "abs"), ("", ".ftz")):
        if flush and kind.name not in ("f16", "f32"):
            continue

        def function(a, kind=kind, word=word, flush=flush):
            a = cleared(a, kind) if flush else a
            return a ^ kind.sign if word == "neg" else a & ~kind.sign

        given = column(kind, 2)
        given = (
            np.where((given & (kind.sign - 1)) > kind.infinity, kind.one, given).astype(given.dtype) if flush else given
        )
        key = f"{word}{flush}.{kind.name}"
        yield from vectors_of(key, function, kind.bits, (kind.bits,), [given])
        if kind.bits == 16:
            yield from vectors_of(f"{key}x2", doubled(function), 32, (32,), in_pairs([given]))


def family():
    return [vector for part in (extremes(), signs()) for vector in part]
