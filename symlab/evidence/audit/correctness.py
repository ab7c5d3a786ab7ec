"""Item "data": the checks of the data, digests of inputs and outputs, and races.

The worker runs cases again, and compares others with the reference, inputs too; all that follows from a case
and its data is held to that. Here the records' digests are held to what they promise, and worlds to each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from cases.ops import collective
from cases.record.record import CHECK_WAS_OFF, WHOLE_SINCE, Record, Status
from cases.record.request import as_today
from reports.table.text import counted
from symlab.evidence.audit.data import Data, data_of
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.statistics import world_of


def data(material: Material) -> Iterator[Point]:
    """What was checked, and what was found."""
    checked = [record for record in material.records if record.check is not None]
    sentences = [f"{one.id}: {text}" for one in material.records for text in (*_lacking(one), *_wrong(one))]
    elements = sum(record.check.elements for record in checked if record.check)
    good = f"{counted(len(checked), 'record')}, {counted(elements, 'element')} compared; 0 wrong" if checked else ""
    yield from held((*sentences, *_across_worlds(material)), good)
    if older := [one.id for one in checked if one.check and one.check.output_digests is None]:
        yield Point(Outcome.NOT_CAPTURED, f"digests of outputs of {counted(len(older), 'record')}: {listed(older)}")
    if unchecked := [one.id for one in material.records if one.status is Status.PASSED and not one.verified]:
        yield Point(Outcome.NOT_CAPTURED, f"{counted(len(unchecked), 'record')} passed unchecked: {listed(unchecked)}")
    if not checked and not unchecked:
        yield Point(Outcome.NOT_CAPTURED, "no case has a check")
    without = [one.id for one in material.records if one.findings is None and _is_simulated(one)]
    if 0 < len(without) < sum(map(_is_simulated, material.records)):
        says = f"{counted(len(without), 'case')} beside checked ones not checked for races: {listed(without)}"
        yield Point(Outcome.NOT_CAPTURED, says)


def _is_simulated(record: Record) -> bool:
    return record.fabric is not None and record.fabric.simulated and record.status is not Status.REFUSED


def _wrong(record: Record) -> Iterator[str]:
    """What is wrong with a record's data by its own word: its check, its digests and its races."""
    if record.check is not None:
        yield from record.check.faults
        if record.check.output_digests is not None:
            yield from _digests_apart(record)
    if record.race is not None:
        yield record.race.sentence()
    if record.findings is None and _is_simulated(record) and _asked_for_races(record):
        yield "check.races asked for findings, and it has none"


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


def _across_worlds(material: Material) -> Iterator[str]:
    """Cases whose worlds have other output bits, where the method promises bits."""
    for case, records in material.by_case.items():
        good = [one for one in records if one.verified and one.check and one.check.output_digests is not None]
        if len({world_of(one) for one in good}) > 1 and (found := data_of(good[:1], good[1:])).data is Data.DIFFERENT:
            yield f"{case}: {found.remark}"


def _asked_for_races(record: Record) -> bool:
    """Whether a case ran to its end, and its configuration asked for a race checker: then the record has findings."""
    configuration = record.request.configuration or {}
    asked, algorithms = configuration.get("check"), configuration.get("algorithms")
    if record.status not in (Status.PASSED, Status.WRONG) or not isinstance(asked, dict):
        return False
    is_brought = bool(configuration.get("custom")) or (isinstance(algorithms, list) and ":" in str(algorithms))
    return asked.get("races", False) is True or (asked.get("races", False) is None and is_brought)
