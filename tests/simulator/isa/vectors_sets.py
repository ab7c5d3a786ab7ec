"""Vectors of sets.py: comparisons as numbers, and those of two halves. The oracle is Python's integers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
from simulator_bench import Array, Vector
from simulator_oracle import FORMATS, signed
from simulator_vectors_bits import JOIN, float_answers
from simulator_vectors_float import column
from simulator_vectors_integer import COMPARE, flags, samples, width

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_WORDS = (*ORDERED, *(f"{word}u" for word in ORDERED), "num", "nan")
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
WORDS = {
    **dict.fromkeys(("b16", "b32", "b64"), ("eq", "ne")),
    **dict.fromkeys(("s16", "s32", "s64"), ORDERED),
    **dict.fromkeys(("u16", "u32", "u64"), (*ORDERED, *UNSIGNED_NAMES)),
    **dict.fromkeys(("f16", "bf16", "f32", "f64"), FLOAT_WORDS),
}
ONE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000, "f16": 0x3C00}
ONE["bf16"] = 0x3F80
TARGETS = {
    **dict.fromkeys(WORDS, ("u32", "s32", "f16", "bf16", "f32")),
    "f16": ("u16", "u32", "s16", "s32", "f16", "bf16"),
    "bf16": ("u16", "u32", "s16", "s32", "bf16"),
}
"""Types of results by the types compared (PTX ISA, "set"); test_ptxas.py holds the simulator's to ptxas."""


def home(kind: str) -> str:
    return f"b{FORMATS[kind].bits if kind in FORMATS else width(kind)}"


@cache
def operands(kind: str) -> tuple[Array, Array]:
    """Two columns; of integers, half of the second are the first's, so that some are equal."""
    if kind in FORMATS:
        return column(FORMATS[kind], 0), column(FORMATS[kind], 1)
    bits = width(kind)
    return samples(bits, 0), np.where(flags(3) == 1, samples(bits, 1), samples(bits, 0))


@cache
def answers(word: str, kind: str, flush: bool) -> tuple[int, ...]:
    a, b = operands(kind)
    if kind in FORMATS:
        return tuple(float_answers(word, kind, a, b, flush))
    compare = COMPARE[UNSIGNED_NAMES.get(word, word)]
    bits = width(kind)
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    read = (lambda one: signed(one, bits)) if kind[0] == "s" else (lambda one: one)
    return tuple(int(compare(read(x), read(y))) for x, y in pairs)


def numbers() -> Iterator[Vector]:
    """Each type of result by each type compared, with the comparisons in turn; each comparison at least once."""
    for source, words in WORDS.items():
        for flush in ("", ".ftz") if source in ("f16", "f32") else ("",):
            targets = [one for one in TARGETS[source] if not (flush and one == "bf16")]
            for turn in range(max(len(words), len(targets))):
                word, target = words[turn % len(words)], targets[turn % len(targets)]
                yield number(word, list(JOIN)[turn % 3], flush, target, source)


def number(word: str, join: str, flush: str, target: str, source: str) -> Vector:
    """set alone, with a predicate, and with a predicate's opposite."""
    a, b = operands(source)
    given = flags(6)
    found = answers(word, source, bool(flush))
    yes = [JOIN[join](one, int(c)) for one, c in zip(found, given, strict=True)]
    no = [JOIN[join](one, 1 - int(c)) for one, c in zip(found, given, strict=True)]
    kinds = f"{flush}.{target}.{source}"
    text = f"set.{word}{kinds} d, a, b; set.{word}.{join}{kinds} e, a, b, c; set.{word}.{join}{kinds} f, a, b, !c;"
    to = home(target)
    outputs = tuple(
        (name, to, np.array(values, np.uint32) * np.uint32(ONE[target]))
        for name, values in (("d", found), ("e", yes), ("f", no))
    )
    inputs = (("a", home(source), a), ("b", home(source), b), ("c", "pred", given))
    return Vector(f"set{flush}.{target}.{source}".replace(".ftz", ""), f"{word}.{join}{flush}", text, inputs, outputs)


# Two halves


def halves(kind: str) -> tuple[Array, Array]:
    """Pairs of the columns: each sample in the lower half, another one in the upper half."""
    first, second = (one.astype(np.uint32) for one in operands(kind))
    return first | np.roll(first, 7) << 16, second | np.roll(second, 7) << 16


def pairs() -> Iterator[Vector]:
    given = flags(6)
    for kind, word in product(("f16", "bf16"), FLOAT_WORDS):
        for flush in ("", ".ftz") if kind == "f16" else ("",):
            low = np.array(answers(word, kind, bool(flush)))
            high = np.roll(low, 7)
            inputs = tuple(zip("ab", ("b32", "b32"), halves(kind), strict=True))
            outputs = (("d", "pred", low), ("e", "pred", high), ("f", "pred", low))
            text = f"setp.{word}{flush}.{kind}x2 d|e, a, b; setp.{word}{flush}.{kind}x2 f, a, b;"
            yield Vector(f"setp.{word}{flush}.{kind}x2", "both", text, inputs, outputs)
            for join, function in JOIN.items():
                results = [
                    np.array([function(int(one), int(c)) for one, c in zip(found, by, strict=True)])
                    for found, by in ((low, given), (high, given), (high, 1 - given))
                ]
                form = f"setp.{word}.{join}{flush}.{kind}x2"
                text = f"{form} d|e, a, b, c; {form} _|f, a, b, !c;"
                outputs = tuple((name, "pred", one) for name, one in zip("def", results, strict=True))
                yield Vector(form, "combined", text, (*inputs, ("c", "pred", given)), outputs)


def numbers_of_pairs() -> Iterator[Vector]:
    given = flags(6)
    for kind in ("f16", "bf16"):
        for turn, word in enumerate(FLOAT_WORDS):
            target, join = ("u32", "s32", f"{kind}x2")[turn % 3], list(JOIN)[turn % 3]
            for flush in ("", ".ftz") if kind == "f16" else ("",):
                low = np.array(answers(word, kind, bool(flush)))
                joined = np.array([JOIN[join](int(one), int(c)) for one, c in zip(low, given, strict=True)])
                upper = np.array([JOIN[join](int(one), int(c)) for one, c in zip(np.roll(low, 7), given, strict=True)])
                true = 0xFFFF if target[1:] == "32" else ONE[kind]
                outputs = tuple(
                    (name, "b32", (true * (one + (other << 16))).astype(np.uint32))
                    for name, one, other in (("d", low, np.roll(low, 7)), ("e", joined, upper))
                )
                kinds = f"{flush}.{target}.{kind}x2"
                text = f"set.{word}{kinds} d, a, b; set.{word}.{join}{kinds} e, a, b, c;"
                inputs = (*zip("ab", ("b32", "b32"), halves(kind), strict=True), ("c", "pred", given))
                yield Vector(f"set.{target}.{kind}x2", f"{word}.{join}{flush}", text, inputs, outputs)


def family() -> list[Vector]:
    return [*numbers(), *pairs(), *numbers_of_pairs()]
