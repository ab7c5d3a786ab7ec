"""Vectors of integer arithmetic, shifts, logic and selection. The oracle is Python's own integers."""

import random
from functools import cache

import numpy as np

from tests.simulator.bench import SAMPLES, Vector
from tests.simulator.isa.oracle import divide, signed, wrap

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def width(kind):
    return int(kind[1:])


def edges(bits):
    top = 1 << bits
    half = top >> 1
    values = [0, 1, 2, 3, 5, *(power + step for power in (8, 16, 32, 64) for step in (-1, 0, 1))]
    values += [half - 1, half, half + 1, top - 2, top - 1, top // 3]
    values += [1 << (bits // 2), (1 << (bits // 2)) - 1, top - (1 << (bits // 2)), 100, 255, 256]
    return [value % top for value in values]


@cache
def samples(bits, role):
    """Edges against edges for the first operands, then random bits (short numbers too, so that divisions say something)."""
    rng = random.Random(f"{bits} {role}")
    table = edges(bits)
    out = []
    for number in range(SAMPLES):
        if number < len(table) ** 2 and role < 2:
            out.append(table[number % len(table)] if role == 0 else table[number // len(table)])
        elif rng.random() < 0.3:
            out.append(rng.choice(table))
        elif rng.random() < 0.3:
            out.append(wrap(rng.getrandbits(6) - 32, bits))
        else:
            out.append(rng.getrandbits(bits))
    return np.array(out, np.uint64).astype(f"u{bits // 8}")


GUARD = np.array([random.Random(f"guard {i}").getrandbits(1) for i in range(SAMPLES)], np.uint32)


def apply(function, columns, bits):
    """The oracle on every sample, wrapped to bits."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    kind = "u4" if bits == 1 else f"u{bits // 8}"
    return np.array([wrap(function(*row), bits) for row in rows], np.uint64).astype(kind)


def register_class(bits):
    return "pred" if bits == 1 else f"b{bits}"


def alone(key, function, to_bits, from_bits, columns, spelled=""):
    """One key, spelled in this way, with every operand in a register."""
    names = "abce"[: len(columns)]
    inputs = tuple((n, register_class(w), v) for n, w, v in zip(names, from_bits, columns, strict=True))
    output = ("d", register_class(to_bits), apply(function, columns, to_bits))
    return Vector(key, spelled or "plain", f"{spelled or key} d, {', '.join(names)};", inputs, (output,))


def vectors_of(key, function, to_bits, from_bits, columns=None, literals=None):
    """One key in several dresses: plain, under a guard, in place, all operands the same register, with literals."""
    names = ["a", "b", "c", "e"][: len(from_bits)]
    columns = columns or [samples(bits, role) if bits > 1 else flags(role) for role, bits in enumerate(from_bits)]
    plain = alone(key, function, to_bits, from_bits, columns)
    inputs, ((_, to, good),) = plain.inputs, plain.outputs
    yield plain
    yield from _guarded(key, names, inputs, to, good)
    same = [position for position, bits in enumerate(from_bits) if bits == to_bits]
    for position in same:
        text = f"{move(to)} d, {names[position]}; {key} d, {', '.join('d' if p == position else n for p, n in enumerate(names))};"
        yield Vector(key, f"in_place_{names[position]}", text, inputs, (("d", to, good),))
    if len(same) == len(names) > 1:
        every = apply(function, [columns[0]] * len(names), to_bits)
        text = f"{move(to)} d, a; {key} d, {', '.join('d' for _ in names)};"
        yield Vector(key, "all_one_register", text, inputs[:1], (("d", to, every),))
    for position, choices in (literals or {}).items():
        for text, bits in choices:
            fixed = [np.full(SAMPLES, bits, c.dtype) if p == position else c for p, c in enumerate(columns)]
            written = ", ".join(text if p == position else n for p, n in enumerate(names))
            kept = tuple(one for p, one in enumerate(inputs) if p != position)
            output = ("d", to, apply(function, fixed, to_bits))
            yield Vector(key, f"literal_{names[position]}={text}", f"{key} d, {written};", kept, (output,))


def _guarded(key, names, inputs, to, good):
    old = flags(5) if to == "pred" else samples(width(to), 5)
    for sign, mark in (("", "where"), ("!", "where_not")):
        runs = GUARD.astype(bool) if not sign else ~GUARD.astype(bool)
        text = f"{move(to)} d, old; @{sign}g {key} d, {', '.join(names)};"
        extra = (("old", to, old), ("g", "pred", GUARD))
        yield Vector(key, f"guarded_{mark}", text, (*inputs, *extra), (("d", to, np.where(runs, good, old)),))


def flags(role):
    rng = random.Random(f"flags {role}")
    return np.array([rng.getrandbits(1) for _ in range(SAMPLES)], np.uint32)


def move(kind):
    return "mov.pred" if kind == "pred" else f"mov.{kind}"


def literal(number, kind):
    """A literal as PTX writes it, and its bits."""
    return str(number), wrap(number, width(kind))


def literals_for(kind):
    bits = width(kind)
    out = [literal(3, kind), literal(-7, kind) if kind[0] != "u" else (hex((1 << bits) - 7), (1 << bits) - 7)]
    return [*out, literal(0, kind)]


def arithmetic():
    for kind in INTEGERS:
        bits = width(kind)

        def of(number, kind=kind, bits=bits):
            return signed(number, bits) if kind[0] == "s" else number

        functions = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "min": lambda a, b, of=of: min(of(a), of(b)),
            "max": lambda a, b, of=of: max(of(a), of(b)),
            "mul.lo": lambda a, b: a * b,
            "mul.hi": lambda a, b, of=of, bits=bits: of(a) * of(b) >> bits,
            "div": lambda a, b, of=of: divide(of(a), of(b)) if b else -1,
            "rem": lambda a, b, of=of: of(a) - divide(of(a), of(b)) * of(b) if b else a,
        }
        literals = {1: literals_for(kind), 0: literals_for(kind)[:2]}
        for name, function in functions.items():
            yield from vectors_of(f"{name}.{kind}", function, bits, (bits,) * 2, literals=literals)
        mad = {1: literals_for(kind)[:2], 2: literals_for(kind)[:2]}
        yield from vectors_of(f"mad.lo.{kind}", lambda a, b, c: a * b + c, bits, (bits,) * 3, literals=mad)
        if bits < 64:
            wide = 2 * bits

            def product(a, b, c=0, of=of):
                return of(a) * of(b) + c

            yield from vectors_of(f"mul.wide.{kind}", product, wide, (bits,) * 2, literals={1: literals_for(kind)})
            mad = {1: literals_for(kind)[:2], 2: literals_for(f"{kind[0]}{wide}")[:2]}
            yield from vectors_of(f"mad.wide.{kind}", product, wide, (bits, bits, wide), literals=mad)
        if kind[0] == "s":
            yield from vectors_of(f"neg.{kind}", lambda a: -a, bits, (bits,))
            yield from vectors_of(f"abs.{kind}", lambda a, of=of: abs(of(a)), bits, (bits,))


def shifts():
    """Amounts are 32-bit and unsigned; from the width on they mean the width."""
    for opcode, kinds in (("shl", ("b16", "b32", "b64")), ("shr", ("b16", "b32", "b64", *INTEGERS))):
        for kind in kinds:
            bits = width(kind)

            def function(a, n, opcode=opcode, kind=kind, bits=bits):
                n = min(n, bits)
                if opcode == "shl":
                    return a << n
                return (signed(a, bits) if kind[0] == "s" else a) >> n

            amounts = samples(32, 1)
            fixed = [(str(n), n) for n in (0, 1, bits - 1, bits, bits + 1, 300)] + [("0xFFFFFFFF", 0xFFFFFFFF)]
            values = {0: [("3", 3), (hex((1 << bits) - 5), (1 << bits) - 5)], 1: fixed}
            yield from vectors_of(f"{opcode}.{kind}", function, bits, (bits, 32), [samples(bits, 0), amounts], values)


def logic():
    functions = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    for kind in ("b16", "b32", "b64", "pred"):
        bits = 1 if kind == "pred" else width(kind)
        for name, function in functions.items():
            literals = {} if bits == 1 else {1: [*literals_for(kind), (hex((1 << bits) - 16), (1 << bits) - 16)]}
            yield from vectors_of(f"{name}.{kind}", function, bits, (bits, bits), literals=literals)
        yield from vectors_of(f"not.{kind}", lambda a: ~a, bits, (bits,))


def selections():
    for kind in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        bits = width(kind)
        number = f"0f{0x7FC12345:08X}" if kind == "f32" else f"0d{0xFFF8000000000001:016X}" if kind == "f64" else "77"
        value = {"f32": 0x7FC12345, "f64": 0xFFF8000000000001}.get(kind, 77)
        literals = {at: [(number, value)] for at in (0, 1)}
        yield from vectors_of(f"selp.{kind}", lambda a, b, p: a if p else b, bits, (bits, bits, 1), literals=literals)


def permutations():
    def permute(a, b, selector):
        source = (a | b << 32).to_bytes(8, "little")
        out = []
        for position in range(4):
            nibble = selector >> 4 * position & 15
            byte = source[nibble & 7]
            out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    selectors = [(text, int(text, 16)) for text in ("0x5410", "0x7632", "0x3276", "0xBA98", "0x12345678")]
    yield from vectors_of("prmt.b32", permute, 32, (32, 32, 32), literals={2: selectors, 1: [("0", 0)]})


PERMUTED = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}
"""The bytes that each mode takes, the highest first, by the selector's lowest two bits (PTX ISA, "prmt")."""


def permutations_by_mode():
    for mode, table in PERMUTED.items():

        def permute(a, b, selector, table=table):
            source = (a | b << 32).to_bytes(8, "little")
            return int.from_bytes(bytes(source[int(one)] for one in table[selector & 3]), "big")

        key = f"prmt.b32.{mode}"
        yield from vectors_of(key, permute, 32, (32, 32, 32), literals={2: [("1", 1), ("7", 7)], 1: [("0", 0)]})


def selections_by_sign():
    for kind in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        for form, by in (("", "s32"), ("", "f32"), (".ftz", "f32")):

            def select(a, b, c, by=by, form=form):
                nothing = (0x80000000, 0x807FFFFF if form else 0x80000000)  # -0, and what .ftz makes -0
                if by == "s32":
                    return b if c >> 31 else a
                is_number = c & 0x7FFFFFFF <= 0x7F800000
                return a if is_number and (c < 1 << 31 or nothing[0] <= c <= nothing[1]) else b

            bits = width(kind)
            signs = samples(32, 3).copy()
            signs[:12] = [0, 1 << 31, 0x80000001, 0x807FFFFF, 0x80800000, 1, 0x7F800000, 0xFF800000, 0x7FC00000,
                          0xFFC00000, 0x7F800001, 0x3F800000]  # fmt: skip
            columns = [samples(bits, 0), samples(bits, 4), signs]
            key = f"slct{form}.{kind}.{by}"
            yield from vectors_of(key, select, bits, (bits, bits, 32), columns)


def fields():
    """bfe and bfi on integers without an end, which a sign goes on in for ever; shf of two words, side by side."""
    places = samples(32, 2) % 80 | (samples(32, 3) & 1) << 9  # positions and lengths count modulo 256
    lengths = samples(32, 1) % 70
    for kind in ("u32", "s32", "u64", "s64"):
        bits = width(kind)

        def extract(a, start, length, kind=kind, bits=bits):
            start, length = start & 255, length & 255
            field = (signed(a, bits) if kind[0] == "s" else a) >> start & ((1 << length) - 1)
            negative = kind[0] == "s" and length and field >> (length - 1)
            return field - (1 << length) if negative else field

        constants = {1: [("8", 8), ("0", 0)], 2: [("8", 8), ("0", 0), ("64", 64)]}
        columns = [samples(bits, 0), places, lengths]
        yield from vectors_of(f"bfe.{kind}", extract, bits, (bits, 32, 32), columns, constants)
    for kind in ("b32", "b64"):
        bits = width(kind)

        def insert(a, b, start, length):
            start, length = start & 255, length & 255
            mask = ((1 << length) - 1) << start
            return b & ~mask | a << start & mask

        constants = {2: [("8", 8)], 3: [("8", 8), ("0", 0), ("64", 64)]}
        columns = [samples(bits, 0), samples(bits, 4), places, lengths]
        yield from vectors_of(f"bfi.{kind}", insert, bits, (bits, bits, 32, 32), columns, constants)
    for way in ("l", "r"):
        for mode in ("wrap", "clamp"):

            def funnel(a, b, n, way=way, mode=mode):
                n = n & 31 if mode == "wrap" else min(n, 32)
                return (b << 32 | a) << n >> 32 if way == "l" else (b << 32 | a) >> n

            key = f"shf.{way}.{mode}.b32"
            columns = [samples(32, 0), samples(32, 4), samples(32, 1)]
            constants = {2: [("0", 0), ("8", 8), ("32", 32), ("40", 40)]}
            yield from vectors_of(key, funnel, 32, (32, 32, 32), columns, constants)


def family():
    parts = (arithmetic(), shifts(), logic(), selections(), permutations(), fields())
    parts = (*parts, permutations_by_mode(), selections_by_sign())
    return [vector for part in parts for vector in part]
