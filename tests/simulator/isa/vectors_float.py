"""Vectors of float arithmetic: every result correctly rounded by the fractions of oracle.py, and beside them torch's."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator

import numpy as np
import simulator_oracle as oracle
import torch
from simulator_bench import SAMPLES, Array, Vector
from simulator_oracle import FORMATS, Format
from simulator_vectors_integer import Function, apply, vectors_of

_cache: dict[tuple[str, int], list[int]] = {}


def edges(kind: Format) -> list[int]:
    """Patterns around everything that is special in a format."""
    one = kind.bias << kind.mantissa_bits
    step = 1 << kind.mantissa_bits
    values = [0, 1, 2, 3, step - 1, step, step + 1, one, one + 1, one - 1, one + step, one - step, one + step // 2]
    values += [kind.infinity - 1, kind.infinity - 2, kind.infinity - step, kind.infinity]
    values += [kind.infinity + 1, kind.infinity | step >> 1, (1 << (kind.bits - 1)) - 1]
    values += [
        one + (kind.precision - 1) * step,
        one + kind.precision * step,
        one + kind.precision * step + 1,
        one | 0x55,
    ]
    return [*values, *(value | kind.sign for value in values)]


def random_bits(kind: Format, rng: random.Random) -> int:
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


def patterns(kind: Format, role: int, count: int = SAMPLES) -> list[int]:
    key = (kind.name, role)
    if key not in _cache:
        rng = random.Random(f"{kind.name} {role}")
        table = edges(kind)
        _cache[key] = [rng.choice(table) if rng.random() < 0.45 else random_bits(kind, rng) for _ in range(count)]
    return _cache[key]


def column(kind: Format, role: int) -> Array:
    return np.array(patterns(kind, role), np.uint64).astype(f"u{kind.bits // 8}")


def literals(kind: Format) -> list[tuple[str, int]]:
    one = kind.bias << kind.mantissa_bits
    values = [one + (3 << (kind.mantissa_bits - 2)), kind.sign, kind.infinity | kind.sign]
    return [(f"0{'f' if kind.bits == 32 else 'd'}{value:0{kind.bits // 4}X}", value) for value in values]


OPERATIONS: dict[str, Function] = {
    "add": lambda a, b, kind: oracle.of_hardware(oracle.add(a, b, kind), a, b, kind),
    "sub": oracle.subtract,
    "mul": lambda a, b, kind: oracle.of_hardware(oracle.multiply(a, b, kind), a, b, kind),
}
WIDE: dict[str, Function] = {**OPERATIONS, "div.rn": oracle.quotient}
TORCH: dict[str, Function] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div.rn": torch.div}


def wide_floats() -> Iterator[Vector]:
    for name in ("f32", "f64"):
        kind = FORMATS[name]
        columns = [column(kind, 0), column(kind, 1)]
        for opcode, function in WIDE.items():
            yield from vectors_of(
                f"{opcode}.{name}",
                lambda a, b, function=function, kind=kind: function(a, b, kind),
                kind.bits,
                (kind.bits,) * 2,
                columns,
                {0: literals(kind), 1: literals(kind)},
            )
            if "." not in opcode:
                yield _spelled_out(opcode, kind, function, columns)
        one = kind.bias << kind.mantissa_bits
        yield from vectors_of(
            f"rcp.rn.{name}",
            lambda a, one=one, kind=kind: oracle.quotient(one, a, kind),
            kind.bits,
            (kind.bits,),
            [column(kind, 1)],
        )
        for opcode, function in (("neg", lambda a, k: a ^ k.sign), ("abs", lambda a, k: a & ~k.sign)):
            yield from vectors_of(
                f"{opcode}.{name}",
                lambda a, function=function, kind=kind: function(a, kind),
                kind.bits,
                (kind.bits,),
                [column(kind, 2)],
            )


def _spelled_out(opcode: str, kind: Format, function: Function, columns: list[Array]) -> Vector:
    """The same with its rounding written down."""
    register = f"b{kind.bits}"
    inputs = (("a", register, columns[0]), ("b", register, columns[1]))
    good = apply(lambda a, b: function(a, b, kind), columns, kind.bits)
    text = f"{opcode}.rn.{kind.name} d, a, b;"
    return Vector(f"{opcode}.{kind.name}", "rn", text, inputs, (("d", register, good),))


def fused_columns(kind: Format) -> list[Array]:
    """Random operands, and products that a third operand nearly cancels or nudges over a tie."""
    rng = random.Random(f"fma {kind.name}")
    rows = list(zip(patterns(kind, 0), patterns(kind, 1), patterns(kind, 2), strict=True))
    for number in range(0, SAMPLES, 2):
        a, b = random_bits(kind, rng), random_bits(kind, rng)
        product = oracle.multiply(a, b, kind)
        nudge = [product ^ kind.sign, 1, kind.sign | 1, random_bits(kind, rng)][number // 2 % 4]
        rows[number] = (a, b, nudge)
    return [np.array([row[place] for row in rows], np.uint64).astype(f"u{kind.bits // 8}") for place in range(3)]


def fused() -> Iterator[Vector]:
    for kind in FORMATS.values():

        def one(a: int, b: int, c: int, kind: Format = kind) -> int:
            return oracle.fused(a, b, c, kind)

        def two(a: int, b: int, c: int, one: Function = one) -> int:
            return one(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF) | one(a >> 16, b >> 16, c >> 16) << 16

        columns, key, bits = fused_columns(kind), f"fma.rn.{kind.name}", kind.bits
        constants = {1: literals(kind), 2: literals(kind)} if bits > 16 else {}
        yield from vectors_of(key, one, bits, (bits,) * 3, columns, constants)
        if bits == 16:
            pairs = [x.astype(np.uint32) | np.roll(x, 1).astype(np.uint32) << 16 for x in columns]
            yield from vectors_of(f"{key}x2", two, 32, (32,) * 3, pairs)


def half_floats() -> Iterator[Vector]:
    for name in ("f16", "bf16"):
        kind = FORMATS[name]
        for opcode, function in OPERATIONS.items():

            def one(a: int, b: int, function: Function = function, kind: Format = kind) -> int:
                return function(a, b, kind)

            def two(a: int, b: int, one: Function = one) -> int:
                return one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16

            columns = [column(kind, 0), column(kind, 1)]
            yield from vectors_of(f"{opcode}.{name}", one, 16, (16, 16), columns)
            pairs = [
                column(kind, role).astype(np.uint32) | column(kind, role + 3).astype(np.uint32) << 16 for role in (0, 1)
            ]
            key = f"{opcode}.{name}x2"
            constant = [("0x3F804000", 0x3F804000), ("0x7C00FF80", 0x7C00FF80)]
            yield from vectors_of(key, two, 32, (32, 32), pairs, {1: constant, 0: constant})
            yield _spelled_out(opcode, kind, function, columns)
            yield Vector(
                key,
                "rn",
                f"{opcode}.rn.{name}x2 d, a, b;",
                (("a", "b32", pairs[0]), ("b", "b32", pairs[1])),
                (("d", "b32", apply(two, pairs, 32)),),
            )


def torch_agrees(opcode: str, name: str) -> None:
    """The oracle itself against torch, NaN by NaN: a wrong oracle would prove nothing."""
    kind = FORMATS[name]
    dtype = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}[name]
    whole = {16: torch.int16, 32: torch.int32, 64: torch.int64}[kind.bits]
    signed = f"i{kind.bits // 8}"
    a, b = (torch.from_numpy(column(kind, role).view(signed)).view(dtype) for role in (0, 1))
    result = TORCH[opcode](a, b)
    bits = result.view(whole).numpy().view(f"u{kind.bits // 8}")
    rows = zip(patterns(kind, 0), patterns(kind, 1), strict=True)
    ours = np.array([WIDE[opcode](x, y, kind) for x, y in rows], np.uint64).astype(bits.dtype)
    nan = torch.isnan(result).numpy()
    assert np.array_equal(ours[~nan], bits[~nan])
    if name != "f64" or opcode not in ("add", "mul"):
        assert set(ours[nan].tolist()) <= {kind.quiet}
    elif platform.machine() == "x86_64":  # whose NaNs of float64 are those of an H100, but for the choice among two
        told = nan & ~(torch.isnan(a) & torch.isnan(b)).numpy()
        assert told.any()
        assert np.array_equal(ours[told], bits[told])


def family() -> list[Vector]:
    return [vector for part in (wide_floats(), fused(), half_floats()) for vector in part]
