"""The bound of sums of products: what it permits, and what falls out of it."""

import pytest
import torch

from kernels.numeric.products import exact_products, product_bound, rounded_products

DTYPES = (torch.bfloat16, torch.float16)


def factors_of(ranks, dtype, depth, rows=64, columns=48):
    generator = torch.Generator().manual_seed(depth)
    return [
        tuple(torch.randn(size, depth, generator=generator).to(dtype) for size in (rows, columns)) for _ in range(ranks)
    ]


def sums(factors, accumulator=torch.float32):
    """Each rank's product, 16 products at a time, the sum so far in a type; rounded to the dtype."""
    found = []
    for a, b in factors:
        total = torch.zeros(len(a), len(b), dtype=accumulator)
        for at in range(0, a.shape[1], 16):
            total = (total.float() + a[:, at : at + 16].float() @ b[:, at : at + 16].float().T).to(accumulator)
        found.append(total.to(a.dtype).flatten())
    return found


def share_outside(bound, result):
    return float((~bound.permits(result)).double().mean())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("depth", [8, 136, 1024])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_right_sums_are_within_also_if_nothing_or_only_a_part_is_rounded(dtype, depth, ranks):
    factors = factors_of(ranks, dtype, depth)
    parts = sums(factors)
    wide, native = product_bound(factors, True), product_bound(factors, False)
    assert share_outside(wide, torch.stack(parts).float().sum(0).to(dtype)) == 0
    assert share_outside(wide, torch.stack(rounded_products(factors)).float().sum(0).to(dtype)) == 0
    unrounded = torch.stack(exact_products(factors)).flatten(1)
    for count in range(ranks + 1):
        some = torch.cat([unrounded[:count].float(), torch.stack(parts)[count:].float()]).sum(0).to(dtype)
        assert share_outside(wide, some) == share_outside(native, some) == 0
    assert share_outside(wide, unrounded.sum(0).to(dtype)) == 0
    total = parts[0]
    for one in parts[1:]:
        total = total + one  # rounded to the dtype each time
    assert share_outside(native, total) == 0
    assert torch.equal(wide.exact, sum(exact_products(factors)).flatten())
    assert wide.largest_error <= native.largest_error or ranks == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_sums_in_the_dtype_fall_out(dtype, ranks):
    """And with them all that is less: products without a rank, without the last piece of the depth, and of a rank
    twice."""
    factors = factors_of(ranks, dtype, 256)
    bound = product_bound(factors, True)
    low = torch.stack(sums(factors, dtype)).float().sum(0).to(dtype)
    assert share_outside(bound, low) > (0.5 if ranks == 1 else 0.2)
    wrong = [[(a[:, :-16], b[:, :-16]) for a, b in factors], [*factors, factors[0]]]
    for one in (*wrong, *([factors[1:]] if ranks > 1 else [])):
        result = torch.stack(sums(one)).float().sum(0).to(dtype)
        assert share_outside(bound, result) > 0.9
        assert share_outside(product_bound(factors, False), result) > 0.9


def test_a_sum_of_ranks_in_the_dtype_is_told_from_one_in_float32():
    factors = factors_of(8, torch.bfloat16, 64)
    parts = sums(factors)
    total = parts[0]
    for one in parts[1:]:
        total = total + one
    assert share_outside(product_bound(factors, True), total) > 0.25
    assert share_outside(product_bound(factors, False), total) == 0


def test_what_may_overflow_is_not_judged():
    big = torch.full((1, 16), 300.0, dtype=torch.float16)
    bound = product_bound([(big, big)], True)
    for value in (float("inf"), float("nan"), 1.0):
        assert bool(bound.permits(torch.tensor([value], dtype=torch.float16)).all())
    assert bound.formula.startswith("round(S - E)")
