"""Recorded cases run again in the simulator, from the records alone, and compared: for audits.

The order is random, of a seed that the caller names: first one case of each kernel, then a second of each, and so on,
those of at most SMALL_BYTES before larger ones. What the simulator can't run, or is too large for it, is compared with
the reference. Code is that of the project here: a record's difference from its commit is never applied, and files that
a record names run only where AllowedCode says so. Where the sources have changed since, cases run again by the code of
their commit if that is wanted (symlab/evidence/replay/at_commit.py).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from cases.record.record import Check, Record, Status
from reports.table.compare import is_baseline
from runner.case.allowed_code import AllowedCode
from runner.case.bringing import recorded_place
from runner.case.todays_code import MALFORMED
from runner.command.means import Means
from runner.environment.repository import source_digests
from runner.request.experiments import CONF
from runner.request.schema import Schema
from runner.request_error import first_line
from runner.world.fabrics import WorldMaker, make_world
from symlab.evidence.audit.case_differences import (
    OF_BITS,
    SOURCES_CHANGED,
    choices_differ,
    code_differences,
    counters_differ,
    data_differences,
    is_determined,
    is_same_code,
    promise_differences,
    settings_differ,
)
from symlab.evidence.audit.races import compared
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay.at_commit import Answers, at_commits
from symlab.evidence.replay.compiled_first import Kernel, compiled_first, kernel_of
from symlab.evidence.replay.rebuild import NOT_OF_THE_JOB, Wishes, rebuilt
from symlab.evidence.replay.rerun_results import Found, RerunResults
from symlab.evidence.replay.run_one import OneByOne

SMALL_BYTES = 64 << 10
"""Cases up to this size take the simulator a second at most, and run first. Of GPUs' cases only these run: of larger
ones the reference says the same sooner."""

SIMULATED_UP_TO_BYTES = 1 << 20
"""Maximum size of simulated cases that run again."""

DEADLINE_S = 60.0
"""Maximum time of one case: a record may name any deadline."""

CACHE = Path(Schema().cache_dir).expanduser()
"""Where rebuilt jobs have their kernels from."""

SOURCES = ("cases", "kernels", "memory", "runner", "simulator")
"""Folders whose files decide what the simulator counts."""


@dataclass(frozen=True, slots=True)
class RecordedData:
    """One case with its data: the records of it, of all worlds that ran it with the same configuration. Records without
    a check are only compared by how they ended, and form cases of their own."""

    records: tuple[Record, ...]

    @property
    def id(self) -> str:
        return self.records[0].id

    @property
    def kernel(self) -> str:
        """The name of the kernel that ran it, whether the record describes one or not; "" if a library did."""
        first = self.records[0]
        return "" if is_baseline(first) else first.case.name

    @property
    def is_checked(self) -> bool:
        return self.records[0].check is not None


@dataclass(slots=True)
class _Taken:
    """A case that was taken: what came of it, the record that it gave here, if it ran, and why it could not."""

    case: RecordedData
    found: Found = field(default_factory=Found)
    here: Record | None = None
    broke: str = ""


def rerun(
    records: Iterable[Record],
    wanted: Rerun,
    say: Callable[[str], None],
    code: AllowedCode | None = None,
    up_to_bytes: int = SIMULATED_UP_TO_BYTES,
    make: WorldMaker = make_world,
    means: Means | None = None,
    ask: Callable[[Sequence[Record], Callable[[str], None]], Answers] = at_commits,
) -> RerunResults:
    """Run cases again, and compare.

    say is called with the progress; up_to_bytes: the maximum size of cases that are compared with the reference; make,
    means and ask replace the worlds, the work of a case and the code of commits, for tests.
    """
    cases = with_data(records)
    run = _Run(wanted, up_to_bytes, code, OneByOne(make, means))
    ordered = list(in_order(cases, wanted.seed))
    run.compile([case.records[0] for case in ordered if not _out_of_reach(case)][: wanted.number], say)
    for case in ordered:
        say(f"running cases again: {run.simulated} of {len(cases)}")
        run.take(case)
    at_commit = run.ask(ask, say) if wanted.at_commit else 0
    found = Found()
    for taken in run.taken:
        found.add(taken.found)
    kernels = sorted({case.kernel for case in cases if case.kernel and case.is_checked})
    return RerunResults(found, wanted.seed, len(cases), kernels, at_commit)


def with_data(records: Iterable[Record]) -> list[RecordedData]:
    """Return the cases with a check, and the simulated ones without, each with its records, in order of appearance."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.check is None and not _was_simulated(record):
            continue
        configuration = record.request.configuration or {}
        job = {key: value for key, value in configuration.items() if key not in NOT_OF_THE_JOB}
        ended = "" if record.check is not None else str(record.status)
        found.setdefault((record.id, json.dumps(job, sort_keys=True), ended), []).append(record)
    return [RecordedData(tuple(members)) for members in found.values()]


def _out_of_reach(case: RecordedData) -> str:
    """Return why no case such as this runs again; "" if it may."""
    first = case.records[0]
    most_bytes = SIMULATED_UP_TO_BYTES if _was_simulated(first) else SMALL_BYTES
    if is_baseline(first) or (first.kernel is None and case.is_checked):
        return "the record has no kernel" if case.kernel else "a library ran it, which needs GPUs"
    return f"larger than {most_bytes:,} bytes, the maximum to run again" if first.case.size_bytes > most_bytes else ""


def in_order(cases: Sequence[RecordedData], seed: int) -> Iterator[RecordedData]:
    """Yield the cases in the order in which they run: one of each kernel, then a second of each, and so on; within a
    kernel those of at most SMALL_BYTES first, otherwise as seed shuffles them."""
    shuffled = list(cases)
    random.Random(seed).shuffle(shuffled)
    by_kernel: dict[str, list[RecordedData]] = {}
    for case in sorted(shuffled, key=lambda one: one.records[0].case.size_bytes > SMALL_BYTES):
        by_kernel.setdefault(case.kernel, []).append(case)
    for rows in zip_longest(*by_kernel.values()):
        yield from (case for case in rows if case is not None)


class _Run:
    """A rerun under way. simulated: number of cases that ran. taken: the cases so far, with what came of them."""

    def __init__(self, wanted: Rerun, up_to_bytes: int, code: AllowedCode | None, runner: OneByOne) -> None:
        self._wanted = wanted
        self._up_to_bytes = up_to_bytes
        self._code = code
        self._found = Found()
        self._runner = runner
        self._sources = source_digests(CONF.parent)
        self._is_there = False  # what is compared with ran by the code of the record's commit
        self.taken: list[_Taken] = []
        self._ends_s = time.monotonic() + wanted.patience_s if wanted.patience_s is not None else None
        self._not_compiled: frozenset[Kernel] = frozenset()
        self.simulated = 0

    def compile(self, records: Sequence[Record], say: Callable[[str], None]) -> None:
        """Compile the kernels of records, in their order, which takes a half of the time at most."""
        patience_s = self._wanted.patience_s
        self._not_compiled = compiled_first(records, CACHE, patience_s and patience_s / 2, say)

    def take(self, case: RecordedData) -> None:
        """Run a case again or compare it with the reference, and note what came of it."""
        taken = _Taken(case)
        self._found = taken.found
        self.taken.append(taken)
        why = self._why_not_simulated(case)
        if not why:
            try:
                taken.here = self._again(case.records[0])
            except MALFORMED as error:
                why = taken.broke = first_line(error)
            else:
                self.simulated += 1
                why = self._note_run(case, taken.here)
                if not why:
                    return
        if case.is_checked:
            self._by_reference(case, why)
        else:
            self._found.data.stated.append((case.id, why))

    def ask(self, ask: Callable[[Sequence[Record], Callable[[str], None]], Answers], say: Callable[[str], None]) -> int:
        """Let the code of their commits run the cases whose sources have changed, and note what came of them instead.
        Returns the number of cases that it ran."""
        moved = [one for one in self.taken if self._is_of_other_code(one)][: self._wanted.number]
        answers = ask([one.case.records[0] for one in moved], say) if moved else Answers()
        self._is_there = True
        for number, taken in enumerate(moved):
            there = answers.records.get(number)
            reason = answers.reasons.get(number, "")
            if there is None and not reason:
                there = taken.here
            if there is not None:
                self._note_there(taken, there)
            for tally in (taken.found.code, taken.found.counters) if reason else ():
                tally.stated = [(case, f"{why}; {reason}") for case, why in tally.stated]
        return len(answers.records)

    def _is_of_other_code(self, taken: _Taken) -> bool:
        """Whether a case ran by other code than today's, or can't be run by today's."""
        here = taken.here
        if here is None:
            return bool(taken.broke)
        return any(
            (_was_simulated(record) and self._changed(record))
            or (record.kernel and here.kernel and record.kernel.source_digest != here.kernel.source_digest)
            for record in taken.case.records
        )

    def _note_there(self, taken: _Taken, there: Record) -> None:
        """Note how a case compares with what the code of its commit gave, in place of what was noted of it."""
        before, self._found = taken.found, Found()
        if self._note_run(taken.case, there):
            self._found.data = before.data
        taken.found = self._found

    def _why_not_simulated(self, case: RecordedData) -> str:
        """Return why a case does not run here; "" if it does."""
        if why := _out_of_reach(case):
            return why
        if self._wanted.number is not None and self.simulated >= self._wanted.number:
            return f"not among the {self._wanted.number} that were to run again"
        if self._not_compiled and kernel_of(case.records[0]) in self._not_compiled:
            return f"not compiled within half of {self._wanted.patience_s:.0f} s, and --rerun has no limit"
        return self._late()

    def _late(self) -> str:
        late = self._ends_s is not None and time.monotonic() > self._ends_s
        return f"not begun within {self._wanted.patience_s:.0f} s, and --rerun has no limit" if late else ""

    def _again(self, record: Record) -> Record:
        """Run a record's case and return the new record. Raises one of MALFORMED where it can't be run."""
        pinned = {**(record.request.configuration or {}), "host_memory": "check"}
        asked = replace(record, request=replace(record.request, configuration=pinned), timing=None)
        if record.request.configuration is None:
            asked = record
        try:
            again = rebuilt([asked], Wishes(fabric="simulator", code=self._code))
        except ValueError as error:
            raise ValueError(_reason(error)) from None
        (job,) = again.command.jobs
        (case,) = (one for one in job.cases if one.id == record.id)
        request = replace(job.request, deadline_s=min(job.request.deadline_s, DEADLINE_S))
        return self._runner.run(replace(job, request=request), case)

    def _note_run(self, case: RecordedData, here: Record) -> str:
        """Note how a case compares with what ran here. Returns a reason if its data can't be compared with it."""
        self._note_code(case, here)
        self._note_races(case, here)
        if here.check is None or not case.is_checked:
            return self._note_status(case, here)
        first = case.records[0]
        if not is_determined(first):
            return "only a bound is promised, and GPUs kept it: other bits here are no fault"
        self._note_counters(case, here)
        self._note_data(case, here.check, here, "simulator")
        return ""

    def _note_status(self, case: RecordedData, here: Record) -> str:
        """Note how a case ended that has no check there or here. Returns a reason if that can't be compared: a time
        that runs out depends on the machine, and GPUs can do other things than the simulator."""
        first = case.records[0]
        reason = f" ({first_line(ValueError(here.reason))})" if here.reason else ""
        says = f"it ended {first.status} in the record, {here.status} here{reason}"
        is_late = here.status is Status.TIMEOUT and first.status is not Status.TIMEOUT
        if is_late or not _was_simulated(first):
            return f"{here.status} here{reason}"
        if here.status is first.status and (here.check is None or first.status is Status.PASSED):
            self._found.data.agree.append((case.id, case.kernel, "status"))
        elif first.status is Status.TIMEOUT or not all(self._is_same(record, here) for record in case.records):
            self._found.data.unsure.append((case.id, says))
        else:
            self._found.data.different.append((case.id, says))
        return ""

    def _by_reference(self, case: RecordedData, why: str) -> None:
        """Compare a case with the reference. why: why it was not compared with a run."""
        from symlab.evidence.replay.by_reference import check_by_reference

        first = case.records[0]
        if first.case.size_bytes > self._up_to_bytes or self._late():
            self._found.data.stated.append((case.id, why))
            return
        try:
            check = check_by_reference(first)
        except (AssertionError, *MALFORMED):
            self._found.data.stated.append((case.id, why))
            return
        if (
            not is_determined(first) or first.check is None or first.check.method == "bound"
        ):  # only a run says which bits
            firm = [what for record in case.records for what in data_differences(record, check)[0]]
            promised = [what for record in case.records for what in promise_differences(record, check)]
            if firm:
                self._found.data.different.append((case.id, "; ".join(dict.fromkeys([*firm, *promised]))))
            elif promised:
                says = f"another promise than here: {'; '.join(dict.fromkeys(promised))}"
                self._found.data.unsure.append((case.id, says))
            else:
                self._found.data.stated.append((case.id, why))
            return
        self._note_data(case, check, None, "reference")

    def _note_data(self, case: RecordedData, check: Check, here: Record | None, how: str) -> None:
        """Note whether the data of all of a case's records is that of a check made here."""
        differing: list[str] = []
        explained: list[str] = []
        for record in case.records:
            firm, by_code = data_differences(record, check)
            differing += firm
            is_same = self._is_same(record, here) if here is not None else _is_moved(record)
            (differing if is_same else explained).extend(by_code)
        says = f"its code changed since, and {'; '.join(dict.fromkeys(explained))}"
        if differing:
            self._found.data.different.append((case.id, "; ".join(dict.fromkeys(differing))))
        elif explained and here is not None and _is_moved(case.records[0]):
            self._by_reference(case, says)  # whose word no change of the code concerns
        elif explained:
            self._found.data.unsure.append((case.id, says))
        else:
            self._found.data.agree.append((case.id, case.kernel, how))

    def _is_same(self, record: Record, here: Record) -> bool:
        """Whether nothing that decides how a case ends and its data has changed: the kernel, and but for methods of
        bits the simulator, whose order of additions counts."""
        is_same = record.kernel is None or here.kernel is None or is_same_code(record, here)
        is_of_bits = record.check is not None and record.check.method in OF_BITS
        return self._is_there or (is_same and (is_of_bits or not self._changed(record)))

    def _changed(self, record: Record) -> list[str]:
        """Return the folders that decide what the simulator does and are not the recorded ones."""
        recorded = record.environment.sources or {}
        return [name for name in SOURCES if recorded.get(name) != self._sources[name]]

    def _has_todays_kernels(self, record: Record) -> bool:
        """Whether a record says that the kernels were those of today, kernels that were brought left out."""
        there = record.environment.sources or {}
        is_same = all(there.get(name) == self._sources[name] for name in ("cases", "kernels"))
        return is_same and not recorded_place(record)

    def _note_code(self, case: RecordedData, here: Record) -> None:
        """Note whether the kernel of all of a case's records is what its sources compile to here."""
        for record in case.records if here.kernel is not None else ():
            if record.kernel is None or here.kernel is None:
                continue
            differing, why = code_differences(record.kernel, here.kernel, self._is_there)
            if why == SOURCES_CHANGED and self._has_todays_kernels(record):
                differing = [f"its sources are today's, and it has another digest of those of {here.case.name}"]
            elif not why:
                differing += [*choices_differ(record, here), *settings_differ(record, here)]
            self._found.code.note((case.id, case.kernel), "; ".join(differing), why)

    def _note_races(self, case: RecordedData, here: Record) -> None:
        """Note whether the race checker finds the same, where the code is the same."""
        for record in case.records:
            if record.findings is None:
                continue
            differs, why = "", ""
            if here.findings is None:
                why = f"{here.status} here, without findings"
            elif not is_same_code(record, here):
                why = "its kernel is other code"
            else:
                differs = compared(record.findings, here.findings).remark
            self._found.races.note((case.id, case.kernel), differs, why)

    def _note_counters(self, case: RecordedData, here: Record) -> None:
        """Note whether the simulator counted the same, where kernel and simulator are the same sources."""
        for record in case.records:
            if record.counters and record.fabric is not None and record.fabric.simulated:
                is_other = not self._is_there and bool(self._changed(record))
                differs = "" if is_other else counters_differ(record.counters, here.counters)
                self._found.counters.note((case.id, case.kernel), differs, SOURCES_CHANGED if is_other else "")


def _was_simulated(record: Record) -> bool:
    """Whether a case ran in the simulator, or was asked to, where its record does not describe the fabric."""
    if record.fabric is not None:
        return record.fabric.simulated
    asked = (record.request.configuration or {}).get("fabric")
    return isinstance(asked, dict) and asked.get("name") == "simulator"


def _is_moved(record: Record) -> bool:
    """Whether the reference decides a record's data whatever code ran: no order of additions enters it."""
    assert record.check is not None
    return record.check.method in ("bytes", "bitwise")


def _reason(error: ValueError) -> str:
    """Return why one record can't be rebuilt, without what is said around it."""
    text = first_line(error)
    return text.removeprefix("none of the 1 records can be run again here: ").removesuffix(" (replay)")
