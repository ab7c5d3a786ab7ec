"""Vectors of what newer forms of multimem compute: 8-bit floats, minima and maxima of short floats, float red.add.

Tables repeat after PERIOD columns, so that each result is worked out once for all widths.
"""

import random
from functools import cache

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.isa import vectors_multimem
from tests.simulator.isa.oracle import BF16, E4M3, E5M2, F16, F32, F64, FORMATS, Fraction
from tests.simulator.isa.vectors_float import edges, random_bits

PERIOD = 512
SHORT = ((2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2))
TINY = ((4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (1, 4), (2, 4), (4, 4))


def spelled(name, registers, packed):
    return (f"v{registers}." if registers > 1 else "") + name + (f"x{packed}" if packed > 1 else "")


def codes(kind, ranks):
    """(ranks, PERIOD): anything; finite only; cancelling; large of one sign; zeros of both signs; NaN and infinity."""
    rng = random.Random(f"{kind.name} {ranks}")
    out = np.zeros((ranks, PERIOD), np.uint8)
    odd = [0x7F, 0xFF, 0x80, 0x00, 0x7C, 0xFC, 0x7D, kind.finite - 1, 0x01]
    for number in range(PERIOD):
        way = number % 6
        for rank in range(ranks):
            finite = rng.randrange(kind.finite) | rng.getrandbits(1) << 7
            if way == 2 and rank % 2 and rng.random() < 0.8:
                finite = int(out[rank - 1, number]) ^ 0x80
            choice = {
                0: rng.getrandbits(8),
                3: kind.finite - 1 - rng.randrange(20) | (number & 8) << 4,
                4: rng.choice((0x00, 0x80)),
                5: rng.choice(odd) if rng.random() < 0.7 else finite,
            }
            out[rank, number] = choice.get(way, finite)
    return out


def exact8(parts, kind):
    """The exact sum, rounded once, saturating; never -0."""
    special = {one & 0x80 for one in parts if one & 0x7F == kind.infinity}
    if any(oracle.is_nan8(one, kind) for one in parts) or len(special) > 1:
        return oracle.QUIET8
    if special:
        return kind.finite - 1 | special.pop()
    total = sum((oracle.value8(one, kind) for one in parts), Fraction(0))
    return oracle.saturated(total, kind, negative=total < 0)


def stated8(parts, kind, native):
    """In rank order, in float16, at the end in the type; native: in the type after every addition."""
    total = oracle.add(oracle.widened(parts[0], kind, F16), 0, F16)
    for one in parts[1:]:
        total = oracle.add(total, oracle.widened(one, kind, F16), F16)
        if native:
            total = oracle.widened(oracle.narrowed(total, F16, kind), kind, F16)
    return oracle.narrowed(total, F16, kind)


def extreme8(parts, kind, larger):
    """By value, -0 below +0, NaN only if all are."""
    numbers = [one for one in parts if not oracle.is_nan8(one, kind)]

    def place(code):
        infinite = code & 0x7F == kind.infinity
        size = float("inf") if infinite else float(abs(oracle.value8(code, kind)))
        return (-size, 0) if code & 0x80 else (size, 1)

    return (max if larger else min)(numbers, key=place) if numbers else oracle.QUIET8


def extreme(parts, kind, larger):
    total = oracle.extreme(parts[0], parts[0], kind, larger, propagate=False)
    for one in parts[1:]:
        total = oracle.extreme(total, one, kind, larger, propagate=False)
    return total


def halves(kind, ranks):
    """(ranks, PERIOD): edges (NaN among them) and anything."""
    rng = random.Random(f"extreme {kind.name} {ranks}")
    table = [*edges(kind), kind.quiet, kind.quiet, kind.sign | kind.quiet, 0, kind.sign]
    rows = [[rng.choice(table) if n % 3 else random_bits(kind, rng) for n in range(PERIOD)] for _ in range(ranks)]
    return np.array(rows, np.uint16)


@cache
def results(name, ranks, word, model):
    """What each column comes to. word: "add", "add.acc::f16", "min" or "max"."""
    larger = word == "max"
    if name in FORMATS:
        kind = FORMATS[name]
        table = halves(kind, ranks)
        rule = lambda parts: extreme(parts, kind, larger)  # noqa: E731
    else:
        kind8 = oracle.FORMATS8[name]
        table = codes(kind8, ranks)
        rule = lambda parts: extreme8(parts, kind8, larger)  # noqa: E731
        if word.startswith("add"):
            rule = lambda parts: exact8(parts, kind8)  # noqa: E731
            if model == "stated":
                rule = lambda parts: stated8(parts, kind8, native=word == "add")  # noqa: E731
    return np.array([rule(tuple(int(one) for one in column)) for column in table.T], np.uint64)


def reductions(ranks):
    forms = [(kind.name, layout, word) for kind in (F16, BF16) for layout in SHORT for word in ("min", "max")]
    words = ("add", "add.acc::f16", "min", "max")
    forms += [(kind.name, layout, word) for kind in (E4M3, E5M2) for layout in TINY for word in words]
    for number, (name, (registers, packed), word) in enumerate(forms):
        kind = FORMATS.get(name)
        size = 2 if kind else 1
        table = halves(kind, ranks) if kind else codes(oracle.FORMATS8[name], ranks)
        elements = registers * packed
        at = vectors_multimem.places(("affine", "scattered", "uniform")[number % 3], elements * size)
        repeats = -(-2 * vectors_multimem.COUNT * elements // PERIOD)
        data = np.ascontiguousarray(np.tile(table, (1, repeats))).view(np.uint8).reshape(ranks, -1)
        columns = (at[:, None] // size + np.arange(elements)) % PERIOD
        bits = 8 * size * packed
        good = {
            model: vectors_multimem.by_register(results(name, ranks, word, model)[columns], registers, bits)
            for model in ("exact", "stated")
        }
        ending = spelled(name, registers, packed)
        mnemonic = f"ld_reduce.{vectors_multimem.REDUCE_WORDS[number % 6]}{word}.{ending}"
        yield vectors_multimem.reduction(f"multimem.ld_reduce.{word}.{ending}", mnemonic, "short", data, at, good, bits)


def stores(ranks):
    for number, (name, (registers, packed)) in enumerate((kind.name, one) for kind in (E4M3, E5M2) for one in TINY):
        yield vectors_multimem.store(ranks, spelled(name, registers, packed), registers, packed, number + 1)


def additions(ranks):
    """red.add of floats. Each cell is added to once, by one rank, so that every bit of its rounding is known."""
    layouts = [(F32, (count, 1)) for count in (1, 2, 4)] + [(F64, (1, 1))]
    layouts += [(kind, layout) for kind in (F16, BF16) for layout in SHORT]
    for number, (kind, (registers, packed)) in enumerate(layouts):
        rng = random.Random(f"red {number} {ranks}")
        elements, size = registers * packed, kind.bits // 8
        at = vectors_multimem.places("affine" if number % 2 else "scattered", elements * size)
        table = [rng.choice(edges(kind)) if rng.random() < 0.3 else random_bits(kind, rng) for _ in range(512)]
        drawn = rng.choices(table, k=(2 * ranks + 1) * vectors_multimem.COUNT * elements)
        before, values = np.split(
            np.array(drawn, np.uint64).astype(f"u{size}"), [2 * ranks * vectors_multimem.COUNT * elements]
        )
        before, values = before.reshape(ranks, -1), values.reshape(vectors_multimem.COUNT, elements)
        after = before.copy()
        for sample, start in enumerate((at // size).tolist()):
            for one in range(elements):
                for replica in range(ranks):
                    old = int(before[replica, start + one])
                    after[replica, start + one] = oracle.add(old, int(values[sample, one]), kind)
        words = vectors_multimem.by_register(values, registers, kind.bits * packed)
        inputs = vectors_multimem.sources(words, kind.bits * packed, ranks)
        ending = spelled(kind.name, registers, packed)
        yield vectors_multimem.MultimemVector(
            f"multimem.red.add.{ending}",
            "once",
            f"{vectors_multimem.MINE} @q multimem.red.{vectors_multimem.RED_WORDS[number % 6]}add.{ending} [p+{{cells}}], {vectors_multimem.listed(list(inputs))};",
            {**inputs, **vectors_multimem.dealt(at, ranks)},
            before=before.view(np.uint8),
            after=after.view(np.uint8),
        )


def contended(ranks):
    """Small integers from all ranks to cells that four samples share: every sum is exact, in whatever order."""
    at = vectors_multimem.places("scattered", 16)[np.arange(vectors_multimem.COUNT) // 4]
    values = np.random.default_rng(ranks).integers(-8, 9, (ranks, vectors_multimem.COUNT, 4)).astype(np.float32)
    before = np.tile(np.arange(2 * vectors_multimem.COUNT * 4, dtype=np.float32), (ranks, 1))
    after = before.copy()
    for one in range(4):
        np.add.at(after, (slice(None), at // 4 + one), values[:, :, one].sum(axis=0))
    names = [f"s{one}" for one in range(4)]
    inputs = {one: ("b32", values[:, :, n].view(np.uint32)) for n, one in enumerate(names)}
    text = f"add.s64 p, at, %mccells; multimem.red.add.v4.f32 [p+{{cells}}], {{{', '.join(names)}}};"
    kept = {"before": before.view(np.uint8), "after": after.view(np.uint8)}
    given = {**inputs, "at": ("b64", np.tile(at, (ranks, 1)))}
    yield vectors_multimem.MultimemVector("multimem.red.add.v4.f32", "contended", text, given, **kept)


def family(ranks):
    parts = (reductions(ranks), stores(ranks), additions(ranks), contended(ranks))
    return [vector for part in parts for vector in part]
