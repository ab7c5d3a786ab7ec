"""Is what came out what the reference says? All ranks, launches and compared buffers, as one Check."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from cases.dtypes import FLOATS
from cases.record.record import Check, Mismatch
from kernels.numeric.bounds import Bound
from kernels.numeric.formats import FORMATS, bits_of, is_nan, to_float64
from memory.tensor import flat_bytes
from runner.case.reference import Comparison, Reference
from runner.custom.nouns import Contents, CustomSpec, Tolerance
from runner.custom.program import CustomOutcome


@dataclass(frozen=True, slots=True)
class Judged:
    """A Check, and the buffer of its first mismatch, "" without one: a Mismatch counts within that buffer."""

    check: Check
    buffer: str


@dataclass(frozen=True, slots=True)
class _Finding:
    """One buffer of one rank after one launch."""

    rank: int
    launch: int
    buffer: str
    reference: Reference
    output: torch.Tensor
    comparison: Comparison


def judged(
    spec: CustomSpec, inputs: Sequence[Contents], expected: Sequence[Contents], outcomes: Sequence[CustomOutcome]
) -> Judged:
    """Compare what all ranks brought home with what the reference gave, by rank.

    The first mismatch is that of the lowest rank, then of the first launch, then of the first buffer. Whether ranks are
    to agree is unknown, so nothing is promised of them; launches have the same inputs, so bit for bit they are equal,
    and within a tolerance they need not be.
    """
    findings = [one for outcome in outcomes for one in _findings(spec, expected[outcome.rank], outcome)]
    wrong = [one for one in findings if one.comparison.wrong]
    launches = max(len(outcome.outputs) for outcome in outcomes)
    digests = tuple(_digests(outcome, expected[outcome.rank]) for outcome in outcomes)
    limits = [one.reference for one in findings if one.reference.limit is not None]
    elements = sum(one.output.numel() for one in findings)
    shares = [one.comparison.bound_used for one in findings if one.comparison.bound_used is not None]
    check = Check(
        method="bound" if limits else "bitwise",
        elements=elements,
        wrong=sum(one.comparison.wrong for one in wrong),
        max_absolute_error=_largest(one.comparison.max_absolute_error for one in findings),
        max_ulp_error=max(one.comparison.max_ulp_error for one in findings),
        rms_ulp_error=math.sqrt(sum(one.comparison.squared_ulp_error for one in findings) / max(elements, 1)),
        ranks_equal=len({row[0] for row in digests if row}) <= 1,
        launches=launches,
        launches_equal=all(len(set(row)) <= 1 for row in digests),
        ranks_equal_promised=False,
        launches_equal_promised=not limits,
        first_mismatch=_mismatch(wrong[0]) if wrong else None,
        bound=spec.tolerance.formula if limits else "",
        bound_value=max(one.bound_value or 0.0 for one in limits) if limits else None,
        bound_used=max(shares) if shares else None,
        guard_faults=tuple(
            f"rank {one.rank}: {fault}"
            for one in outcomes
            for fault in (*one.guard_faults, *_unwritten(one, expected[one.rank]))
        ),
        input_digests=tuple(digest_of(contents) for contents in inputs),
        output_digests=digests,
    )
    return Judged(check, wrong[0].buffer if wrong else "")


def wrong_elements(spec: CustomSpec, expected: Contents, outputs: Contents) -> int:
    """Return how many elements of a rank's outputs are not what is expected. expected: what is compared."""
    found = _findings(spec, expected, CustomOutcome(0, (outputs,), ()))
    return sum(one.comparison.wrong for one in found)


def digest_of(contents: Contents) -> str:
    """SHA-256, in hexadecimal, of the bytes of a rank's buffers, by name."""
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{contents[name].nbytes}\0".encode())
        digest.update(flat_bytes(contents[name]).numpy().data)
    return digest.hexdigest()


def _findings(spec: CustomSpec, expected: Contents, outcome: CustomOutcome) -> list[_Finding]:
    references = {
        buffer.name: _reference(expected[buffer.name].reshape(-1), buffer.dtype, spec.tolerance)
        for buffer in spec.buffers
        if buffer.name in expected
    }
    return [
        _Finding(outcome.rank, launch, name, reference, output, reference.look_at(output))
        for launch, outputs in enumerate(outcome.outputs)
        for name, reference in references.items()
        for output in (outputs[name].reshape(-1),)
    ]


def _unwritten(outcome: CustomOutcome, expected: Contents) -> Iterator[str]:
    """A line for each compared buffer with elements that no launch wrote, whatever the reference says of them."""
    for name, elements in outcome.unwritten.items():
        if name in expected:
            where = elements.nonzero().flatten()
            yield f"{len(where)} of {elements.numel()} elements of {name} were never written, first index {where[0]}"


def _reference(expected: torch.Tensor, dtype: str, tolerance: Tolerance) -> Reference:
    if tolerance.is_bitwise or dtype not in FLOATS:
        return Reference("bitwise", expected, expected)
    limit = _limit(expected, tolerance)
    return Reference("bound", expected, None, limit, limit.exact, limit.largest_error)


def _limit(expected: torch.Tensor, tolerance: Tolerance) -> Bound:
    """The interval around what is expected; an infinity or a NaN permits itself alone."""
    value = to_float64(expected)
    overflow = FORMATS[expected.dtype].overflow
    room = tolerance.absolute + tolerance.relative * value.abs()
    finite = value.isfinite()
    exact = value.clamp(-overflow, overflow)
    room = torch.where(finite, room, torch.zeros_like(room))
    largest = math.nextafter(overflow, 0.0)  # an infinity is no number near a finite one
    low = torch.where(finite, (exact - room).clamp(min=-largest), exact)
    high = torch.where(finite, (exact + room).clamp(max=largest), exact)
    return Bound(exact, low, high, tolerance.formula, is_nan(expected))


def _digests(outcome: CustomOutcome, expected: Contents) -> tuple[str, ...]:
    """The digests of the compared buffers after each launch; none of a rank of which nothing is compared."""
    if not expected:
        return ()
    return tuple(digest_of({name: outputs[name] for name in expected}) for outputs in outcome.outputs)


def _mismatch(one: _Finding) -> Mismatch:
    reference, index = one.reference, one.comparison.first_index
    nearest = reference.nearest[index : index + 1]
    actual = one.output[index : index + 1]
    return Mismatch(
        rank=one.rank,
        launch=one.launch,
        index=index,
        expected=float(to_float64(nearest)),
        actual=float(to_float64(actual)),
        expected_bits=_bit_text(nearest),
        actual_bits=_bit_text(actual),
    )


def _bit_text(value: torch.Tensor) -> str:
    width = 8 * value.dtype.itemsize
    return f"0x{int(bits_of(value)) & ((1 << width) - 1):0{width // 4}x}"


def _largest(values: Iterable[float]) -> float:
    """The largest value; NaN when there is one."""
    listed = list(values)
    return math.nan if any(math.isnan(value) for value in listed) else max(listed)
