"""What a sum of matrix products may be: bounds with their derivation, for C = sum over ranks of A_r B_r^T.

Let p_r be a rank's exact product of an element of C, S_r = sum |a b| over its depth K, x_r what it makes of it, n the
number of ranks, u the unit roundoff of the dtype (bfloat16: 2**-8).

*One rank's sum.* A wgmma adds 16 products and the sum so far: all 17 are cut toward zero 25 bits below the largest
exponent among them, added exactly, and the result is cut to 24 significant bits (simulator/number/products.py, from
measurements). No term is smaller than its exponent says, so a step errs by less than (17 * 2**-25 + 2**-23) G = 5.25 *
2**-23 G, where G is at least the largest term and the largest sum on the way. In any order of products, a sum on the
way is at most that of all positive products or that of all negative ones, (S_r + |p_r|) / 2. With K / 16 steps and e =
ceil(K / 16) * 5.25 * 2**-23 the errors before are in G, too: E_r = e / (1 - e) (S_r + |p_r|) / 2. Sums of other GPUs
are not derived. Subnormal factors count with the exponent of the smallest normal number, so S_r takes them as that.

*The rounding to the dtype* is to nearest even, which is monotone: x_r is from round(p_r - E_r) to round(p_r + E_r). A
rank that does not round loses nothing, so p_r - E_r and p_r + E_r are permitted, too, where they lie further out.

*The sum of ranks.* Of one rank that is all. Added in float32, in any order, the sum of x_r errs by (n - 1) 2**-24 sum
|x_r| (kernels/numeric/bounds.py), and is rounded once more. Added in the dtype, by bulk copies or by a library, it errs
by (n - 1) u sum |x_r|, and is one of the dtype's numbers: the ends go to those outside. The exact sum rounded once is
always within, and so are sums of which only some parts are rounded: a kernel that rounds less than others is not wrong.

The float64 products here cost K * 2**-52 S_r, which is added. Where x_r may be beyond the dtype's largest number,
nothing is demanded.

*How sharp it is.* E_r is a few thousandths of the rounding to bfloat16 at K = 128, and about four of it at K = 8192.
What falls out of it: a rank left out, and a sum kept in bfloat16 (tests/kernels/numeric/test_product_bounds.py). What
does not: of a K of 4096 or more, a sum that was rounded to bfloat16 once or twice on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.numeric.bounds import Bound
from kernels.numeric.formats import FORMATS, on_grid, round_to, to_float64

STEP_DEPTH, STEP_ERROR = 16, 5.25 * 2.0**-23
FLOAT32 = 2.0**-24

Factors = Sequence[tuple[torch.Tensor, torch.Tensor]]


def exact_products(factors: Factors) -> list[torch.Tensor]:
    """Return A B^T of each pair, A (rows, depth) and B (columns, depth) of one dtype, as float64 (rows, columns)."""
    return [to_float64(a) @ to_float64(b).T for a, b in factors]


def rounded_products(factors: Factors) -> list[torch.Tensor]:
    """Return each rank's product, rounded once to the dtype (1-D): what a rank has whose sum loses nothing."""
    return [round_to(one, a.dtype).flatten() for one, (a, _) in zip(exact_products(factors), factors, strict=True)]


def product_bound(factors: Factors, is_wide: bool) -> Bound:
    """Return what the sum of products may be (1-D). is_wide: ranks' products are added in float32, else in the dtype.

    The derivation is in the module's docstring.
    """
    dtype = factors[0][0].dtype
    form = FORMATS[dtype]
    count, depth = len(factors), factors[0][0].shape[1]
    error = -(-depth // STEP_DEPTH) * STEP_ERROR
    error = error / (1 - error)
    exact = low = high = magnitude = torch.zeros((), dtype=torch.float64, device=factors[0][0].device)
    beyond = exact > 0
    for product, (a, b) in zip(exact_products(factors), factors, strict=True):
        sizes = _sizes(a, form.smallest_normal) @ _sizes(b, form.smallest_normal).T
        room = error * (sizes + product.abs()) / 2 + depth * 2.0**-52 * sizes
        below, above = product - room, product + room
        below = torch.minimum(below, on_grid(below, dtype, torch.round))
        above = torch.maximum(above, on_grid(above, dtype, torch.round))
        largest = torch.maximum(below.abs(), above.abs())
        exact, low, high, magnitude = exact + product, low + below, high + above, magnitude + largest
        beyond = beyond | (largest > form.largest)
    text = f"E = {error:.3g} * (sum|a b| + |S|) / 2"
    if count > 1:
        unit = FLOAT32 if is_wide else form.unit_roundoff
        spread = (count - 1) * unit * magnitude + 2.0**-50 * magnitude
        low, high = low - spread, high + spread
        text = f"x = S +- E of each rank, rounded or not, {text}; F = {count - 1} * 2^{math.log2(unit):.0f} * sum|x|"
    if count > 1 and not is_wide:
        low, high = on_grid(low, dtype, torch.floor), on_grid(high, dtype, torch.ceil)
        formula = f"down(sum x - F) <= out <= up(sum x + F), {text}"
    else:
        low, high = on_grid(low, dtype, torch.round), on_grid(high, dtype, torch.round)
        formula = f"round(sum x - F) <= out <= round(sum x + F), {text}"
        formula = formula if count > 1 else f"round(S - E) <= out <= round(S + E), {text}"
    beyond = (beyond | (torch.maximum(low.abs(), high.abs()) > form.largest)).flatten()
    low, high = torch.where(beyond, -math.inf, low.flatten()), torch.where(beyond, math.inf, high.flatten())
    return Bound(exact.flatten(), low, high, formula, beyond if bool(beyond.any()) else None)


def _sizes(matrix: torch.Tensor, least: float) -> torch.Tensor:
    """|a| as float64, at least the smallest normal number; 0 stays."""
    found = to_float64(matrix).abs()
    return torch.where(found > 0, found.clamp(min=least), found)
