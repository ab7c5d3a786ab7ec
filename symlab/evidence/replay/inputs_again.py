"""Inputs of records made again from their seeds, and their digests compared."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.table.text import counted
from runner.case.allowed_code import AllowedCode
from runner.case.todays_code import MALFORMED
from runner.request.validate import CUSTOM
from runner.request_error import first_line
from symlab.evidence.audit.items import Outcome, Point, Tally

Say = Callable[[str], None]


def inputs(
    records: Sequence[Record],
    up_to_bytes: int,
    say: Say,
    folder: Path | None = None,
    code: AllowedCode | None = None,
    patience_s: float | None = None,
) -> Iterator[Point]:
    """Yield how every rank's input, made again from its seed, compares with the recorded digest.

    Cases of more than up_to_bytes are left out: each takes seconds. None is begun after patience_s seconds (None: no
    limit), in an order that no record decides. Inputs of a case are made once, however many records it has.
    """
    found = Tally()
    large = late = unsaid = 0
    ends_s = time.monotonic() + (math.inf if patience_s is None else patience_s)
    made: dict[str, list[str]] = {}
    for number, record in enumerate(_alike_together(records, made)):
        if record.check is None:
            continue
        if record.check.input_digests is None:
            unsaid += 1
            continue
        say(f"making inputs again: case {number} of {len(records)}")
        try:
            if record.case.size_bytes > up_to_bytes:
                large += 1
                continue
            if record.id not in made and time.monotonic() > ends_s:
                late += 1
                continue
            again = made.get(record.id) or _input_digests(record, folder, code)
            if record.case.op != CUSTOM:
                made[record.id] = again
            if len(again) != len(record.check.input_digests):
                raise ValueError(f"digests of {len(record.check.input_digests)} inputs, there are {len(again)} ranks")
        except MALFORMED as error:
            found.unsure.append((record.id, first_line(error)))
            continue
        pairs = enumerate(zip(record.check.input_digests, again, strict=True))
        if ranks := [str(rank) for rank, (there, here) in pairs if there != here]:
            found.different.append((record.id, f"rank {', '.join(ranks)}"))
        else:
            found.agree.append((record.id,))
    yield from found.points("records, their inputs made again")
    if large:
        says = f"{counted(large, 'record')} of larger inputs: not made again (--inputs-up-to)"
        yield Point(Outcome.NOT_COMPARABLE, says)
    if late:
        says = f"inputs of {counted(late, 'record')}: there was no time to make them (--rerun N has no limit)"
        yield Point(Outcome.CAPTURED, says)
    if unsaid:
        says = f"digests of inputs: {counted(unsaid, 'checked record')} without any (schema 2)"
        yield Point(Outcome.NOT_CAPTURED, says)


def _alike_together(records: Sequence[Record], made: Mapping[str, Any]) -> Iterator[Record]:
    """Yield records in a random order, but those of one stream of inputs together: a large case's inputs have those of
    smaller ones. Kept inputs are given up behind each, if anything was made."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in random.Random().sample(records, len(records)):
        groups.setdefault((record.case.dtype, record.case.inputs, record.case.seed), []).append(record)
    for members in groups.values():
        before = len(made)
        yield from members
        if len(made) > before:
            from runner.case.inputs import forget_inputs

            forget_inputs()


def _input_digests(record: Record, folder: Path | None, code: AllowedCode | None) -> list[str]:
    """The digests of what all ranks of a case put in."""
    if record.case.op == CUSTOM:
        from runner.custom.description import recorded_job
        from runner.custom.judge import digest_of as digest_of_contents

        return [digest_of_contents(contents) for contents in recorded_job(record, folder, code).inputs]
    from cases.ops import collective
    from runner.case.inputs import digest_of, make_input

    case = record.case
    count = collective(case.op).elements(case)[0]
    return [digest_of(make_input(case, rank, count)) for rank in range(case.world_size)]
