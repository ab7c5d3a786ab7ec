"""Is what came out right? Each rank's outputs against a reference made from all ranks' inputs, then one Check for the
case.

runner/case/reference.py says how outputs are compared, kernels/numeric/numerics.py by which rules. Equality of bits on
all ranks and over launches is demanded with every method but "bound". There it is only reported: each rank's own
multimem load may be summed in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cases.case import Case
from cases.ops import collective
from cases.record.record import Check, Mismatch
from kernels.numeric.formats import bits_of, to_float64
from runner.case.inputs import CPU
from runner.case.reference import Comparison, Promise, Reference, Scale, method_of, reference_of


@dataclass(frozen=True, slots=True)
class RankCheck:
    """What one rank's outputs were like: the parts of a Check before they are merged. Small, and can be pickled.

    digests are of the outputs, one a launch (none for a rank that is given none), input_digest of what the rank put in:
    SHA-256 in hexadecimal; "" if unknown.
    """

    rank: int
    method: str
    elements: int
    wrong: int
    first_mismatch: Mismatch | None
    max_absolute_error: float
    max_ulp_error: int
    squared_ulp_error: float
    digests: tuple[str, ...]
    launches: int
    launches_equal: bool
    guard_faults: tuple[str, ...]
    bound: str = ""
    bound_value: float | None = None
    bound_used: float | None = None
    scale: Scale | None = None
    input_digest: str = ""

    @property
    def digest(self) -> str:
        """The first launch's; "" of a rank that is given nothing."""
        return self.digests[0] if self.digests else ""


def check_rank(
    case: Case,
    spec: Promise,
    rank: int,
    outputs: Sequence[torch.Tensor],
    guard_faults: Sequence[str],
    *,
    input_digest: str = "",
    inputs: Sequence[torch.Tensor] | None = None,
) -> RankCheck:
    """Compare a rank's outputs (1-D tensors of the case's dtype, one a launch) with what they must be.

    The reference is made on the outputs' device, and they are compared there; the findings are the same on all. Of a
    rank that the op gives no output nothing is compared: whether its buffer stayed as it was is for the guards to say.
    input_digest is of what the rank put in. inputs (one 1-D tensor a rank) stand in for what make_input gives.
    """
    op = collective(case.op)
    if not op.gives(case, rank):
        method = method_of(case, spec, op)
        return _no_check(rank, method, len(outputs), tuple(guard_faults), input_digest)
    device = outputs[0].device if outputs else CPU
    reference = reference_of(case, spec, op, rank, device, inputs)
    found: list[Comparison] = []
    for output in outputs:
        if output.dtype != reference.nearest.dtype or output.shape != reference.nearest.shape:
            raise AssertionError(
                f"rank {rank}: output is {output.dtype} {tuple(output.shape)}, not what {case.id} gives"
            )
        found.append(reference.look_at(output))
    wrong_launch = next((launch for launch, one in enumerate(found) if one.wrong), None)
    mismatch = None
    if wrong_launch is not None:
        mismatch = mismatch_of(reference, rank, wrong_launch, found[wrong_launch].first_index, outputs[wrong_launch])
    return rank_check(
        rank,
        found,
        method=reference.method,
        elements=len(outputs) * reference.nearest.numel(),
        first_mismatch=mismatch,
        digests=tuple(one.digest for one in found),
        launches=len(outputs),
        guard_faults=tuple(guard_faults),
        bound=reference.limit.formula if reference.limit else "",
        bound_value=reference.bound_value,
        input_digest=input_digest,
    )


def rank_check(rank: int, found: Sequence[Comparison], **what: Any) -> RankCheck:
    """Return a RankCheck of a rank's comparisons. what: its other fields."""
    shares = [one.bound_used for one in found if one.bound_used is not None]
    return RankCheck(
        rank=rank,
        wrong=sum(one.wrong for one in found),
        max_absolute_error=_largest(one.max_absolute_error for one in found),
        max_ulp_error=max((one.max_ulp_error for one in found), default=0),
        squared_ulp_error=sum(one.squared_ulp_error for one in found),
        launches_equal=len(set(what["digests"])) <= 1,
        bound_used=max(shares) if shares else None,
        scale=_together(one.scale for one in found),
        **what,
    )


def _no_check(rank: int, method: str, launches: int, guard_faults: tuple[str, ...], input_digest: str) -> RankCheck:
    """Of a rank that the op gives no output."""
    return RankCheck(rank, method, 0, 0, None, 0.0, 0, 0.0, (), launches, True, guard_faults, input_digest=input_digest)


def merge(case: Case, spec: Promise, checks: Sequence[RankCheck]) -> Check:
    """One Check from those of all ranks. The first mismatch is that of the lowest rank that has one.

    For an op whose ranks get different outputs, ranks_equal is True and not promised: there is nothing to compare.
    elements is 0 where there are none: of a case of no bytes.
    """
    op = collective(case.op)
    # A matmul sums in one order in all launches, which no bound of its results shows.
    promised = method_of(case, spec, op) != "bound" or (op.product is not None and spec.fold != "unordered")
    same = op.same_on_all_ranks
    # In orders of their own, ranks get the same bits only where no order matters.
    same_bits = promised and (spec.same_order or method_of(case, spec, op) != "bitwise_fold")
    results = len({one.digest for one in checks})
    return merged(
        checks,
        ranks_equal=not same or results == 1,
        ranks_equal_promised=same and (same_bits or spec.one_owner),
        launches_equal_promised=promised,
        results=results if same else None,
    )


def merged(checks: Sequence[RankCheck], **promises: Any) -> Check:
    """One Check from those of all ranks. promises: which ranks and launches it says must be equal."""
    checks = sorted(checks, key=lambda one: one.rank)
    largest_share, share = _relative(_together(one.scale for one in checks))
    elements = sum(one.elements for one in checks)
    shares = [one.bound_used for one in checks if one.bound_used is not None]
    values = [one.bound_value for one in checks if one.bound_value is not None]
    return Check(
        method=checks[0].method,
        elements=elements,
        wrong=sum(one.wrong for one in checks),
        max_absolute_error=_largest(one.max_absolute_error for one in checks),
        max_ulp_error=max(one.max_ulp_error for one in checks),
        rms_ulp_error=math.sqrt(sum(one.squared_ulp_error for one in checks) / max(elements, 1)),
        launches=max(one.launches for one in checks),
        launches_equal=all(one.launches_equal for one in checks),
        first_mismatch=next((one.first_mismatch for one in checks if one.first_mismatch), None),
        bound=next((one.bound for one in checks if one.bound), ""),
        bound_value=max(values) if values else None,
        bound_used=max(shares) if shares else None,
        guard_faults=tuple(f"rank {one.rank}: {fault}" for one in checks for fault in one.guard_faults),
        max_relative_error=largest_share,
        rms_relative_error=share,
        **promises,
        **_digests(checks),
    )


def _digests(checks: Sequence[RankCheck]) -> dict[str, Any]:
    """What a Check says of inputs and outputs; nothing where a rank did not say what it had put in."""
    if not all(one.input_digest for one in checks):
        return {}
    return {
        "input_digests": tuple(one.input_digest for one in checks),
        "output_digests": tuple(one.digests for one in checks),
    }


def mismatch_of(reference: Reference, rank: int, launch: int, index: int, output: torch.Tensor) -> Mismatch:
    rounded = reference.nearest if reference.expected is None else reference.expected
    expected = reference.exact if reference.expected is None else reference.expected
    assert expected is not None
    return Mismatch(
        rank=rank,
        launch=launch,
        index=index,
        expected=float(to_float64(expected[index : index + 1])),
        actual=float(to_float64(output[index : index + 1])),
        expected_bits=_bit_text(rounded[index : index + 1]),
        actual_bits=_bit_text(output[index : index + 1]),
    )


def _bit_text(value: torch.Tensor) -> str:
    width = 8 * value.dtype.itemsize
    return f"0x{int(bits_of(value)) & ((1 << width) - 1):0{width // 4}x}"


def _together(scales: Iterable[Scale | None]) -> Scale | None:
    """All of several outputs; None where none has any."""
    known = [scale for scale in scales if scale is not None]
    return sum(known, Scale()) if known else None


def _relative(scale: Scale | None) -> tuple[float | None, float | None]:
    """The largest error, and the root of the mean square, over the results' root mean square; None where that is 0."""
    if scale is None or not scale.elements or not 0 < scale.squared_result < math.inf:
        return None, None
    result = math.sqrt(scale.squared_result / scale.elements)
    return scale.largest / result, math.sqrt(scale.squared_error / scale.elements) / result


def _largest(values: Iterable[float]) -> float:
    """The largest value; NaN when there is one; 0 of none."""
    listed = list(values)
    return math.nan if any(math.isnan(value) for value in listed) else max(listed, default=0.0)
