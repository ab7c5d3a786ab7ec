"""What a rank's output must be, made from all ranks' inputs, and how an output compares with it.

How outputs are compared, the method, follows from the op, the inputs and what the algorithm promises (spec.fold):

- "bytes": an op that only moves data. Raw bits, NaN payloads and all.
- "bitwise": whatever the order, the same bits must come out: integers; sums of exact inputs (and averages, where the
  number of ranks is a power of two); min and max of exact inputs, or where an order is stated. The sign of zero counts:
  a sum of numbers that are not all zero is +0 when it is zero, in every order and in the switch.
- "bitwise_fold": floats that round, in a stated order: the accumulator's own fold in that order. Any NaN equals any.
- "bound": floats in no order (kernels/numeric/bounds.py), and sums of products (kernels/numeric/products.py), by value,
  so that +0 and -0 are equal.

Of ops that multiply, exact inputs have products whose sums lose nothing on a rank. Where those of all ranks do neither
the method is "bitwise", else "bitwise_fold" of the ranks' rounded products in the stated order.

The rules by which folds treat NaN, zeros, subnormals and overflow are in kernels/numeric/numerics.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from cachetools import LRUCache

from cases.case import Case, Inputs
from cases.dtypes import DTYPES, FLOATS, SUMS
from cases.ops import Collective, Factors
from kernels.baselines import Baseline
from kernels.numeric.bounds import Bound, bound
from kernels.numeric.exact import ExactSum, exact_average, exact_sum
from kernels.numeric.formats import bits_of, round_to, same_bits, to_float64, ulp_distance
from kernels.numeric.numerics import fold
from kernels.numeric.products import exact_products, product_bound, rounded_products
from kernels.spec import KernelSpec
from runner.case.digests import sha256_of
from runner.case.inputs import CPU, loses_nothing, make_inputs

KEPT_REFERENCES = 16
"""Maximum number of references to keep: the algorithms of a job run one after another on the same data, and of some
ops every rank of a simulated world has its own."""

KEPT_ELEMENTS = 8 * 1024 * 1024
"""Maximum number of elements of all kept references, which take some 50 bytes each; the latest one may have more."""

KEPT_DEVICE_ELEMENTS = 512 * 1024 * 1024
"""The same on a GPU: all references of one size of 256 MiB, which timing looks at again and again."""

KEPT_OUTPUTS = 2
"""Outputs that a reference keeps, with what was found of them."""

PIECE_ELEMENTS = 1 << 26
"""Elements of which references are made, and outputs compared, at a time: on the way an element takes some hundred
bytes."""

LIMITS = ("exact", "low", "high", "may_be_nan")
"""The tensors of a Bound."""

Made = TypeVar("Made")


Promise = KernelSpec | Baseline
"""What a check must know of an algorithm: in which order it adds."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What relative errors are made of, over the elements where output and nearest are finite: their number, their
    largest error, the sums of squares of errors and of nearest."""

    elements: int = 0
    largest: float = 0.0
    squared_error: float = 0.0
    squared_result: float = 0.0

    def __add__(self, other: Scale) -> Scale:
        return Scale(
            self.elements + other.elements,
            max(self.largest, other.largest),
            self.squared_error + other.squared_error,
            self.squared_result + other.squared_result,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference. first_index: of the first wrong element, -1 where there is none. scale: see
    Scale; None where the op only moves data, and for integers."""

    wrong: int
    first_index: int
    max_absolute_error: float
    max_ulp_error: int
    squared_ulp_error: float
    bound_used: float | None
    digest: str
    scale: Scale | None = None


@dataclass(slots=True)
class Reference:
    """What a rank's output must be. nearest is the exact result rounded once to the dtype, from which errors are
    counted.

    expected holds the bits demanded by all methods but "bound", limit the interval of that one, and exact the exact
    result in float64. chosen: the result is one of the contributions, so that what is permitted has no error. reduced
    says that relative errors mean something: floats of an op that reduces.
    """

    method: str
    nearest: torch.Tensor
    expected: torch.Tensor | None
    limit: Bound | None = None
    exact: torch.Tensor | None = None
    bound_value: float | None = None
    chosen: bool = False
    reduced: bool = False
    _seen: list[tuple[torch.Tensor, Comparison]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, output: torch.Tensor) -> Comparison:
        """Compare an output. Ranks and launches mostly bring the same bits, so the latest findings are kept with
        theirs."""
        with self._lock:
            for bits, comparison in self._seen:
                if torch.equal(bits, bits_of(output)):
                    return comparison
            bits = bits_of(output).clone()
            comparison = _compare(self, output, sha256_of(bits))
            self._seen[KEPT_OUTPUTS - 1 :] = []
            self._seen.insert(0, (bits, comparison))
            return comparison

    def piece(self, start: int, end: int) -> Reference:
        """Return the reference of the elements from start to end."""
        nearest = self.nearest[start:end]
        expected = nearest if self.expected is self.nearest else _cut(self.expected, start, end)
        limit = self.limit and self.limit.piece(start, end)
        exact = _cut(self.exact, start, end)
        return Reference(self.method, nearest, expected, limit, exact, self.bound_value, self.chosen, self.reduced)


def method_of(case: Case, spec: Promise, collective: Collective) -> str:
    """How a case's outputs are compared, see above."""
    if not collective.reduces:
        return "bytes"
    ordered, exact = spec.fold != "unordered", case.inputs == Inputs.exact
    if collective.product is not None:
        if exact and loses_nothing(case):
            return "bitwise"
        return "bitwise_fold" if exact and ordered and isinstance(spec, KernelSpec) else "bound"
    if case.reduction == "avg":
        exact = exact and case.world_size & (case.world_size - 1) == 0
    if case.dtype not in FLOATS or exact or (ordered and case.reduction not in SUMS):
        return "bitwise"
    return "bitwise_fold" if ordered else "bound"


def reference_of(
    case: Case,
    spec: Promise,
    collective: Collective,
    rank: int,
    device: torch.device,
    inputs: Sequence[torch.Tensor] | None = None,
) -> Reference:
    """The reference of a rank that is given an output, on a device: made once a process for all ranks that have the
    same. inputs (one 1-D tensor a rank) stand in for what make_input gives."""
    owner = 0 if collective.same_on_all_ranks else rank
    if inputs is not None:
        return make_reference(case, spec, collective, rank, [one.to(device) for one in inputs])
    data = (case.op, case.reduction, case.dtype, case.size_bytes, case.inputs, case.seed, case.root, case.counts)
    data_here = (*data, case.gemm, case.world_size, owner, str(device))

    def contributions() -> list[torch.Tensor]:
        count = collective.elements(case)[0]
        return make_inputs(case, range(case.world_size), count, device)

    def total() -> ExactSum:
        return exact_sum(_parts(case, collective, owner, contributions()))

    def make() -> Reference:
        # Larger ones are made anew for each order, in pieces.
        shared = case.gemm is None and case.dtype in FLOATS and case.reduction in SUMS and case.numel <= PIECE_ELEMENTS
        sums = _totals.get(data_here, device, total) if shared else None
        return make_reference(case, spec, collective, owner if spec.same_order else rank, contributions(), sums)

    # Where and how a buffer lies may decide who owns which element.
    order: tuple[Hashable, ...] = (spec.fold,)
    if spec.fold == "from_next_rank":
        order = (spec.fold, spec.owner, case.offset, case.placement, None if spec.same_order else rank)
    return _references.get((*data_here, accumulator_of(case, spec), spec.positive_zero, *order), device, make)


def accumulator_of(case: Case, spec: Promise) -> str:
    """Return the accumulator that a case's results are held to: the case's, or what its library is known to add in."""
    known = spec.adds_in if isinstance(spec, Baseline) else ""
    return known or case.accumulator


def make_reference(
    case: Case,
    spec: Promise,
    collective: Collective,
    rank: int,
    inputs: Sequence[torch.Tensor],
    total: ExactSum | None = None,
) -> Reference:
    """The reference of a rank from all ranks' inputs. total: the exact sums of that rank's parts, where known."""
    method = method_of(case, spec, collective)
    if method == "bytes":
        (bits,) = _given(collective.parts(case, [bits_of(one) for one in inputs], rank))
        moved = bits.view(DTYPES[case.dtype])
        return Reference(method, moved, moved)
    if collective.product is not None:
        return _of_product(case, spec, method, collective.factors(case, inputs, rank), rank)
    parts = _parts(case, collective, rank, inputs)
    first = _first(case, spec, rank, parts[0].device) if method == "bitwise_fold" else None
    if total is not None or parts[0].numel() <= PIECE_ELEMENTS:
        return _reference(case, spec, method, parts, first, total)
    made = None
    for start, end in _pieces(parts[0].numel()):
        cut = [part[start:end] for part in parts]
        piece = _reference(case, spec, method, cut, _cut(first, start, end), None)
        made = made or _like(piece, parts[0].numel())
        _write(made, start, piece)
    assert made is not None
    return made


def _reference(
    case: Case,
    spec: Promise,
    method: str,
    parts: list[torch.Tensor],
    first: torch.Tensor | None,
    total: ExactSum | None,
) -> Reference:
    """The reference of a reduction's elements. first: the rank whose contribution each element's fold begins with."""
    if case.dtype not in FLOATS or case.reduction not in SUMS:
        return _exact_reference(case, spec, method, parts)
    total = total or exact_sum(parts)
    exact = total.value if case.reduction == "sum" else exact_average(parts, total)
    nearest = round_to(exact, parts[0].dtype) if len(parts) > 1 else parts[0].clone()
    if method == "bitwise":
        assert torch.equal(to_float64(nearest), exact), f"{case.id}: the exact inputs' results are not exact"
        return Reference(method, nearest, nearest, reduced=True)
    if method == "bound":
        limit = bound(parts, accumulator_of(case, spec), case.reduction, total)
        return Reference(method, nearest, None, limit, exact, limit.largest_error, reduced=True)
    expected = fold(parts, case.accumulator, case.reduction, first, spec.positive_zero)
    return Reference(method, nearest, expected, reduced=True)


def _of_product(case: Case, spec: Promise, method: str, factors: list[Factors], rank: int) -> Reference:
    """The reference of a sum of products, made in pieces of whole rows."""
    rows, columns = factors[0][0].shape[0], factors[0][1].shape[0]
    step = max(PIECE_ELEMENTS // columns, 1)
    is_wide = isinstance(spec, KernelSpec) and spec.fold != "unordered"
    first = _first(case, spec, rank, factors[0][0].device) if method == "bitwise_fold" else None
    made = None
    for start in range(0, rows, step):
        cut = [(a[start : start + step], b) for a, b in factors]
        if method == "bound":
            limit = product_bound(cut, is_wide)
            nearest = round_to(limit.exact, cut[0][0].dtype)
            piece = Reference(method, nearest, None, limit, limit.exact, limit.largest_error, reduced=True)
        else:
            exact = sum(exact_products(cut))
            assert isinstance(exact, torch.Tensor)
            nearest = round_to(exact.flatten(), cut[0][0].dtype)
            begin = _cut(first, start * columns, (start + step) * columns)
            expected = nearest if method == "bitwise" else fold(rounded_products(cut), "float32", "sum", begin)
            piece = Reference(method, nearest, expected, reduced=True)
        if step >= rows:
            return piece
        made = made or _like(piece, rows * columns)
        _write(made, start * columns, piece)
    assert made is not None
    return made


def _pieces(numel: int) -> list[tuple[int, int]]:
    """Where pieces of PIECE_ELEMENTS begin and end; one of nothing where there is nothing."""
    return [(start, min(start + PIECE_ELEMENTS, numel)) for start in range(0, max(numel, 1), PIECE_ELEMENTS)]


def _cut(tensor: torch.Tensor | None, start: int, end: int) -> torch.Tensor | None:
    return None if tensor is None else tensor[start:end]


def _like(piece: Reference, numel: int) -> Reference:
    """A reference of numel elements with nothing in it yet, of the kind of a piece's."""

    def room(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.new_empty(numel)

    nearest = piece.nearest.new_empty(numel)
    expected = nearest if piece.expected is piece.nearest else room(piece.expected)
    limit = None
    if piece.limit is not None:
        exact, low, high = (one.new_empty(numel) for one in (piece.limit.exact, piece.limit.low, piece.limit.high))
        limit = Bound(exact, low, high, piece.limit.formula, torch.zeros_like(nearest, dtype=torch.bool))
    value = None if piece.bound_value is None else 0.0
    return Reference(piece.method, nearest, expected, limit, room(piece.exact), value, piece.chosen, piece.reduced)


def _write(whole: Reference, start: int, piece: Reference) -> None:
    """Write a piece's elements into a reference."""
    there = whole.piece(start, start + piece.nearest.numel())
    tensors = [(there.nearest, piece.nearest), (there.expected, piece.expected), (there.exact, piece.exact)]
    if there.limit is not None and piece.limit is not None:
        tensors += [(getattr(there.limit, name), getattr(piece.limit, name)) for name in LIMITS]
    for target, made in tensors:
        if target is not None and made is not None:
            target.copy_(made)
    if whole.bound_value is not None and piece.bound_value is not None:
        whole.bound_value = max(whole.bound_value, piece.bound_value)


def _exact_reference(case: Case, spec: Promise, method: str, parts: list[torch.Tensor]) -> Reference:
    """Of a reduction that rounds nothing: the order means nothing."""
    if method == "bound":
        limit = bound(parts, "native", case.reduction)
        nearest = round_to(limit.exact, parts[0].dtype)
        return Reference(method, nearest, None, limit, limit.exact, limit.largest_error, chosen=True)
    expected = fold(parts, "native", case.reduction, None, spec.positive_zero)
    return Reference(method, expected, expected)


def _parts(case: Case, collective: Collective, rank: int, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return _given(collective.parts(case, list(inputs), rank))


def _given(parts: list[torch.Tensor] | None) -> list[torch.Tensor]:
    assert parts is not None, "a rank without an output has no reference"
    return parts


def _first(case: Case, spec: Promise, rank: int, device: torch.device) -> torch.Tensor | None:
    """The rank whose contribution each element's fold begins with; None: rank 0 everywhere."""
    if spec.fold != "from_next_rank":
        return None
    if spec.owner is None:
        raise ValueError(f"{spec.name}: fold from_next_rank needs an owner")
    with device:  # the owner's tensors are made there
        owner = spec.owner(case, rank)
    return (owner.to(device).to(torch.int16) + 1) % case.world_size


def _compare(reference: Reference, output: torch.Tensor, digest: str) -> Comparison:
    """Compare an output in pieces; digest is of all of it."""
    pieces = _pieces(output.numel())
    if len(pieces) == 1:
        return _compare_piece(reference, output, digest)
    found = [_compare_piece(reference.piece(start, end), output[start:end], digest) for start, end in pieces]
    wrong = [start + one.first_index for (start, _), one in zip(pieces, found, strict=True) if one.wrong]
    errors = [one.max_absolute_error for one in found]
    shares = [one.bound_used for one in found if one.bound_used is not None]
    scales = [one.scale for one in found if one.scale is not None]
    return Comparison(
        wrong=sum(one.wrong for one in found),
        first_index=wrong[0] if wrong else -1,
        max_absolute_error=math.nan if any(map(math.isnan, errors)) else max(errors),
        max_ulp_error=max(one.max_ulp_error for one in found),
        squared_ulp_error=sum(one.squared_ulp_error for one in found),
        bound_used=max(shares) if shares else None,
        digest=digest,
        scale=sum(scales, Scale()) if scales else None,
    )


def _compare_piece(reference: Reference, output: torch.Tensor, digest: str) -> Comparison:
    limit, expected, nearest = reference.limit, reference.expected, reference.nearest
    if not output.numel() or (expected is nearest and torch.equal(bits_of(output), bits_of(nearest))):
        scale = _scale(torch.zeros((), device=nearest.device), nearest) if reference.reduced else None
        return Comparison(0, -1, 0.0, 0, 0.0, 0.0 if limit else None, digest, scale)
    if limit is not None:
        right = limit.permits(output)
    else:
        assert expected is not None
        bytes_only = reference.method == "bytes"
        right = bits_of(output) == bits_of(expected) if bytes_only else same_bits(output, expected)
    wrong = int(right.numel() - right.sum())
    ulps = ulp_distance(output, nearest)
    if reference.chosen:
        ulps[right] = 0
    error = (to_float64(output) - to_float64(nearest)).abs()
    error[ulps == 0] = 0.0  # equal infinities and NaN would give NaN
    return Comparison(
        wrong=wrong,
        first_index=int(right.to(torch.uint8).argmin()) if wrong else -1,
        max_absolute_error=float(error.max()),
        max_ulp_error=int(ulps.max()),
        squared_ulp_error=float(ulps.to(torch.float64).square().sum()),
        bound_used=limit.largest_share(output) if limit else None,
        digest=digest,
        scale=_scale(error, nearest) if reference.reduced else None,
    )


def _scale(error: torch.Tensor, nearest: torch.Tensor) -> Scale:
    result = to_float64(nearest)
    counts = result.isfinite() & error.to(result.device).isfinite()
    if not bool(counts.any()):
        return Scale()
    error = torch.where(counts, error.to(result.device), 0.0)
    squares = torch.where(counts, result, 0.0).square().sum()
    return Scale(int(counts.sum()), float(error.max()), float(error.square().sum()), float(squares))


class _Kept(Generic[Made]):
    """The latest results by key, on the CPU and on GPUs. If several threads ask for one at once, the first makes it and
    the others wait."""

    def __init__(self, weigh: Callable[[Made], torch.Tensor]) -> None:
        """weigh gives a result's tensor whose elements count."""
        self._lock = threading.Lock()
        self._on_cpu = _latest(weigh, KEPT_ELEMENTS)
        self._on_gpu = _latest(weigh, KEPT_DEVICE_ELEMENTS)

    def get(self, key: Hashable, device: torch.device, make: Callable[[], Made]) -> Made:
        """Return the kept result, or make it."""
        results = self._on_cpu if device == CPU else self._on_gpu
        with self._lock:
            if key not in results:
                results[key] = make()
            return results[key]

    def forget(self) -> None:
        """Give all kept results up."""
        with self._lock:
            self._on_cpu.clear()
            self._on_gpu.clear()


def _latest(weigh: Callable[[Made], torch.Tensor], most_elements: int) -> LRUCache[Hashable, Made]:
    """Return a cache of at most KEPT_REFERENCES results, of at most that many elements together; the latest result is
    kept, however large."""

    def weight(result: Made) -> int:
        return min(max(weigh(result).numel(), most_elements // KEPT_REFERENCES), most_elements)

    return LRUCache(most_elements, weight)


_totals: _Kept[ExactSum] = _Kept(lambda total: total.value)
_references: _Kept[Reference] = _Kept(lambda reference: reference.nearest)


def forget_references() -> None:
    """Give all kept references up."""
    _totals.forget()
    _references.forget()
