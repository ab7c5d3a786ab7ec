"""Is what came out right? Each rank's outputs against a reference made from all ranks' inputs, then one Check for the
case.

How outputs are compared follows from the inputs and from what the algorithm promises (spec.fold):

- exact inputs: "bitwise" with the exact sum, whatever the algorithm. The sign of zero counts: a sum of numbers that
  are not zero is +0 when it is zero, in every order and in the switch.
- normal inputs, a stated order: "bitwise_fold", the accumulator's own fold in that order. Two NaNs are equal.
- normal inputs, no order: "bound" (kernels.numerics.bound), by value, so that +0 and -0 are equal.

Equality of bits on all ranks and over launches is demanded where the inputs are exact or the order is stated. Where
it is not, it is only reported: each rank's own multimem load may be summed in another order.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch

from kernels.catalogue import collective as find_collective
from kernels.catalogue import find as find_kernel
from kernels.dtypes import DTYPES
from kernels.numerics import FORMATS, Bound, ExactSum, bound, exact_sum, fold, round_to, same_bits, ulp_distance
from kernels.spec import Case, Collective, Fold, KernelSpec
from reports.record import Check, Mismatch
from runner.baselines import ACCUMULATOR, Baseline, find_baseline
from runner.inputs import CPU, make_inputs

KEPT_REFERENCES = 4
"""References of the latest cases that are kept: the algorithms of a job run one after another on the same data."""

KEPT_ELEMENTS = 8 * 1024 * 1024
"""As many elements as kept references may have together, but for the latest: some 50 bytes each."""

KEPT_DEVICE_ELEMENTS = 512 * 1024 * 1024
"""The same on a GPU: all references of one size of 256 MiB, which timing looks at again and again."""

KEPT_OUTPUTS = 2
"""Outputs that a reference keeps, with what was found of them."""

Made = TypeVar("Made")


class Promise(Protocol):
    """What a check must know of an algorithm: in which order it adds (see KernelSpec). Kernels and baselines have
    it."""

    @property
    def name(self) -> str: ...

    @property
    def fold(self) -> Fold: ...

    @property
    def owner(self) -> Callable[[int, int, str], torch.Tensor] | None: ...

    @property
    def one_owner(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RankCheck:
    """What one rank's outputs were like: the parts of a Check before they are merged. Small, and can be pickled."""

    rank: int
    method: str
    elements: int
    wrong: int
    first_mismatch: Mismatch | None
    max_absolute_error: float
    max_ulp_error: int
    squared_ulp_error: float
    digest: str
    launches: int
    launches_equal: bool
    guard_faults: tuple[str, ...]
    bound: str = ""
    bound_value: float | None = None
    bound_used: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference. expected and actual belong to the first wrong index, when there is one."""

    wrong: int
    first_index: int
    max_absolute_error: float
    max_ulp_error: int
    squared_ulp_error: float
    bound_used: float | None
    digest: str


@dataclass(slots=True)
class Reference:
    """What a rank's output must be. nearest is the exact sum rounded once to the dtype, from which errors are
    counted.

    expected holds the bits demanded by a bitwise method, limit the interval of method "bound": one of the two.
    """

    method: str
    total: ExactSum
    nearest: torch.Tensor
    expected: torch.Tensor | None
    limit: Bound | None
    bound_value: float | None = None
    _seen: list[tuple[torch.Tensor, Comparison]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, output: torch.Tensor) -> Comparison:
        """Compare an output. Ranks and launches mostly bring the same bits, so the latest findings are kept with
        theirs."""
        with self._lock:
            for bits, comparison in self._seen:
                if torch.equal(bits, _bits(output)):
                    return comparison
            comparison = _compare(self, output)
            self._seen[KEPT_OUTPUTS - 1 :] = []
            self._seen.insert(0, (_bits(output).clone(), comparison))
            return comparison


def promise_of(case: Case) -> KernelSpec | Baseline:
    """What a case's algorithm promises: the kernel of that name in the catalogue, or the baseline."""
    return find_baseline(case.algorithm) or find_kernel(case.name)


def check_rank(
    case: Case,
    spec: Promise,
    rank: int,
    outputs: Sequence[torch.Tensor],
    guard_faults: Sequence[str],
    *,
    collective: Collective | None = None,
    inputs: Sequence[torch.Tensor] | None = None,
) -> RankCheck:
    """Compare a rank's outputs (1-D tensors of the case's dtype, one a launch) with what they must be.

    The reference is made on the outputs' device, and they are compared there; the findings are the same on all.
    collective stands in for the catalogue's, inputs (one 1-D tensor a rank) for what make_input gives: tests bring
    theirs.
    """
    collective = collective or find_collective(case.op)
    device = outputs[0].device if outputs else CPU
    reference = _reference(case, spec, collective, rank, inputs, device)
    found: list[Comparison] = []
    for output in outputs:
        if output.dtype != reference.nearest.dtype or output.shape != reference.nearest.shape:
            raise AssertionError(
                f"rank {rank}: output is {output.dtype} {tuple(output.shape)}, not what {case.id} gives"
            )
        found.append(reference.look_at(output))
    wrong_launch = next((launch for launch, one in enumerate(found) if one.wrong), None)
    limit = reference.limit
    return RankCheck(
        rank=rank,
        method=reference.method,
        elements=len(outputs) * reference.nearest.numel(),
        wrong=sum(one.wrong for one in found),
        first_mismatch=None
        if wrong_launch is None
        else _mismatch(reference, rank, wrong_launch, found[wrong_launch].first_index, outputs[wrong_launch]),
        max_absolute_error=_largest(one.max_absolute_error for one in found),
        max_ulp_error=max(one.max_ulp_error for one in found),
        squared_ulp_error=sum(one.squared_ulp_error for one in found),
        digest=found[0].digest,
        launches=len(outputs),
        launches_equal=len({one.digest for one in found}) == 1,
        guard_faults=tuple(guard_faults),
        bound=limit.formula if limit else "",
        bound_value=reference.bound_value,
        bound_used=max(one.bound_used or 0.0 for one in found) if limit else None,
    )


def merge(case: Case, spec: Promise, checks: Sequence[RankCheck], *, collective: Collective | None = None) -> Check:
    """One Check from those of all ranks. The first mismatch is that of the lowest rank that has one.

    For an op whose ranks get different outputs, ranks_equal is True and not promised: there is nothing to compare.
    """
    collective = collective or find_collective(case.op)
    checks = sorted(checks, key=lambda one: one.rank)
    promised = case.inputs == "exact" or spec.fold != "unordered"
    same = collective.same_on_all_ranks
    elements = sum(one.elements for one in checks)
    shares = [one.bound_used for one in checks if one.bound_used is not None]
    values = [one.bound_value for one in checks if one.bound_value is not None]
    return Check(
        method=checks[0].method,
        elements=elements,
        wrong=sum(one.wrong for one in checks),
        max_absolute_error=_largest(one.max_absolute_error for one in checks),
        max_ulp_error=max(one.max_ulp_error for one in checks),
        rms_ulp_error=math.sqrt(sum(one.squared_ulp_error for one in checks) / elements),
        ranks_equal=not same or len({one.digest for one in checks}) == 1,
        launches=checks[0].launches,
        launches_equal=all(one.launches_equal for one in checks),
        ranks_equal_promised=same and (promised or spec.one_owner),
        launches_equal_promised=promised,
        first_mismatch=next((one.first_mismatch for one in checks if one.first_mismatch), None),
        bound=checks[0].bound,
        bound_value=max(values) if values else None,
        bound_used=max(shares) if shares else None,
        guard_faults=tuple(f"rank {one.rank}: {fault}" for one in checks for fault in one.guard_faults),
    )


def _reference(
    case: Case,
    spec: Promise,
    collective: Collective,
    rank: int,
    inputs: Sequence[torch.Tensor] | None,
    device: torch.device,
) -> Reference:
    """The reference of a rank on a device, made once a process for all ranks that have the same."""
    if inputs is not None:
        return _make_reference(case, spec, rank, collective.outputs([one.to(device) for one in inputs], rank), None)
    owner = 0 if collective.same_on_all_ranks else rank
    place = (case.world_size, owner, str(device))
    data = (case.op, case.reduction, case.dtype, case.size_bytes, case.inputs, case.seed, *place)

    def parts() -> list[torch.Tensor]:
        count = collective.counts(case.numel, case.world_size)[0]
        return collective.outputs(make_inputs(case, range(case.world_size), count, device), owner)

    def make() -> Reference:
        total = _totals.get(data, lambda: exact_sum(parts()))
        return _make_reference(case, spec, owner, parts(), total)

    return _references.get((*data, case.accumulator, spec.fold, spec.owner), make)


def _make_reference(
    case: Case, spec: Promise, rank: int, parts: list[torch.Tensor], total: ExactSum | None
) -> Reference:
    if case.reduction != "sum":
        raise ValueError(f"reduction '{case.reduction}': the check knows only sum")
    total = total or exact_sum(parts)
    nearest = round_to(total.value, DTYPES[case.dtype])
    if case.inputs == "exact":
        assert torch.equal(nearest.to(torch.float64), total.value), f"{case.id}: the exact inputs' sums are not exact"
        return Reference("bitwise", total, nearest, nearest, None)
    if spec.fold == "unordered":
        # What a library adds in is not known: the dtype itself is the least that it may.
        limit = bound(parts, "native" if case.accumulator == ACCUMULATOR else case.accumulator, total)
        return Reference("bound", total, nearest, None, limit, limit.largest_error)
    first = None
    if spec.fold == "from_next_rank":
        if spec.owner is None:
            raise ValueError(f"{spec.name}: fold from_next_rank needs an owner")
        owners = spec.owner(case.numel, case.world_size, case.dtype).to(parts[0].device)
        first = (owners.to(torch.int64) + 1) % case.world_size
    return Reference("bitwise_fold", total, nearest, fold(parts, case.accumulator, first), None)


def _compare(reference: Reference, output: torch.Tensor) -> Comparison:
    if reference.limit is not None:
        right = reference.limit.permits(output)
    else:
        assert reference.expected is not None
        right = same_bits(output, reference.expected)
    wrong = int(right.numel() - right.sum())
    ulps = ulp_distance(output, reference.nearest)
    error = (output.to(torch.float64) - reference.nearest.to(torch.float64)).abs()
    error[ulps == 0] = 0.0  # equal infinities and NaN would give NaN
    return Comparison(
        wrong=wrong,
        first_index=int(right.to(torch.uint8).argmin()) if wrong else -1,
        max_absolute_error=float(error.max()),
        max_ulp_error=int(ulps.max()),
        squared_ulp_error=float(ulps.to(torch.float64).square().sum()),
        bound_used=reference.limit.largest_share(output) if reference.limit else None,
        digest=hashlib.sha256(_bits(output).contiguous().cpu().numpy().data).hexdigest(),
    )


def _mismatch(reference: Reference, rank: int, launch: int, index: int, output: torch.Tensor) -> Mismatch:
    rounded = reference.nearest if reference.expected is None else reference.expected
    expected = reference.total.value if reference.expected is None else reference.expected
    return Mismatch(
        rank=rank,
        launch=launch,
        index=index,
        expected=float(expected[index]),
        actual=float(output[index]),
        expected_bits=_bit_text(rounded[index : index + 1]),
        actual_bits=_bit_text(output[index : index + 1]),
    )


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.view(FORMATS[value.dtype].bits)


def _bit_text(value: torch.Tensor) -> str:
    width = 8 * value.dtype.itemsize
    return f"0x{int(_bits(value)) & ((1 << width) - 1):0{width // 4}x}"


def _largest(values: Iterable[float]) -> float:
    """The largest value; NaN when there is one."""
    listed = list(values)
    return math.nan if any(math.isnan(value) for value in listed) else max(listed)


class _Kept(Generic[Made]):
    """The latest few results by key. What several threads ask for at once is made once: the others wait."""

    def __init__(self, weigh: Callable[[Made], torch.Tensor]) -> None:
        self._weigh = weigh
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Made] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        with self._lock:
            if key not in self._results:
                self._results[key] = make()
            self._results.move_to_end(key)
            while len(self._results) > 1 and (len(self._results) > KEPT_REFERENCES or self._is_full()):
                self._results.popitem(last=False)
            return self._results[key]

    def forget(self) -> None:
        with self._lock:
            self._results.clear()

    def _is_full(self) -> bool:
        weights = [self._weigh(result) for result in self._results.values()]
        most = KEPT_ELEMENTS if all(weight.device == CPU for weight in weights) else KEPT_DEVICE_ELEMENTS
        return sum(weight.numel() for weight in weights) > most


_totals: _Kept[ExactSum] = _Kept(lambda total: total.value)
_references: _Kept[Reference] = _Kept(lambda reference: reference.nearest)


def forget_references() -> None:
    """Give all kept references up."""
    _totals.forget()
    _references.forget()
