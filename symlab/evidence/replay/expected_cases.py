"""The cases that recorded configurations ask for, beside those that there are records of."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cases.case import Case
from cases.record.record import Record
from runner.case.bringing import ALL_VALUES
from runner.case.todays_code import MALFORMED
from runner.request.chooser import BEST
from runner.request.configured import merged
from runner.request.experiments import CONF
from runner.request.sizes import AUTO
from runner.request.validate import Request, validate
from runner.request_error import first_line
from runner.world.fabrics import FabricName
from symlab.evidence.audit.items import Outcome, Point, listed, recomputed
from symlab.evidence.audit.material import Asked
from symlab.evidence.replay.commits import names_at
from symlab.evidence.replay.recomposed import Job, sources_of


@dataclass(slots=True)
class Expected:
    """The cases that jobs asked for, against those that there are. number: of those asked for; missing, unexpected: by
    job; passed_over: those missing of which a later case of the job is there, though a job runs its cases in order."""

    number: int = 0
    missing: list[tuple[Job, str]] = field(default_factory=list)
    passed_over: list[tuple[Job, str]] = field(default_factory=list)
    unexpected: list[tuple[Job, str]] = field(default_factory=list)
    unsure: list[tuple[str, str]] = field(default_factory=list)

    def points(self, not_run: Mapping[str, Collection[Asked]], is_whole: bool) -> Iterator[Point]:
        """Yield how they compare. not_run: by command with a command.json, the cases that it did not come to. Without a
        command.json the last cases of a job may have been left out, or its command may have been interrupted before;
        one before them was left out, but where single files of records were given (is_whole is False)."""
        what = "cases that configurations ask for"
        missing = [(job, case) for job, case in self.missing if (job[1], case) not in not_run.get(job[0], ())]
        gone = [one for one in missing if one[0][0] in not_run or (is_whole and one in self.passed_over)]
        odd = [(case, f"missing of {job[0]}") for job, case in gone]
        odd += [(case, f"of {job[0]}, not requested") for job, case in self.unexpected]
        if left := [one[1] for one in missing if one not in gone]:
            says = "are not here, and no command.json says if they ran: left out, or their command was interrupted"
            yield Point(Outcome.NOT_COMPARABLE, f"{len(left)} of {self.number} {what} {says}: {listed(left)}")
        if self.number == len(self.missing) and not odd and not self.unsure:
            yield Point(Outcome.NOT_CAPTURED, f"none of the {what} ran" if self.number else f"{what}: none says any")
        elif odd or self.unsure or not left:
            yield from recomputed(self.number - len(self.missing), odd, self.unsure, what)


def cases(jobs: dict[Job, list[Record]], recomposed: dict[Job, dict[str, Any]]) -> Expected:
    """Return the cases that each job asked for, against those that there are.

    Of a job that left its algorithms open ("auto", "all") the catalogue says which are meant, today's or that of the
    record's commit; else those count that any of its records has, at every size.
    """
    found = Expected()
    for job, members in jobs.items():
        configuration = recomposed.get(job) or members[0].request.configuration
        try:
            expected = _expected(members, configuration)
        except MALFORMED as error:
            found.unsure.append((f"job {job[1] + 1} of {job[0]}", first_line(error)))
            continue
        there = {record.id for record in members}
        found.number += len(expected)
        reached = max((place for place, case in enumerate(expected) if case in there), default=-1)
        found.missing += [(job, case) for case in expected if case not in there]
        found.passed_over += [(job, case) for case in expected[: reached + 1] if case not in there]
        found.unexpected += [(job, case) for case in sorted(there - set(expected))]
    return found


@dataclass(frozen=True, slots=True)
class RecordedChooser:
    """Chooses what records say that best was, whatever a table has today."""

    records: tuple[Record, ...]

    def name_for(self, case: Case) -> str:
        """Return the recorded choice; "best" itself where no record has the case, whose id then no record has."""
        for record in self.records:
            there = record.case
            is_same = (there.size_bytes, there.placement) == (case.size_bytes, case.placement)
            if is_same and record.request.chosen_by == BEST:
                return there.algorithm
        return BEST

    def described(self, case: Case) -> Mapping[str, Any] | None:
        return None

    def said(self, cases: Iterable[Case]) -> list[str]:
        return []


def _expected(members: Sequence[Record], configuration: Any) -> list[str]:
    """The ids of a job's cases: its sizes times its algorithms and baselines."""
    from kernels.catalogue import ALL_SPECS, MATMUL_FILES, NAMES, find
    from reports.table.compare import is_baseline
    from runner.case.cases import cases_of, resolved

    if not isinstance(configuration, dict):
        raise ValueError("the record holds no configuration")
    request: Request = validate(merged({**configuration, "records": ".", "cache_dir": "."}))
    if request.custom is not None:
        from runner.custom.description import case_of_section

        return [case_of_section(request.custom, request.world_size, request.seed).id]
    info = next((record.fabric for record in members if record.fabric is not None), None)
    name = info.name if info is not None else request.fabric.name
    fabric = dataclasses.replace(request.fabric, name=FabricName("simulator" if name == AUTO else name))
    ours = dict.fromkeys(one.case.algorithm for one in members if not is_baseline(one))
    theirs = dict.fromkeys(one.case.algorithm for one in members if is_baseline(one))
    places = {str(entry.get("place")): name for one in members for name, entry in (one.request.brought or {}).items()}
    specs = ALL_SPECS
    if not isinstance(request.algorithms, str):
        named = tuple(meant for name in request.algorithms for meant in _meant(name, places))
        request = dataclasses.replace(request, algorithms=named)
    elif not _has_todays_catalogue(members[0]):
        names = names_at(members[0])
        if names and set(names) <= {*NAMES, *MATMUL_FILES}:
            specs = tuple(map(find, names))
        else:
            request = dataclasses.replace(request, algorithms=tuple(ours) or tuple(theirs))
    if request.baselines == "auto":
        request = dataclasses.replace(request, baselines=tuple(theirs))
    chooser = RecordedChooser(tuple(members)) if BEST in request.algorithms else None
    return [case.id for case in cases_of(resolved(request, fabric, specs, chooser=chooser))]


def _meant(name: str, places: Mapping[str, str]) -> Sequence[str]:
    """The algorithms that a name stands for, by the recorded places of brought kernels; itself, if none has it."""
    stem = name.removesuffix(ALL_VALUES)
    found = [one for place, one in places.items() if stem != name and (place == stem or place.startswith(f"{stem}@"))]
    return found or [places.get(name, name)]


def _has_todays_catalogue(record: Record) -> bool:
    """Whether the kernels, of which "auto" and "all" are some, are those that a record was made with."""
    return (record.environment.sources or {}).get("kernels") == sources_of(CONF.parent)["kernels"]
