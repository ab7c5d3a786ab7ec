"""Did the data change? What every rank was given, world against world, by the digests that records hold.

Only digests of what each launch gave are compared: that an output is right was found when it was there (check), and
both sides say so, or there is nothing to compare. Records of schema 2 have no digests. Where both sides were found to
have the bits of the reference, made from the same seed, they have the same bits, so far as neither the reference nor
the inputs have changed since: the remark says so. Inputs with NaN are excluded: their bits are not promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cases.record.record import Check, Record, Status
from reports.table.text import counted, number, reason_of
from symlab.evidence.audit.statistics import world_of
from symlab.evidence.audit.worlds import copies

_OF_BITS = frozenset({"bytes", "bitwise", "bitwise_fold"})
"""Methods of a check by which an output has the reference's bits."""


class Data(StrEnum):
    """What is said about a case's data after, compared with that before."""

    BIT_EQUAL = "BIT-EQUAL"
    """Every rank was given the same bits by every launch of every world."""
    WITHIN_BOUND = "WITHIN BOUND"
    """Other bits, where the method promises only a bound, which both sides kept."""
    DIFFERENT = "DIFFERENT"
    """Other bits where they are promised; other inputs, although a case has its seed; or it was right before and after
    it is wrong or broke. A finding."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """Nothing can be said: the reason is beside it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said about a case's data, and why. remark says what has to be known beside it; "" is nothing."""

    data: Data
    remark: str = ""


def data_of(before: Sequence[Record], after: Sequence[Record]) -> Finding:
    """The data of one case, of all worlds before and of all worlds after; at least one record each."""
    if problem := _bad_after(before, after):
        return problem
    ours = [record.check for record in before if record.verified and record.check is not None]
    theirs = [record.check for record in after if record.check is not None]
    if not ours:
        return Finding(Data.NOT_COMPARABLE, f"before: {_outcome(before[0])}")
    wrong = [record for record in before if not record.verified]
    remark = f"{len(wrong)} of {counted(len(before), 'world')} before: {_outcome(wrong[0])}" if wrong else ""
    found = _by_digests(ours, theirs, is_edge=before[0].case.inputs == "edge")
    shared = {world_of(record) for record in before} & {world_of(record) for record in after}
    if shared and found.data in (Data.BIT_EQUAL, Data.WITHIN_BOUND):
        return Finding(Data.NOT_COMPARABLE, "the same world stands on both sides: nothing was run again")
    if found.data in (Data.BIT_EQUAL, Data.WITHIN_BOUND) and (copied := next(copies((*before, *after)), "")):
        return Finding(Data.NOT_COMPARABLE, f"one world is there twice: {copied}")
    return Finding(found.data, "; ".join(filter(None, (found.remark, remark))))


def _bad_after(before: Sequence[Record], after: Sequence[Record]) -> Finding | None:
    """Return what to say where a world of the later set has no verified result."""
    was_right = any(record.verified for record in before)
    for status in (Status.WRONG, Status.FAILED, Status.DEADLOCK, Status.TIMEOUT, Status.REFUSED, Status.PASSED):
        bad = next((one for one in after if one.status is status and not one.verified), None)
        if bad is None:
            continue
        finding = status is Status.WRONG or (was_right and status not in (Status.REFUSED, Status.PASSED))
        says = f"after: {_outcome(bad)}"
        if not was_right:
            past = _outcome(before[0])
            says = f"on both sides: {past}" if past == _outcome(bad) else f"{says}; before: {past}"
        return Finding(Data.DIFFERENT if finding else Data.NOT_COMPARABLE, says)
    return None


def _outcome(record: Record) -> str:
    """How a case ended that has no verified result, and why."""
    reason = reason_of(record) or record.reason
    return f"{record.status} ({reason})" if reason else str(record.status)


def _by_digests(ours: Sequence[Check], theirs: Sequence[Check], is_edge: bool) -> Finding:
    for side, checks in (("before", ours), ("after", theirs)):
        if any(check.output_digests is None for check in checks):
            return _by_reference(ours, theirs, is_edge, f"{side} no digests were recorded")
    inputs = [{check.input_digests for check in checks} for checks in (ours, theirs)]
    if inputs[0] != inputs[1] or len(inputs[0]) > 1:
        says = _first_difference(*(_rows(one) for one in inputs))
        return Finding(Data.DIFFERENT, f"other inputs from the same seed: {says}")
    outputs = [_outputs(checks) for checks in (ours, theirs)]
    if outputs[0] == outputs[1] and all(len(bits) <= 1 for bits in outputs[0]):
        return Finding(Data.BIT_EQUAL)
    where = _first_difference(*outputs)
    if any(check.method == "bound" for check in (*ours, *theirs)):
        return Finding(Data.WITHIN_BOUND, f"{_used(ours)} of the bound was used before, {_used(theirs)} after")
    if is_edge and any(check.method == "bitwise_fold" for check in (*ours, *theirs)):
        return Finding(Data.NOT_COMPARABLE, f"both sides were verified; the bits of NaN are not promised, and {where}")
    return Finding(Data.DIFFERENT, where)


def _by_reference(ours: Sequence[Check], theirs: Sequence[Check], is_edge: bool, why: str) -> Finding:
    """What can be said without digests, of checks without a fault."""
    methods = {check.method for check in (*ours, *theirs)}
    if len(methods) == 1 and methods < _OF_BITS and not is_edge:
        return Finding(Data.BIT_EQUAL, f"by the reference, whose bits both sides have: {why}")
    if methods == {"bound"}:
        return Finding(Data.WITHIN_BOUND, f"unknown whether the bits are equal: {why}")
    return Finding(Data.NOT_COMPARABLE, f"both sides were verified; {why}")


def _outputs(checks: Sequence[Check]) -> list[frozenset[str]]:
    """For each rank, all digests of what any launch of any world gave it."""
    ranks = max(len(check.output_digests or ()) for check in checks)
    found: list[set[str]] = [set() for _ in range(ranks)]
    for check in checks:
        for rank, digests in enumerate(check.output_digests or ()):
            found[rank].update(digests)
    return [frozenset(digests) for digests in found]


def _rows(inputs: set[tuple[str, ...] | None]) -> list[frozenset[str]]:
    """For each rank, all digests of what it put in."""
    columns = [one for one in inputs if one is not None]
    return [frozenset(one[rank] for one in columns) for rank in range(len(columns[0]))]


def _first_difference(ours: Sequence[frozenset[str]], theirs: Sequence[frozenset[str]]) -> str:
    """The first rank whose digests are not one and the same on both sides, in words."""
    if len(ours) != len(theirs):
        return f"{counted(len(ours), 'rank')} before, {len(theirs)} after"
    rank = next(rank for rank in range(len(ours)) if ours[rank] != theirs[rank] or len(ours[rank]) > 1)
    differing = sum(ours[one] != theirs[one] or len(ours[one]) > 1 for one in range(len(ours)))
    texts = [" and ".join(f"{digest[:12]}.." for digest in sorted(side[rank])) or "nothing" for side in (ours, theirs)]
    told = f"{differing} of {counted(len(ours), 'rank')}"
    return f"rank {rank}: {texts[0]} before, {texts[1]} after (different on {told})"


def _used(checks: Sequence[Check]) -> str:
    used = [check.bound_used for check in checks if check.bound_used is not None]
    return number(max(used)) if used else "an unknown share"
