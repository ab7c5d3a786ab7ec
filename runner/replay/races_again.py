"""What the race checker finds in recorded cases, found again by running them: for audits of records that hold findings.

Only the simulator has the checker, so this needs no GPU. A case runs with the record's own configuration. Where its
kernel is other code today, its findings say nothing of the recorded ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from reports.audit.races import Races, compared
from reports.record.record import Record, RecordedEnvironment, RecordedRequest
from runner.case.allowed_code import AllowedCode
from runner.command.job import Job, Means, run_job
from runner.command.plan import PreparedJob
from runner.replay.rebuild import Wishes, rebuilt
from runner.request_error import first_line
from runner.world.fabrics import WorldMaker, make_world, settings

if TYPE_CHECKING:
    from kernels.spec import Case
    from memory.fabric import Executable
    from runner.world.world import World

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
            keeper = _Keeper(job, make)
            try:
                for case in job.cases:
                    if time.monotonic() > ends_s:
                        found["left_out"].append([case.id, f"not begun within {patience_s:.0f} s"])
                        continue
                    say(f"looking for races again: {found['again']} cases")
                    _take(found, recorded[case.id], keeper.again(case, means))
            finally:
                keeper.close()
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


class _Keeper:
    """What a job needs of its command: a world, and a place for the record of a case."""

    def __init__(self, job: PreparedJob, make: WorldMaker) -> None:
        self._job = job
        self._make = make
        self._world: World | None = None
        self._record: Record | None = None

    def again(self, case: Case, means: Means | None) -> Record:
        """Run a case and return its record."""
        request = self._job.request
        asked = (settings(request.fabric), RecordedEnvironment, RecordedRequest())
        run_job(Job(request, (case,), *asked, self._job.specs, self._job.custom), self, means)
        assert self._record is not None
        return self._record

    def world(self) -> World:
        if self._world is None or not self._world.healthy:
            self.close()
            self._world = self._make(self._job.request.fabric, self._job.request.world_size, lambda line: None)
        return self._world

    def starting(self, case: Case) -> None:
        pass

    def keep(self, record: Record, executable: Executable | None) -> None:
        self._record = record

    def close(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()
