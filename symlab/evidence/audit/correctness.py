"""Item "data": the checks of the data, digests of inputs and outputs, and races.

The worker runs cases again, and compares others with the reference, inputs too; all that follows from a case
and its data is held to that. Here the records' digests are held to what they promise, and worlds to each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from cases.finding import summary_of
from cases.ops import collective
from cases.record.record import CHECK_WAS_OFF, WHOLE_SINCE, Record, Status
from cases.record.request import as_today
from reports.table.text import counted
from symlab.evidence.audit.data import Data, data_of
from symlab.evidence.audit.items import Outcome, Point, captured_or, contradicted, listed
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.statistics import world_of


def data(material: Material) -> Iterator[Point]:
    """What was checked, and what was found."""
    checked = [record for record in material.records if record.check is not None]
    yield from contradicted(f"{one.id}: {text}" for one in material.records for text in _lacking(one))
    if checked:
        wrong = [f"{one.id}: {'; '.join(one.check.faults)}" for one in checked if one.check and one.check.faults]
        elements = sum(record.check.elements for record in checked if record.check)
        good = f"{counted(len(checked), 'record')}, {counted(elements, 'element')} compared; 0 wrong"
        yield captured_or(wrong, good, len(checked), "records are wrong")
        yield from _digests(checked)
        yield _across_worlds(material)
    if unchecked := [one.id for one in material.records if one.status is Status.PASSED and not one.verified]:
        yield Point(Outcome.NOT_CAPTURED, f"{counted(len(unchecked), 'record')} passed unchecked: {listed(unchecked)}")
    if material.timed:  # a record can't be built with a timing of unchecked data: here it is counted
        elements = sum(one.timing.checked_before + one.timing.checked_after for one in material.timed if one.timing)
        says = f"{counted(len(material.timed), 'timing')}, each checked: {elements:,} elements right before and after"
        yield Point(Outcome.CAPTURED, says)
    if not checked and not unchecked:
        yield Point(Outcome.NOT_CAPTURED, "no case has a check")
    yield from _races(material)


def _lacking(record: Record) -> Iterator[str]:
    """What a record lacks that its configuration asked for, that its case has, or every record from WHOLE_SINCE on."""
    asked = as_today(record.request.configuration or {}).get("check")
    if record.reason == CHECK_WAS_OFF and (record.check or (isinstance(asked, dict) and asked.get("results") is True)):
        yield f"the reason is '{CHECK_WAS_OFF}', and a check was {'made' if record.check else 'asked for'}"
    if record.check is not None and record.case.op != "custom":
        case, op = record.case, collective(record.case.op)
        numel = sum(op.received(case, rank) for rank in range(case.world_size) if op.gives(case, rank))
        given = record.check.launches * numel
        if record.check.elements != given:
            yield f"{record.check.elements:,} elements were compared, {record.check.launches} launches give {given:,}"
    if record.schema < WHOLE_SINCE or record.check is None:
        return
    if record.check.output_digests is None:
        yield f"a check of schema {record.schema} has digests of inputs and outputs, and this one has none"
    is_simulated = record.fabric is not None and record.fabric.simulated
    if is_simulated and record.status is Status.PASSED and not record.counters:
        yield f"a simulated run of schema {record.schema} has counters, and this one has none"


def _digests(checked: list[Record]) -> Iterator[Point]:
    """Yield whether output digests are there, and are equal where ranks promise it, as the check says."""
    found = [record for record in checked if record.check is not None and record.check.output_digests is not None]
    if not found:
        yield Point(Outcome.NOT_CAPTURED, "digests of outputs: the records hold none (schema 2)")
        return
    odd = [f"{record.id}: {text}" for record in found for text in _digests_apart(record)]
    good = f"output digests of {counted(len(found), 'record')}: equal on all ranks that promise it"
    yield captured_or(odd, good, len(found), "records contradict their digests")


def _digests_apart(record: Record) -> Iterator[str]:
    """What a check says that its output digests contradict. Every rank has an output, but for reduce, where only the
    root has, and for a kernel of a user's, whose reference may give something of some ranks only."""
    check, size = record.check, record.case.world_size
    assert check is not None
    rows = check.output_digests or ()
    given = [record.case.root] if record.case.op == "reduce" else range(size)
    without = [rank for rank in given if rank >= len(rows) or not rows[rank]]
    if without and (record.case.op != "custom" or len(without) == size):
        yield f"no output digest of rank {', '.join(map(str, without))}, which the op gives something"
    results = len({row[0] for row in rows if row})
    if check.ranks_equal_promised and results > 1:
        yield f"ranks have {results} different results although the same is promised"
    if check.results is not None and (check.ranks_equal != (check.results == 1) or results not in (0, check.results)):
        yield f"{check.results} results are counted, ranks_equal is {check.ranks_equal}, the digests are of {results}"


def _across_worlds(material: Material) -> Point:
    """Whether the worlds of a case have the same output bits, where the method promises bits."""
    differ, compared, within = [], 0, 0
    shared = with_digests = False
    for case, records in material.by_case.items():
        shared |= len({world_of(one) for one in records if one.verified}) > 1
        good = [one for one in records if one.verified and one.check and one.check.output_digests is not None]
        if len({world_of(one) for one in good}) < 2:
            continue
        with_digests = True
        found = data_of(good[:1], good[1:])
        compared += found.data is not Data.NOT_COMPARABLE
        within += found.data is Data.WITHIN_BOUND
        differ += [f"{case}: {found.remark}"] if found.data is Data.DIFFERENT else []
    if not shared:
        return Point(Outcome.DOES_NOT_APPLY, "bits across worlds: no case passed in two worlds")
    if not with_digests:
        return Point(Outcome.NOT_CAPTURED, "bits across worlds: no case has digests of outputs from two worlds")
    if not compared:
        return Point(Outcome.NOT_COMPARABLE, "bits across worlds: nothing is promised of those that two worlds have")
    beside = f", {within} of them differ within their bound" if within else ""
    good_text = f"{counted(compared, 'case')} compared across worlds{beside}; 0 differ"
    return captured_or(differ, good_text, compared, "cases")


def _races(material: Material) -> Iterator[Point]:
    """Yield what is known of races: nothing of cases on GPUs, which can't be checked for them."""
    simulated = [one for one in material.records if one.fabric is not None and one.fabric.simulated]
    ran = [one for one in simulated if one.status is not Status.REFUSED]
    checked = [record for record in ran if record.findings is not None]
    unchecked = [record.id for record in ran if record.findings is None]
    if lacking := [one.id for one in ran if one.findings is None and _asked_for_races(one)]:
        says = f"{counted(len(lacking), 'case')} without findings, and check.races asked for them: {listed(lacking)}"
        yield Point(Outcome.FINDING, says)
    if not checked:
        if ran:
            yield Point(Outcome.DOES_NOT_APPLY, "races: no case was checked for them (check.races)")
        return
    if unchecked:
        says = f"{counted(len(unchecked), 'case')} beside checked ones not checked for races: {listed(unchecked)}"
        yield Point(Outcome.NOT_CAPTURED, says)
    bad = [f"{record.id}: {record.race.sentence()}" for record in checked if record.race is not None]
    found = summary_of(one for record in checked for one in record.findings or ())
    good = f"{counted(len(checked), 'case')} checked for races; found: {found}"
    yield captured_or(bad, good, len(checked), "cases with races")


def _asked_for_races(record: Record) -> bool:
    """Whether a case ran to its end, and its configuration asked for a race checker: then the record has findings."""
    configuration = record.request.configuration or {}
    asked, algorithms = configuration.get("check"), configuration.get("algorithms")
    if record.status not in (Status.PASSED, Status.WRONG) or not isinstance(asked, dict):
        return False
    is_brought = bool(configuration.get("custom")) or (isinstance(algorithms, list) and ":" in str(algorithms))
    return asked.get("races", False) is True or (asked.get("races", False) is None and is_brought)
