"""The check that a recorded case must have by the reference alone: nothing runs, so it does for cases of any machine.

Where a method determines the bits, the reference's own result is the output of every launch. Where a bound was kept,
the exact result stands in for the outputs: of such a check only what does not rest on outputs may be compared.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cases.ops import collective
from cases.record.record import Check, Record
from cases.stress import NO_STRESS
from runner.case.bringing import recorded_place
from runner.case.check import RankCheck, check_rank, merge
from runner.case.contestant import spec_for
from runner.case.inputs import CPU, digest_of, forget_inputs, make_input
from runner.case.reference import Promise, forget_references, reference_of
from runner.request.validate import CUSTOM

if TYPE_CHECKING:
    from cases.case import Case

MOST_LAUNCHES = 1024
"""Maximum number of launches of a case: a record may name any number."""

KEPT_UP_TO_BYTES = 64 << 10
"""Inputs and references of larger cases are given up after each. In a random order hardly a case has those of the one
before, and all that are kept take 400 MB."""


def check_by_reference(record: Record) -> Check:
    """Return the check of a record whose outputs are the reference's. ValueError where there is no reference here: of a
    custom kernel, of a kernel that was brought, and of a case under stress."""
    assert record.check is not None
    case = record.case
    if record.check.launches > MOST_LAUNCHES:
        raise ValueError(f"{record.check.launches} launches; at most {MOST_LAUNCHES} are compared here")
    if case.op == CUSTOM or recorded_place(record):
        raise ValueError("the kernel was brought: what it promises is not asked for the reference")
    if case.stress != NO_STRESS:
        raise ValueError("a case under stress has no reference of its own")
    spec = spec_for(case)
    checks = [_rank(case, spec, rank, record.check.launches) for rank in range(case.world_size)]
    forget_after(case)
    return merge(case, spec, checks)


def forget_after(case: Case) -> None:
    """Give up inputs and references, if those of a case are large; and, where glibc would keep it, all free memory."""
    if case.size_bytes > KEPT_UP_TO_BYTES:
        forget_references()
        forget_inputs()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _rank(case: Case, spec: Promise, rank: int, launches: int) -> RankCheck:
    """Return the check of one rank."""
    op = collective(case.op)
    count = op.elements(case)[0]
    digest = digest_of(make_input(case, rank, count))
    if not op.gives(case, rank):
        return check_rank(case, spec, rank, [], (), input_digest=digest)
    reference = reference_of(case, spec, op, rank, CPU)
    output = reference.nearest if reference.expected is None else reference.expected
    return check_rank(case, spec, rank, [output] * launches, (), input_digest=digest)
