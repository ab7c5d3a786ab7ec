"""What the race checker finds in recorded cases, found again by running them: for audits of records that hold findings.

Only the simulator has the checker, so this needs no GPU. A case runs with the record's own configuration. Where its
kernel is other code today, its findings say nothing of the recorded ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from cases.record.record import Record
from reports.audit.races import Races, compared
from runner.case.allowed_code import AllowedCode
from runner.command.means import Means
from runner.replay.rebuild import Wishes, rebuilt
from runner.replay.run_one import OneByOne
from runner.request_error import first_line
from runner.world.fabrics import WorldMaker, make_world

UP_TO_BYTES = 64 << 10
"""Maximum size of the cases that run again: with the checker, larger ones take seconds each."""

PATIENCE_S = 120.0
"""After this time no further case is begun."""


def races_again(
    records: Iterable[Record],
    say: Callable[[str], None],
    code: AllowedCode | None = None,
    patience_s: float = PATIENCE_S,
    make: WorldMaker = make_world,
    means: Means | None = None,
) -> dict[str, Any]:
    """Run the cases that were checked for races again, and compare what is found.

    {"again": number of cases, "different": [[case id, what], ..], "left_out": [[case id, reason], ..] of those that are
    too large or come too late, "not_comparable": [[case id, reason], ..]}. code says which files may run. make and
    means replace the worlds and the work of a case, for tests.
    """
    found: dict[str, Any] = {"again": 0, "different": [], "left_out": [], "not_comparable": []}
    jobs: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.findings is None:
            continue
        if record.case.size_bytes > UP_TO_BYTES:
            found["left_out"].append([record.id, f"larger than {UP_TO_BYTES:,} bytes"])
            continue
        jobs.setdefault((record.request.command, record.request.job), []).append(record)
    ends_s = time.monotonic() + patience_s
    for members in jobs.values():
        try:
            again = rebuilt(members, Wishes(code=code))
        except ValueError as error:
            found["not_comparable"] += [[one.id, first_line(error)] for one in members]
            continue
        found["not_comparable"] += [list(one) for one in again.left_out]
        recorded = {record.id: record for record in again.records}
        for job in again.command.jobs:
            runner = OneByOne(make, means)
            try:
                for case in job.cases:
                    if time.monotonic() > ends_s:
                        found["left_out"].append([case.id, f"not begun within {patience_s:.0f} s"])
                        continue
                    say(f"looking for races again: {found['again']} cases")
                    _take(found, recorded[case.id], runner.run(job, case))
            finally:
                runner.close()
    return found


def _take(found: dict[str, Any], recorded: Record, again: Record) -> None:
    """Note how the findings of one case compare."""
    codes = [one.kernel.code_digest if one.kernel is not None else None for one in (recorded, again)]
    assert recorded.findings is not None
    if again.findings is None:
        why = again.reason or "its configuration does not ask for check.races"
        found["not_comparable"].append([recorded.id, f"{again.status} here: {why}"])
    elif codes[0] != codes[1]:
        found["not_comparable"].append([recorded.id, "its kernel is other code today"])
    else:
        found["again"] += 1
        same = compared(recorded.findings, again.findings)
        if same.races is Races.DIFFERENT:
            found["different"].append([recorded.id, same.remark])
