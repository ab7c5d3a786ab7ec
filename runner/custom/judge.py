"""Is what came out what the reference says? All ranks, launches and compared buffers, as one Check."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from cases.dtypes import FLOATS
from cases.record.record import Check, Mismatch
from kernels.numeric.bounds import Bound
from kernels.numeric.formats import FORMATS, is_nan, to_float64
from memory.tensor import flat_bytes
from runner.case.check import merged, mismatch_of, rank_check
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

    def mismatch(self) -> Mismatch:
        return mismatch_of(self.reference, self.rank, self.launch, self.comparison.first_index, self.output)


def judged(
    spec: CustomSpec, inputs: Sequence[Contents], expected: Sequence[Contents], outcomes: Sequence[CustomOutcome]
) -> Judged:
    """Compare what all ranks brought home with what the reference gave, by rank.

    The first mismatch is that of the lowest rank, then of the first launch, then of the first buffer. Whether ranks are
    to agree is unknown, so nothing is promised of them; launches have the same inputs, so bit for bit they are equal,
    and within a tolerance they need not be.
    """
    by_rank = [_findings(spec, expected[outcome.rank], outcome) for outcome in outcomes]
    wrong = [one for findings in by_rank for one in findings if one.comparison.wrong]
    limits = [one.reference for findings in by_rank for one in findings if one.reference.limit is not None]
    checks = [
        rank_check(
            outcome.rank,
            [one.comparison for one in findings],
            method="bound" if limits else "bitwise",
            elements=sum(one.output.numel() for one in findings),
            first_mismatch=next((one.mismatch() for one in findings if one.comparison.wrong), None),
            digests=_digests(outcome, expected[outcome.rank]),
            launches=len(outcome.outputs),
            guard_faults=(*outcome.guard_faults, *_unwritten(outcome, expected[outcome.rank])),
            bound=spec.tolerance.formula if limits else "",
            bound_value=max((one.bound_value or 0.0 for one in limits), default=None),
            input_digest=digest_of(inputs[outcome.rank]),
        )
        for outcome, findings in zip(outcomes, by_rank, strict=True)
    ]
    check = merged(
        checks,
        ranks_equal=len({one.digest for one in checks if one.digests}) <= 1,
        ranks_equal_promised=False,
        launches_equal_promised=not limits,
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
    return Reference("bound", expected, None, limit, to_float64(expected), limit.largest_error)


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
