"""Sums of matrix products where one float32 product has the same bits, and where it stops to."""

from fractions import Fraction

import numpy as np
import pytest

from simulator.number.products import BITS, Precision, multiplied
from tests.simulator.isa.products_oracle import FORMATS, encoded, summed


def integers(made, kind, most, shape, signs=(-1, 1)):
    """Codes of whole numbers up to a power of two, as exact as the type allows."""
    bits = FORMATS[kind][1]
    numbers = made.integers(1, most + 1, shape)
    kept = np.maximum(np.frexp(numbers)[1] - 1 - bits, 0)
    numbers = (numbers >> kept << kept) * made.choice(signs, shape)
    found = np.array([encoded(int(one), kind, bits) for one in numbers.ravel()]).reshape(shape)
    return (found << (13 if kind == "tf32" else 0)).astype(f"u{BITS[kind] // 8}")


@pytest.mark.parametrize(
    ("kinds", "how"),
    [
        (("f32", "f16", "f16"), Precision()),
        (("f32", "tf32", "tf32"), Precision()),
        (("f16", "f16", "f16"), Precision()),
        (("f32", "e4m3", "e5m2"), Precision(13, 13)),
    ],
    ids=str,
)
@pytest.mark.parametrize("signs", [(-1, 1), (1,)], ids=str)
@pytest.mark.parametrize("power", [1, 4, 6, 7, 8, 9, 10, 11])
def test_integers_whose_sums_outgrow_the_result(kinds, how, power, signs):
    made = np.random.default_rng(power)
    depth = 8 if kinds[1] == "tf32" else 512 // BITS[kinds[1]] // 2
    most = 1 << min(power, 8 if kinds[1] == "e4m3" else 11)
    a, b = (integers(made, kind, most, (1, 24, depth), signs) for kind in kinds[1:])
    c = integers(made, kinds[0], most, (1, 24, 24), signs)
    found = multiplied(a, b, c, kinds, how)
    for row, column in zip(*made.integers(0, 24, (2, 60)), strict=True):
        pairs = list(zip(a[0, row].tolist(), b[0, column].tolist(), strict=True))
        assert found[0, row, column] == summed(pairs, int(c[0, row, column]), kinds, how.fraction, how.kept)


@pytest.mark.parametrize("power", [-152, -150, -148, -126, -121, -119, 100])
def test_numbers_far_from_one_are_summed_as_others(power):
    """Powers of two whose products float32 can't hold, and others."""
    made, kinds = np.random.default_rng(7), ("f32", "bf16", "bf16")
    scales = (Fraction(2) ** (power // 2), Fraction(2) ** (power - power // 2))
    a, b = (
        np.array([encoded(int(one) * scale, "bf16", 7) for one in made.integers(-9, 10, 256)], "u2").reshape(1, 16, 16)
        for scale in scales
    )
    found = multiplied(a, b, None, kinds, Precision())
    for row, column in np.ndindex(16, 16):
        pairs = list(zip(a[0, row].tolist(), b[0, column].tolist(), strict=True))
        assert found[0, row, column] == summed(pairs, 0, kinds, 25, 23)


@pytest.mark.parametrize(
    ("kinds", "factors"),
    [
        (("f32", "f16", "f16"), (2**10, 2**-8)),
        (("f32", "bf16", "bf16"), (2**41, 2**22)),
        (("f16", "f16", "f16"), (2**-1, 2**-17)),
    ],
    ids=str,
)
def test_the_least_subnormals_cut_others_as_the_least_normal_numbers_do(kinds, factors):
    b = [encoded(Fraction(one), kinds[1], FORMATS[kinds[1]][1]) for one in factors] + [0] * 14
    left, right = (np.array([[some]], "u2") for some in ([1] * 16, b))
    pairs = [(1, one) for one in b]
    assert multiplied(left, right, None, kinds, Precision())[0, 0, 0] == summed(pairs, 0, kinds, 25, 23)
