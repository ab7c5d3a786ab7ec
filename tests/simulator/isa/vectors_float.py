"""Vectors of float arithmetic in all roundings and modes, by the integers of oracle.py, which test_numbers holds to torch."""

import random
from functools import cache
from itertools import product

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.bench import SAMPLES
from tests.simulator.isa.oracle import FORMATS, cleared, is_infinite, is_nan
from tests.simulator.isa.vectors_integer import alone, vectors_of


def edges(kind):
    """Patterns around everything that is special in a format."""
    one = kind.bias << kind.mantissa_bits
    step = 1 << kind.mantissa_bits
    values = [0, 1, 2, 3, step - 1, step, step + 1, one, one + 1, one - 1, one + step, one - step, one + step // 2]
    values += [kind.infinity - 1, kind.infinity - 2, kind.infinity - step, kind.infinity]
    values += [kind.infinity + 1, kind.infinity | step >> 1, (1 << (kind.bits - 1)) - 1]
    large = one + kind.precision * step
    values += [large - step, large, large + 1, one | 0x55]
    return [*values, *(value | kind.sign for value in values)]


def random_bits(kind, rng):
    """All exponents, or near one (so that sums round and cancel), with short mantissas often (ties)."""
    sign = rng.getrandbits(1) << (kind.bits - 1)
    mantissa = rng.getrandbits(kind.mantissa_bits)
    if rng.random() < 0.4:
        keep = rng.randrange(kind.mantissa_bits + 1)
        mantissa &= ~((1 << keep) - 1)
    if rng.random() < 0.5:
        exponent = max(
            0, min((1 << kind.exponent_bits) - 1, kind.bias + rng.randrange(-kind.precision - 2, kind.precision + 2))
        )
    else:
        exponent = rng.getrandbits(kind.exponent_bits)
    return sign | exponent << kind.mantissa_bits | mantissa


@cache
def patterns(kind, role, count=SAMPLES):
    rng = random.Random(f"{kind.name} {role}")
    table = edges(kind)
    return [rng.choice(table) if rng.random() < 0.45 else random_bits(kind, rng) for _ in range(count)]


def column(kind, role):
    return np.array(patterns(kind, role), np.uint64).astype(f"u{kind.bits // 8}")


def literals(kind):
    one = kind.bias << kind.mantissa_bits
    values = [one + (3 << (kind.mantissa_bits - 2)), kind.sign, kind.infinity | kind.sign]
    return [(f"0{'f' if kind.bits == 32 else 'd'}{value:0{kind.bits // 4}X}", value) for value in values]


OPERATIONS = {
    "add": oracle.add,
    "sub": oracle.subtract,
    "mul": oracle.multiply,
    "fma": oracle.fused,
    "mad": oracle.fused,
    "div": oracle.quotient,
    "rcp": oracle.reciprocal,
    "sqrt": oracle.root,
}
COUNTS = {"fma": 3, "mad": 3, "rcp": 1, "sqrt": 1}
"""Numbers of operands; of the others two."""
DIRECTIONS = ("rn", "rz", "rm", "rp")


def shaped(bits, kind, flush, last):
    """What .ftz, .sat and .relu make of a result."""
    bits = cleared(bits, kind) if flush else bits
    if last == ".sat":
        return 0 if is_nan(bits, kind) or bits & kind.sign else min(bits, kind.one)
    return 0 if last == ".relu" and not is_nan(bits, kind) and bits & kind.sign else bits


def operation(word, kind, direction="rn", flush="", last=""):
    def computed(*row):
        row = tuple(cleared(one, kind) if flush else one for one in row)
        found = OPERATIONS[word](*row, kind, direction)
        if direction == "rn" and word in ("add", "mul"):
            found = oracle.of_hardware(found, row[0], row[1], kind)
        return shaped(found, kind, bool(flush), last)

    return computed


@cache
def operands(word, kind):
    """Of a fused operation also products that a third operand nearly cancels or nudges over a tie."""
    if word not in ("fma", "mad"):
        return [column(kind, role) for role in range(COUNTS.get(word, 2))]
    rng = random.Random(f"fma {kind.name}")
    rows = list(zip(patterns(kind, 0), patterns(kind, 1), patterns(kind, 2), strict=True))
    for number in range(0, SAMPLES, 2):
        a, b = random_bits(kind, rng), random_bits(kind, rng)
        product = oracle.multiply(a, b, kind)
        nudge = [product ^ kind.sign, 1, kind.sign | 1, random_bits(kind, rng)][number // 2 % 4]
        rows[number] = (a, b, nudge)
    return [np.array([row[place] for row in rows], np.uint64).astype(f"u{kind.bits // 8}") for place in range(3)]


def doubled(function, bits=16):
    """The function of both halves of words."""
    mask = (1 << bits) - 1

    def two(*words):
        return function(*(one & mask for one in words)) | function(*(one >> bits for one in words)) << bits

    return two


def in_pairs(columns, bits=16):
    """Each sample in the lower half of a word, another one in the upper half."""
    kind = np.uint32 if bits == 16 else np.uint64
    return [one.astype(kind) | np.roll(one, 7).astype(kind) << kind(bits) for one in columns]


def is_form(word, name, direction, flush, last):
    if name == "f32":
        return last == "" or (last == ".sat" and word not in ("div", "rcp", "sqrt"))
    if name == "f64":
        return not flush and not last
    if word == "fma":
        return direction == "rn" if name == "f16" else not flush and last != ".sat"
    return (
        word in ("add", "sub", "mul") and direction == "rn" and last != ".relu" and (name == "f16" or not flush + last)
    )


def arithmetic():
    """All forms with their rounding written down; the plain ones in all dresses, and without it where it may miss."""
    pair = [("0x3F804000", 0x3F804000), ("0x7C00FF80", 0x7C00FF80)]
    forms = product(OPERATIONS, FORMATS, DIRECTIONS, ("", ".ftz"), ("", ".sat", ".relu"))
    for word, name, direction, flush, last in (one for one in forms if is_form(*one)):
        kind, given = FORMATS[name], operands(word, FORMATS[name])
        bits, count, function = kind.bits, len(given), operation(word, kind, direction, flush, last)
        way = "" if word in ("add", "sub", "mul") and direction == "rn" else f".{direction}"
        key, spelled = (f"{word}{one}{flush}{last}.{name}" for one in (way, f".{direction}"))
        is_plain = direction == "rn" and not flush and not last
        places = (0, 1) if count == 2 else (1, 2) if count == 3 else ()
        yield alone(key, function, bits, (bits,) * count, given, spelled)
        if is_plain:
            constants = {place: literals(kind) for place in places} if bits > 16 else {}
            yield from vectors_of(key, function, bits, (bits,) * count, given, constants)
        if bits == 16 or (name == "f32" and not last and word in ("add", "sub", "mul", "fma")):
            two, pairs, wide = doubled(function, bits), in_pairs(given, bits), (2 * bits,) * count
            yield alone(f"{key}x2", two, 2 * bits, wide, pairs, f"{spelled}x2")
            if is_plain and bits == 16:
                yield from vectors_of(f"{key}x2", two, 32, wide, pairs, dict.fromkeys(places, pair))


def questions():
    for name in ("f32", "f64"):
        kind = FORMATS[name]
        a, b = column(kind, 0), column(kind, 1)
        tests = {
            "finite": lambda x, kind=kind: not is_nan(x, kind) and not is_infinite(x, kind),
            "infinite": lambda x, kind=kind: is_infinite(x, kind),
            "number": lambda x, kind=kind: not is_nan(x, kind),
            "notanumber": lambda x, kind=kind: is_nan(x, kind),
            "normal": lambda x, kind=kind: 0 < x & kind.infinity < kind.infinity,
            "subnormal": lambda x, kind=kind: x & kind.infinity == 0 and x & ~kind.sign != 0,
        }
        for word, function in tests.items():
            yield alone(f"testp.{word}.{name}", function, 1, (kind.bits,), [a])

        def signed(x, y, kind=kind):
            return x & kind.sign | y & ~kind.sign

        yield alone(f"copysign.{name}", signed, kind.bits, (kind.bits,) * 2, [a, b])


def extremes_of_three():
    kind = FORMATS["f32"]
    for word, nan in product(("min", "max"), ("", ".NaN")):

        def function(first, *rest, larger=word == "max", propagate=bool(nan)):
            for one in rest:
                first = oracle.extreme(first, one, kind, larger, propagate)
            return first

        yield alone(f"{word}{nan}.f32", function, 32, (32,) * 3, [column(kind, role) for role in range(3)])


def family():
    return [*arithmetic(), *questions(), *extremes_of_three()]
