"""The kernels' arithmetic against the folds of kernels/numeric/numerics.py, bit by bit: every data type, accumulator
and reduction, on special values, all pairs where they can be counted, and random bits."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from cases.dtypes import ARITHMETIC, DTYPES, FLOAT8, FLOATS, ITEMSIZES
from kernels.catalogue import find
from kernels.dsl import arithmetic
from kernels.dsl.arithmetic import Reduction
from kernels.numeric import numerics
from kernels.numeric.formats import FORMATS, bits_of, same_bits, widen
from tests.kernels import probes
from tests.kernels.launching import random_bytes

BLOCKS = 16


def specials(dtype):
    """Zeros, the smallest and largest subnormals and normals, ones and their neighbours, infinity, NaN with a payload,
    with both signs; of integers the ends and what is around zero."""
    itemsize = ITEMSIZES[dtype]
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]
    highest = torch.iinfo(signed).max
    if dtype not in FLOATS:
        return torch.tensor([0, 1, 2, 3, 5, -1, -2, -3, highest, highest - 1, -highest, -highest - 1], dtype=signed)
    form = FORMATS[DTYPES[dtype]]
    fraction = form.significand_bits - 1
    one = bits_of(torch.tensor([1.0, 1.5, 3.0], dtype=torch.float64).to(DTYPES[dtype])).tolist()
    step = 1 << fraction
    patterns = [0, 1, 2, 3, step - 1, step, step + 1, *(pattern + at for pattern in one for at in (-1, 0, 1))]
    patterns += [*range(highest - 3, highest + 1), *(highest - step + at for at in (-2, -1, 0, 1, 2))]
    positive = torch.tensor(patterns, dtype=torch.int64)
    return torch.cat([positive, positive ^ (-highest - 1)]).to(signed)


def random_patterns(dtype, count, seed):
    """Random bits, and numbers near each other, whose sums round and cancel."""
    itemsize = ITEMSIZES[dtype]
    anything = random_bytes(count // 2 * itemsize, seed).view(DTYPES[dtype])
    if dtype not in FLOATS:
        return torch.cat([anything, random_bytes(count // 2 * itemsize, seed, 1).view(DTYPES[dtype])])
    near = torch.from_numpy(np.random.default_rng(seed).standard_normal(count // 2)).to(DTYPES[dtype])
    return torch.cat([bits_of(anything), bits_of(near)]).view(DTYPES[dtype])


def contributions(dtype, world_size):
    """One tensor a rank, of whole vectors: of two ranks every pair of specials (every pair of all for 8 bits)."""
    patterns = torch.arange(256).to(torch.uint8).view(torch.int8) if dtype in FLOAT8 else specials(dtype)
    pairs = torch.tensor(list(itertools.product(range(len(patterns)), repeat=2)))
    columns = [patterns[pairs[:, rank % 2]] for rank in range(world_size)]
    if world_size > 2:
        columns = [
            column[torch.from_numpy(np.random.default_rng(rank).permutation(len(column)))]
            for rank, column in enumerate(columns)
        ]
    parts = []
    for rank, column in enumerate(columns):
        count = (1 << 14) + -len(column) % 16
        parts.append(torch.cat([column.view(torch.uint8), random_patterns(dtype, count, rank).view(torch.uint8)]))
    return [part[: part.numel() // 16 * 16].view(DTYPES[dtype]) for part in parts]


def report(dtype, parts, found, wanted):
    """The first of the differences, "" if there are none."""
    wrong = ~same_bits(found, wanted)
    if not wrong.any():
        return ""
    at = int(wrong.nonzero()[0])
    bits = [hex(int(bits_of(one)[at]) % (1 << 8 * ITEMSIZES[dtype])) for one in (*parts, found, wanted)]
    return f"{int(wrong.sum())} of {wrong.numel()}; at {at} of {', '.join(bits[:-2])} came {bits[-2]}, not {bits[-1]}"


@pytest.mark.parametrize("dtype", ARITHMETIC)
@pytest.mark.parametrize("world_size", [2, 3])
def test_reductions_are_the_folds_of_numerics(compiled, dtype, world_size):
    spec = probes.probe("reduce", probes.reduce, kind=dtype)
    executable = compiled(spec, probes.case_of(world_size=world_size), "sm_100a" if dtype in FLOAT8 else "sm_90a")
    parts = contributions(dtype, world_size)
    vectors = parts[0].nbytes // 16
    kinds = probes.KINDS[dtype]
    sizes = {"output_bytes": len(kinds) * vectors * 16, "numel": vectors, "ranks": world_size}
    given = torch.cat([part.view(torch.uint8) for part in parts])
    probed = probes.run(executable, spec, grid=BLOCKS, input=given, arch=executable.arch, **sizes)
    rows = probed.output.view(len(kinds), -1)
    faults = {}
    for (accumulator, reduction), row in zip(kinds, rows, strict=True):
        wanted = numerics.fold(parts, accumulator, reduction)
        if fault := report(dtype, parts, row.clone().view(DTYPES[dtype]), wanted):
            faults[accumulator, reduction] = fault
    assert faults == {}


@pytest.mark.parametrize("world_size", [1, 2, 3, 72])
def test_a_sum_from_elsewhere_becomes_an_average(compiled, world_size):
    """multimem's avg: floats as numerics.average_of_sum, integers as the end of a fold; one rank's bits stay."""
    spec = probes.probe("scale", probes.scale)
    executable = compiled(spec, probes.case_of(world_size=world_size), "sm_100a")
    sums = [contributions(dtype, 2)[0].view(torch.uint8)[: 1 << 16] for dtype in ARITHMETIC]
    vectors = min(one.numel() for one in sums) // 16
    sums = [one[-vectors * 16 :] for one in sums]
    sizes = {"output_bytes": len(sums) * vectors * 16, "numel": vectors, "ranks": world_size}
    probed = probes.run(executable, spec, grid=BLOCKS, input=torch.cat(sums), arch="sm_100a", **sizes)
    for dtype, total, row in zip(ARITHMETIC, sums, probed.output.view(len(sums), -1), strict=True):
        given = total.clone().view(DTYPES[dtype])
        if world_size == 1:
            assert torch.equal(bits_of(row.clone().view(DTYPES[dtype])), bits_of(given))
            continue
        if dtype in FLOATS:
            wide = given if dtype == "float64" else widen(given)
            wanted = numerics.average_of_sum(wide, world_size, DTYPES[dtype])
        else:
            zeros = [torch.zeros_like(given)] * (world_size - 1)
            wanted = numerics.fold([given, *zeros], "native", "avg")
        assert report(dtype, [given], row.clone().view(DTYPES[dtype]), wanted) == "", dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_factor_of_an_average_is_that_of_numerics(dtype):
    for world_size, accumulator in itertools.product(range(1, 73), {a for a, r in probes.KINDS[dtype] if r == "avg"}):
        reduction = Reduction(dtype, accumulator, "avg", world_size)
        wide = numerics.accumulator_dtype(DTYPES[dtype], accumulator, "avg")
        factor = numerics.averaging_factor(wide, world_size)
        form = DTYPES[reduction.form]
        held = torch.tensor([factor], dtype=torch.float64).to(form)
        assert float(held) == factor, "its accumulator holds it exactly"
        bits = int(bits_of(held)) % (1 << 8 * form.itemsize)
        bits |= bits << 16 if form.itemsize == 2 else 0
        assert arithmetic._constant(reduction) % (1 << 64 if form.itemsize == 8 else 1 << 32) == bits
        assert math.isclose(factor, 1 / world_size, rel_tol=1 / 8)


INSTRUCTIONS = {
    "float64 native sum": "add.rn.f64",
    "float32 native sum": "add.rn.f32",
    "float32 float32 avg": "mul.rn.f32 add.rn.f32",
    "bfloat16 float32 sum": "add.rn.f32 cvt.rn.bf16x2.f32",
    "bfloat16 native sum": "add.rn.bf16x2",
    "bfloat16 native avg": "mul.rn.bf16x2 add.rn.bf16x2",
    "bfloat16 native max": "max.NaN.bf16x2",
    "float16 float32 sum": "cvt.f32.f16 add.rn.f32 cvt.rn.f16x2.f32",
    "float16 native sum": "add.rn.f16x2",
    "float8_e4m3fn float32 sum": "cvt.rn.f16x2.e4m3x2 cvt.f32.f16 add.rn.f32 cvt.rn.satfinite.e4m3x2.f32",
    "float8_e5m2 float16 sum": "cvt.rn.f16x2.e5m2x2 add.rn.f16x2 cvt.rn.satfinite.e5m2x2.f16x2",
    "float8_e5m2 native min": "cvt.rn.f16x2.e5m2x2 min.NaN.f16x2 cvt.rn.satfinite.e5m2x2.f16x2",
    "int32 native sum": "",
}


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_floats_go_through_the_stated_instructions_only(case_of, compiled, opcodes, kind):
    """Nothing is contracted, flushed, or left to a default rounding."""
    case = case_of("one_shot", **dict(zip(("dtype", "accumulator", "reduction"), kind.split(), strict=True)))
    found = opcodes(compiled(find("all_reduce/one_shot"), case, "sm_90a").ptx)
    words = r"^(add|sub|mul|fma|mad|cvt|div|min|max|neg|abs|ex2|rcp)\b.*\b(b?f(16|32|64)|e4m3|e5m2)"
    assert {one for one in found if re.search(words, one)} == set(INSTRUCTIONS[kind].split())
    alone = opcodes(compiled(find("all_reduce/one_shot"), replace(case, world_size=1), "sm_90a").ptx)
    assert not [one for one in alone if re.search(words, one)], "one rank's bits are copied"
