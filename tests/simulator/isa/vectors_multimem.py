"""Vectors of multimem: a world of several ranks with different data, both models of the switch, every form.

ld_reduce: each sample reads one multicast address; expected is Python's exact sum or its fold in the stated precision.
st: samples are dealt out to the ranks, and all replicas hold all of them in the end. red: every rank adds its own values.
"""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import tests.simulator.isa.oracle as oracle
from tests.simulator.isa.oracle import BF16, F16, F32, F64, signed, wrap
from tests.simulator.isa.vectors_float import edges, random_bits

Array = npt.NDArray[Any]
COUNT = 128
INTEGER_FORMS = [("add", ("u32", "s32", "u64"))]
INTEGER_FORMS += [(word, ("u32", "s32", "u64", "s64")) for word in ("min", "max")]
INTEGER_FORMS += [(word, ("b32", "b64")) for word in ("and", "or", "xor")]
REDUCE_WORDS = ("", "weak.", "relaxed.sys.", "acquire.gpu.", "relaxed.cta.global.", "global.")
STORE_WORDS = ("", "weak.", "relaxed.sys.", "release.gpu.", "release.sys.global.", "global.")
RED_WORDS = ("", "relaxed.sys.", "release.sys.", "release.gpu.global.", "relaxed.cluster.", "global.")


@dataclass(frozen=True, slots=True, eq=False)
class MultimemVector:
    """data[rank]: bytes each rank holds at {data}; cells[rank]: bytes before, and after, at {cells}, of every replica."""

    key: str
    name: str
    text: str
    inputs: dict[str, tuple[str, Array]] = field(default_factory=dict)  # class; values (ranks, COUNT)
    outputs: dict[str, tuple[str, dict[str, Array]]] = field(default_factory=dict)  # class; by model, values (COUNT,)
    data: Array | None = None
    before: Array | None = None
    after: Array | None = None


def places(pattern, width):
    lanes = np.arange(COUNT, dtype=np.int64)
    if pattern == "uniform":
        return np.full(COUNT, 5 * width, np.int64)
    if pattern == "scattered":
        order = list(range(2 * COUNT))
        random.Random(width).shuffle(order)
        return np.array(order[:COUNT], np.int64) * width
    return lanes * width


def float_table(kind, ranks, count):
    """(ranks, count) patterns: anything; cancelling; near each other; wide apart; integers; all negative zeros; special."""
    rng = random.Random(f"{kind.name} {ranks}")
    out = np.zeros((ranks, count), np.uint64)
    near = range(kind.bias - 3, kind.bias + 4)
    special = [kind.infinity, kind.infinity | kind.sign, kind.infinity + 1, kind.infinity - 1, kind.sign, 1]

    def among(exponents):
        mantissa = rng.getrandbits(kind.mantissa_bits)
        return rng.getrandbits(1) << (kind.bits - 1) | rng.choice(exponents) << kind.mantissa_bits | mantissa

    for rank, number in itertools.product(range(ranks), range(count)):
        way = number % 7
        if way == 0:
            bits = rng.choice(edges(kind)) if rng.random() < 0.2 else random_bits(kind, rng)
        elif way == 1 and rank % 2 and rng.random() < 0.8:
            bits = int(out[rank - 1, number]) ^ kind.sign
        elif way == 3:
            bits = among(range(1, (1 << kind.exponent_bits) - 8))
        elif way == 4:
            bits = oracle.nearest(oracle.Fraction(rng.randrange(-3, 4)), kind)
        elif way == 5:
            bits = kind.sign
        elif way == 6:
            bits = rng.choice(special) if rng.random() < 0.5 else 0
        else:
            bits = among(near)
        out[rank, number] = bits
    return out.astype(f"u{kind.bits // 8}")


def fold(parts, kind, inside):
    """In rank order, from +0, in a format; then to the type."""
    total = 0
    for part in parts:
        total = oracle.add(total, part if inside is kind else oracle.convert(part, kind, inside), inside)
    return total if inside is kind else oracle.convert(total, inside, kind)


def reduce_floats(ranks):
    forms = [
        (kind, vector, "", kind.name)
        for kind, vectors in ((F32, ("", "v2.", "v4.")), (F64, ("",)))
        for vector in vectors
    ]
    for kind in (F16, BF16):
        for accumulator in ("", "acc::f32."):
            forms += [(kind, vector, accumulator, kind.name) for vector in ("v2.", "v4.", "v8.")]
            forms += [(kind, vector, accumulator, kind.name + "x2") for vector in ("", "v2.", "v4.")]
    for number, (kind, vector, accumulator, name) in enumerate(forms):
        packed = 2 if name.endswith("x2") else 1
        registers = int(vector[1] if vector else 1)
        elements = registers * packed
        width = elements * kind.bits // 8
        for pattern in ("affine", ("affine", "scattered", "uniform")[number % 3]):
            table = float_table(kind, ranks, 2 * COUNT * elements)
            at = places(pattern, width)
            first = at // (kind.bits // 8)
            good = {}
            for model in ("exact", "stated"):
                inside = F32 if accumulator else kind
                columns = [[int(x) for x in table[:, one]] for one in range(table.shape[1])]
                used = sorted({int(start) + e for start in first for e in range(elements)})
                results = {
                    one: oracle.exact_sum(columns[one], kind, kind)
                    if model == "exact"
                    else fold(columns[one], kind, inside)
                    for one in used
                }
                good[model] = np.array([[results[int(s) + e] for e in range(elements)] for s in first], np.uint64)
            bits = kind.bits * packed
            good = {model: by_register(values, registers, bits) for model, values in good.items()}
            mnemonic = f"ld_reduce.{REDUCE_WORDS[number % 6]}add.{accumulator}{vector}{name}"
            data = table.view(np.uint8).reshape(ranks, -1)
            yield reduction(
                f"multimem.{accumulator}add.ld_reduce.{vector}{name}", mnemonic, pattern, data, at, good, bits
            )


def by_register(values, registers, bits):
    """(COUNT, elements) patterns to (COUNT, registers): a register of a packed type holds two."""
    each = values.shape[1] // registers
    narrow = values.astype(f"u{bits // 8 // each}")
    return np.ascontiguousarray(narrow).view(f"u{bits // 8}")


def reduction(key, mnemonic, pattern, data, at, good, bits):
    registers = next(iter(good.values())).shape[1]
    names = [f"d{one}" for one in range(registers)]
    outputs = {
        name: (f"b{bits}", {model: values[:, one] for model, values in good.items()}) for one, name in enumerate(names)
    }
    inputs = {"at": ("b64", np.tile(at, (len(data), 1)))}
    text = f"add.s64 p, at, %mcin; multimem.{mnemonic} {listed(names)}, [p+{{data}}];"
    return MultimemVector(key, f"{pattern}", text, inputs, outputs, data)


def integer(word, kind, parts):
    bits = int(kind[1:])
    numbers = [signed(one, bits) if kind[0] == "s" else one for one in parts]
    total = numbers[0]
    for one in numbers[1:]:
        total = {
            "add": total + one,
            "min": min(total, one),
            "max": max(total, one),
            "and": total & one,
            "or": total | one,
            "xor": total ^ one,
        }[word]
    return wrap(total, bits)


def integer_table(bits, ranks, salt):
    rng = random.Random(f"{bits} {ranks} {salt}")
    special = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    rows = [
        [rng.choice(special) if rng.random() < 0.3 else rng.getrandbits(bits) for _ in range(2 * COUNT)]
        for _ in range(ranks)
    ]
    return np.array(rows, np.uint64).astype(f"u{bits // 8}")


def reduce_integers(ranks):
    number = 0
    for word, kinds in INTEGER_FORMS:
        for kind in kinds:
            number += 1
            bits = int(kind[1:])
            table = integer_table(bits, ranks, word)
            at = places(("affine", "scattered", "uniform")[number % 3], bits // 8)
            results = [integer(word, kind, [int(x) for x in table[:, at_one // (bits // 8)]]) for at_one in at.tolist()]
            good = np.array(results, np.uint64).astype(f"u{bits // 8}").reshape(-1, 1)
            key = f"multimem.{word}.ld_reduce.{kind}" if word < "ld" else f"multimem.ld_reduce.{word}.{kind}"
            mnemonic, data = (
                f"ld_reduce.{REDUCE_WORDS[number % 6]}{word}.{kind}",
                table.view(np.uint8).reshape(ranks, -1),
            )
            yield reduction(key, mnemonic, "integer", data, at, {"exact": good, "stated": good}, bits)


MINE = "add.s64 p, at, %mccells; setp.ne.u32 q, mine, 0;"


def dealt(at, ranks):
    """Samples are dealt out to the ranks."""
    turn = (np.arange(COUNT)[None, :] % ranks == np.arange(ranks)[:, None]).astype(np.uint32)
    return {"at": ("b64", np.tile(at, (ranks, 1))), "mine": ("b32", turn)}


def listed(names):
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def sources(words, bits, ranks):
    """Registers s0, s1, .. that hold the columns of (COUNT, registers) words on every rank."""
    return {f"s{one}": (f"b{bits}", np.tile(words[:, one], (ranks, 1))) for one in range(words.shape[1])}


def stores(ranks):
    forms = [(vector, name, 4) for name in ("f32", "f16x2", "bf16x2") for vector in ("", "v2.", "v4.")]
    forms += [(vector, name, 2) for name in ("f16", "bf16") for vector in ("v2.", "v4.", "v8.")]
    forms += [("", name, int(name[1:]) // 8) for name in ("b32", "b64", "u32", "s32", "u64", "s64", "f64")]
    for number, (vector, name, size) in enumerate(forms):
        yield store(ranks, f"{vector}{name}", int(vector[1] if vector else 1), size, number)


def store(ranks, ending, registers, size, number):
    """All replicas hold what all ranks have stored in the end. size: bytes of a register."""
    width = size * registers
    at = places("scattered" if number % 2 else "affine", width)
    values = np.frombuffer(random.Random(f"st {ending}").randbytes(COUNT * width), f"u{size}").reshape(COUNT, registers)
    inputs = sources(values, 8 * size, ranks)
    after = np.full((1, 2 * COUNT * width), 0xA5, np.uint8)
    after[0, (at[:, None] + np.arange(width)).reshape(-1)] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return MultimemVector(
        f"multimem.st.{ending}",
        "all_replicas",
        f"{MINE} @q multimem.st.{STORE_WORDS[number % 6]}{ending} [p+{{cells}}], {listed(list(inputs))};",
        {**inputs, **dealt(at, ranks)},
        before=np.full((ranks, 2 * COUNT * width), 0xA5, np.uint8),
        after=np.tile(after, (ranks, 1)),
    )


def reductions(ranks):
    """Every rank's every sample, to cells of which four samples each share one, on all replicas (which differ before)."""
    number = 0
    for word, kinds in INTEGER_FORMS:
        for kind in kinds:
            number += 1
            bits = int(kind[1:])
            size = bits // 8
            before = integer_table(bits, ranks, f"before {word}")
            values = integer_table(bits, ranks, f"red {word}")[:, :COUNT]
            at = places("scattered", size)[np.arange(COUNT) // 4]
            after = before.copy()
            for replica in range(ranks):
                for rank in range(ranks):
                    for sample in range(COUNT):
                        cell = int(at[sample]) // size
                        after[replica, cell] = integer(
                            word, kind, [int(after[replica, cell]), int(values[rank, sample])]
                        )
            key = f"multimem.{word}.red.{kind}" if word < "red" else f"multimem.red.{word}.{kind}"
            text = f"add.s64 p, at, %mccells; multimem.red.{RED_WORDS[number % 6]}{word}.{kind} [p+{{cells}}], a;"
            given = {"at": ("b64", np.tile(at, (ranks, 1))), "a": (f"b{bits}", values)}
            kept = {"before": before.view(np.uint8), "after": after.view(np.uint8)}
            yield MultimemVector(key, "all_replicas", text, given, **kept)


def family(ranks):
    parts = (reduce_floats(ranks), reduce_integers(ranks), stores(ranks), reductions(ranks))
    return [vector for part in parts for vector in part]
