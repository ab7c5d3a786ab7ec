"""Vectors of comparisons: as predicates, as numbers (sets.py), and those of two halves. The oracle is Python's integers."""

import operator
from functools import cache
from itertools import product

import numpy as np

from tests.simulator.bench import Vector
from tests.simulator.isa.oracle import FORMATS, is_nan, signed
from tests.simulator.isa.vectors_float import literals
from tests.simulator.isa.vectors_integer import flags, literals_for, samples, vectors_of, width
from tests.simulator.isa.vectors_order import paired

COMPARE = {
    **{
        "eq": operator.eq,
        "ne": operator.ne,
        "lt": operator.lt,
        "le": operator.le,
        "gt": operator.gt,
        "ge": operator.ge,
    },
    **{"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge},
}
JOIN = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_WORDS = (*ORDERED, *(f"{word}u" for word in ORDERED), "num", "nan")
WORDS = {
    **dict.fromkeys(("b16", "b32", "b64"), ("eq", "ne")),
    **dict.fromkeys(("s16", "s32", "s64"), ORDERED),
    **dict.fromkeys(("u16", "u32", "u64"), tuple(COMPARE)),
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


def home(kind):
    return f"b{FORMATS[kind].bits if kind in FORMATS else width(kind)}"


@cache
def operands(kind):
    """Two columns, some of whose pairs are equal; of floats edges against edges, too."""
    if kind in FORMATS:
        a, b = paired(FORMATS[kind])
        return a, b
    bits = width(kind)
    return samples(bits, 0), np.where(flags(3) == 1, samples(bits, 1), samples(bits, 0))


def compared(word, kind, flush, a, b):
    """What setp answers of two patterns. eq to ge: false wherever there is a NaN; equ to geu: true there."""
    if kind not in FORMATS:
        a, b = (signed(one, width(kind)) if kind[0] == "s" else one for one in (a, b))
        return int(COMPARE[word](a, b))
    form = FORMATS[kind]
    a, b = (one & form.sign if flush and not one & form.infinity else one for one in (a, b))
    is_unordered = is_nan(a, form) or is_nan(b, form)
    if word in ("num", "nan") or is_unordered:
        return int(is_unordered == (word == "nan") if word in ("num", "nan") else word.endswith("u"))
    a, b = (-(one ^ form.sign) if one & form.sign else one for one in (a, b))
    return int(COMPARE[word.removesuffix("u")](a, b))


@cache
def answers(word, kind, flush):
    rows = zip(*(one.tolist() for one in operands(kind)), strict=True)
    return np.array([compared(word, kind, flush, *row) for row in rows])


def flushes(kind):
    return ("", ".ftz") if kind in ("f16", "f32") else ("",)


def comparisons():
    """Alone, combined with a predicate, and with two destinations."""
    given = flags(6)
    for kind, words in WORDS.items():
        a, b = operands(kind)
        inputs = (("a", home(kind), a), ("b", home(kind), b), ("c", "pred", given))
        constants = [] if kind.endswith("f16") else literals(FORMATS[kind]) if kind in FORMATS else literals_for(kind)
        for word, flush in product(words, flushes(kind)):

            def function(a, b, how=(word, kind, bool(flush))):
                return compared(*how, a, b)

            key, bits = f"setp.{word}{flush}.{kind}", 8 * a.itemsize
            yield from vectors_of(key, function, 1, (bits, bits), [a, b], {1: constants})
            found = answers(word, kind, bool(flush))
            both, shown = f"{key} d|e, a, b;", 1 if kind.endswith("f16") else 2
            if shown == 2:
                yield Vector(key, "both", both, inputs[:2], (("d", "pred", found), ("e", "pred", 1 - found)))
            for join, joined in JOIN.items():
                form = f"setp.{word}.{join}{flush}.{kind}"
                outputs = (("d", "pred", joined(found, given)), ("e", "pred", joined(1 - found, 1 - given)))
                text = f"{form} d, a, b, c;" + f" {form} _|e, a, b, !c;" * (shown - 1)
                yield Vector(form, "combined", text, inputs, outputs[:shown])


def numbers():
    """Each type of result by each type compared, with the comparisons in turn; each comparison at least once."""
    for source, words in WORDS.items():
        for flush in flushes(source):
            targets = [one for one in TARGETS[source] if not (flush and one == "bf16")]
            for turn in range(max(len(words), len(targets))):
                word, target = words[turn % len(words)], targets[turn % len(targets)]
                yield number(word, list(JOIN)[turn % 3], flush, target, source)


def number(word, join, flush, target, source):
    """set alone, with a predicate, and with a predicate's opposite."""
    a, b = operands(source)
    given = flags(6)
    found = answers(word, source, bool(flush))
    yes, no = JOIN[join](found, given), JOIN[join](found, 1 - given)
    kinds = f"{flush}.{target}.{source}"
    text = f"set.{word}{kinds} d, a, b; set.{word}.{join}{kinds} e, a, b, c; set.{word}.{join}{kinds} f, a, b, !c;"
    to = home(target)
    outputs = tuple(
        (name, to, values.astype(np.uint32) * np.uint32(ONE[target]))
        for name, values in (("d", found), ("e", yes), ("f", no))
    )
    inputs = (("a", home(source), a), ("b", home(source), b), ("c", "pred", given))
    return Vector(f"set{flush}.{target}.{source}".replace(".ftz", ""), f"{word}.{join}{flush}", text, inputs, outputs)


# Two halves


def halves(kind):
    """Pairs of the columns: each sample in the lower half, another one in the upper half."""
    first, second = (one.astype(np.uint32) for one in operands(kind))
    return first | np.roll(first, 7) << 16, second | np.roll(second, 7) << 16


def pairs():
    given = flags(6)
    for kind, word in product(("f16", "bf16"), FLOAT_WORDS):
        for flush in flushes(kind):
            low = answers(word, kind, bool(flush))
            high = np.roll(low, 7)
            inputs = tuple(zip("ab", ("b32", "b32"), halves(kind), strict=True))
            outputs = (("d", "pred", low), ("e", "pred", high), ("f", "pred", low))
            text = f"setp.{word}{flush}.{kind}x2 d|e, a, b; setp.{word}{flush}.{kind}x2 f, a, b;"
            yield Vector(f"setp.{word}{flush}.{kind}x2", "both", text, inputs, outputs)
            for join, function in JOIN.items():
                results = function(low, given), function(high, given), function(high, 1 - given)
                form = f"setp.{word}.{join}{flush}.{kind}x2"
                text = f"{form} d|e, a, b, c; {form} _|f, a, b, !c;"
                outputs = tuple((name, "pred", one) for name, one in zip("def", results, strict=True))
                yield Vector(form, "combined", text, (*inputs, ("c", "pred", given)), outputs)


def numbers_of_pairs():
    given = flags(6)
    for kind in ("f16", "bf16"):
        for turn, word in enumerate(FLOAT_WORDS):
            target, join = ("u32", "s32", f"{kind}x2")[turn % 3], list(JOIN)[turn % 3]
            for flush in flushes(kind):
                low = answers(word, kind, bool(flush))
                joined, upper = JOIN[join](low, given), JOIN[join](np.roll(low, 7), given)
                true = 0xFFFF if target[1:] == "32" else ONE[kind]
                outputs = tuple(
                    (name, "b32", (true * (one + (other << 16))).astype(np.uint32))
                    for name, one, other in (("d", low, np.roll(low, 7)), ("e", joined, upper))
                )
                kinds = f"{flush}.{target}.{kind}x2"
                text = f"set.{word}{kinds} d, a, b; set.{word}.{join}{kinds} e, a, b, c;"
                inputs = (*zip("ab", ("b32", "b32"), halves(kind), strict=True), ("c", "pred", given))
                yield Vector(f"set.{target}.{kind}x2", f"{word}.{join}{flush}", text, inputs, outputs)


def family():
    return [*numbers(), *pairs(), *numbers_of_pairs()]
