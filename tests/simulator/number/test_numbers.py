"""Number formats: the oracle of the vectors against torch, ml_dtypes and struct, and the simulator's exact sums."""

import math
import platform
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

import tests.simulator.isa.oracle as oracle
from simulator.number import numbers
from tests.simulator.isa.oracle import BF16, F16, F32, F64
from tests.simulator.isa.vectors_convert import near_ties
from tests.simulator.isa.vectors_float import column, operation


def test_the_oracle_reads_every_half():
    for bits in range(0, 65536, 7):
        from_struct = struct.unpack("<e", bits.to_bytes(2, "little"))[0]
        if math.isfinite(from_struct):
            assert oracle.value(bits, F16) == Fraction(from_struct)
        brain = struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]
        if math.isfinite(brain):
            assert oracle.value(bits, BF16) == Fraction(brain)
        assert oracle.is_nan(bits, F16) == math.isnan(from_struct)
        assert oracle.is_nan(bits, BF16) == math.isnan(brain)


@pytest.mark.parametrize("kind", [F32, F64, F16, BF16], ids=lambda one: one.name)
@pytest.mark.parametrize("word", ["add", "sub", "mul", "div"])
def test_the_oracle_computes_as_torch(word, kind):
    """NaN by NaN: a wrong oracle would prove nothing."""
    dtype = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}[kind.name]
    whole = {16: torch.int16, 32: torch.int32, 64: torch.int64}[kind.bits]
    columns = [column(kind, role) for role in (0, 1)]
    a, b = (torch.from_numpy(one.view(f"i{kind.bits // 8}")).view(dtype) for one in columns)
    result = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}[word](a, b)
    bits = result.view(whole).numpy().view(f"u{kind.bits // 8}")
    function = operation(word, kind)
    ours = np.array([function(*row) for row in zip(*(one.tolist() for one in columns), strict=True)], bits.dtype)
    nan = torch.isnan(result).numpy()
    assert np.array_equal(ours[~nan], bits[~nan])
    if kind is not F64 or word not in ("add", "mul"):
        assert set(ours[nan].tolist()) <= {kind.quiet}
    elif platform.machine() == "x86_64":  # whose NaNs of float64 are those of an H100, but for the choice among two
        told = nan & ~(torch.isnan(a) & torch.isnan(b)).numpy()
        assert told.any()
        assert np.array_equal(ours[told], bits[told])


@pytest.mark.parametrize(
    ("kind", "dtype", "other"), [(F16, torch.float16, np.float16), (BF16, torch.bfloat16, ml_dtypes.bfloat16)]
)
def test_the_oracle_rounds_as_torch_and_ml_dtypes(kind, dtype, other):
    words = np.concatenate([near_ties(kind, F32), column(F32, 0)])
    ours = np.array([oracle.convert(int(one), F32, kind) for one in words], np.uint16)
    floats = words.view(np.float32)
    by_torch = torch.from_numpy(floats).to(dtype).view(torch.int16).numpy().view(np.uint16)
    with np.errstate(all="ignore"):
        by_other = floats.astype(other).view(np.uint16)
    number = ~np.isnan(floats)
    assert np.array_equal(ours[number], by_torch[number])
    assert np.array_equal(ours[number], by_other[number])
    assert set(ours[~number].tolist()) == {0x7FFF}


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on NaN and infinities


def sums(kind, parts, found):
    for index in range(len(found)):
        column_of = [int(part[index]) for part in parts]
        assert int(found[index]) == oracle.exact_sum(column_of, kind, kind), [hex(one) for one in column_of]


def exact(kind, parts):
    """The switch's exact sum, by the simulator."""
    if kind is F64:
        return numbers.canonical_f64(numbers.exact_sum_f64([part.view(np.float64) for part in parts])).view(np.uint64)
    if kind is F32:
        total = numbers.exact_sum([part.view(np.float32) for part in parts])
        return numbers.canonical_f32(total.astype(np.float32)).view(np.uint32)
    widen, narrow = (
        (numbers.bf16_to_f32, numbers.f32_to_bf16) if kind is BF16 else (numbers.f16_to_f32, numbers.f32_to_f16)
    )
    return narrow(numbers.to_odd_f32(numbers.exact_sum([widen(part) for part in parts], kind.precision)))


@pytest.mark.parametrize("kind", [F16, BF16, F32, F64], ids=lambda one: one.name)
@pytest.mark.parametrize("spread", [0, 3, 8, 20, 60, 300], ids=lambda one: f"within {one} binades")
@pytest.mark.parametrize("count", [1, 2, 3, 8, 72])
def test_exact_sums(kind, spread, count):
    """Exponents within some binades of each other (so that every shortcut is taken, and each one's edge), with
    cancellation to nothing and to the last bit."""
    rng = random.Random(f"{kind.name} {spread} {count}")
    top = (1 << kind.exponent_bits) - 1
    span = min(spread, top - 1)
    dtype = f"u{kind.bits // 8}"
    samples = 60
    base = rng.randrange(0, top - span)
    rows = []
    for _ in range(count):
        rows.append(
            [
                rng.getrandbits(1) << (kind.bits - 1)
                | (base + rng.randint(0, span)) << kind.mantissa_bits
                | rng.getrandbits(kind.mantissa_bits)
                for _ in range(samples)
            ]
        )
    for number in range(1, count, 2):  # the neighbour's opposite, sometimes off by one in the last place
        for sample in range(samples // 2):
            rows[number][sample] = (rows[number - 1][sample] ^ kind.sign) + rng.choice((0, 0, 1))
            if rows[number][sample] & ~kind.sign >= kind.infinity:
                rows[number][sample] = kind.sign
    parts = [np.array(row, np.uint64).astype(dtype) for row in rows]
    with np.errstate(all="ignore"):
        sums(kind, parts, exact(kind, parts))


@pytest.mark.parametrize("kind", [F16, BF16, F32, F64], ids=lambda one: one.name)
def test_exact_sums_at_a_tie(kind):
    """1 + half of its last place is a tie; the least thing there is, far below it, decides; its opposite undoes that."""
    one, half = kind.bias << kind.mantissa_bits, (kind.bias - kind.precision) << kind.mantissa_bits
    tiny, minus = 1, kind.sign | 1
    rows = [
        ([one, half, 0], one),
        ([one, half, tiny], one + 1),
        ([one, half, minus], one),
        ([one + 1, half, 0], one + 2),
        ([one + 1, half, minus], one + 1),
        ([tiny, half, one], one + 1),
        ([minus, one + 1, half], one + 1),
        ([one, kind.sign | one, tiny], tiny),
        ([one, kind.sign | one, kind.sign], 0),
        ([kind.sign, kind.sign, kind.sign], 0),
        ([kind.infinity - 1, kind.infinity - 1, kind.sign | (kind.infinity - 1)], kind.infinity - 1),
        ([kind.infinity - 1, kind.infinity - 1, tiny], kind.infinity),
        ([kind.infinity, one, kind.infinity - 1], kind.infinity),
        ([kind.infinity | kind.sign, kind.infinity - 1, kind.infinity - 1], kind.infinity | kind.sign),
        ([kind.infinity, kind.infinity | kind.sign, one], kind.quiet),
        ([kind.quiet ^ 5, one, one], kind.quiet),
        ([kind.infinity + 1 | kind.sign, kind.infinity, one], kind.quiet),
    ]
    parts = [np.array([row[place] for row, _ in rows], np.uint64).astype(f"u{kind.bits // 8}") for place in range(3)]
    with np.errstate(all="ignore"):
        found = exact(kind, parts)
    sums(kind, parts, found)
    assert found.tolist() == [wanted for _, wanted in rows]
