"""Why cases were refused, together for each configuration key that a refusal is about: who, at which sizes, why.

A record of schema 4 has the key (Record.refusal); refusals of earlier records are told apart by their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cases.record.record import Record, Status
from reports.table.text import counted, reason_of, size_text

_SIZES_SHOWN = 3
"""Maximum number of sizes that are named; of more, their number is."""


def note_of(record: Record) -> str:
    """Return what a case that did not pass has in common with others of the same note: the key of its refusal, or its
    reason; "" if it passed."""
    if record.status is not Status.REFUSED:
        return reason_of(record)
    return (
        f"refused for {record.refusal.key}" if record.refusal is not None else _without_size(record, reason_of(record))
    )


def lines(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return the lines of each note of the refused records, by note: one, or with several reasons a title and an
    indented line for each. An algorithm that was refused at all its sizes is named without them."""
    asked: dict[str, set[tuple[object, ...]]] = {}
    refused: dict[str, dict[str, dict[str, list[Record]]]] = {}
    for record in records:
        name = record.case.algorithm
        asked.setdefault(name, set()).add(_place(record))
        if record.status is Status.REFUSED:
            by_reason = refused.setdefault(note_of(record), {})
            by_reason.setdefault(_reason(record), {}).setdefault(name, []).append(record)
    found = {}
    for note, by_reason in refused.items():
        said = [_sentence(_who(names, asked), names) for names in by_reason.values()]
        has_key = any(record.refusal for names in by_reason.values() for some in names.values() for record in some)
        title = f"{note if has_key else 'refused'}:"
        found[note] = [f"{title} {said[0]}"] if len(said) == 1 else [title, *(f"  {one}" for one in said)]
    return found


def _sentence(who: str, names: dict[str, list[Record]]) -> str:
    """Return who was refused and why, with a kernel's name once: a kernel's own reason begins with it."""
    told = _told(names)
    case = next(iter(names.values()))[0].case
    for own in (f"{case.op}/{case.algorithm}", case.algorithm):
        if len(names) == 1 and told.startswith(f"{own} "):
            return f"{own}{who.removeprefix(case.algorithm)}{told.removeprefix(own)}"
    return f"{who}: {told}"


def _place(record: Record) -> tuple[object, ...]:
    case = record.case
    return (case.op, case.dtype, case.accumulator, case.reduction, case.world_size, case.size_bytes, case.placement)


def _reason(record: Record) -> str:
    """Return what one reason has in common at all sizes: a hint may name the case's own."""
    return _without_size(record, record.refusal.reason if record.refusal is not None else reason_of(record))


def _told(names: dict[str, list[Record]]) -> str:
    """Return the reason with its hint, without the case's own size if several sizes have it."""
    records = [record for some in names.values() for record in some]
    return (
        reason_of(records[0])
        if len(set(map(reason_of, records))) == 1
        else _without_size(records[0], reason_of(records[0]))
    )


def _who(names: dict[str, list[Record]], asked: dict[str, set[tuple[object, ...]]]) -> str:
    """Return "torch/multimem, nvshmem (1 KiB)": the sizes of those that were not refused everywhere."""
    who = []
    for name, records in names.items():
        places = set(map(_place, records))
        sizes = sorted({record.case.size_bytes for record in records})
        shown = ", ".join(map(size_text, sizes)) if len(sizes) <= _SIZES_SHOWN else counted(len(sizes), "size")
        placements = {record.case.placement for record in records}
        several = {place[-1] for place in asked[name]}
        where = "" if placements == several else f"{' and '.join(sorted(placements))}, ".replace("_", " ")
        ran_there = {place for place in asked[name] if place[-1] in placements}
        where += "" if places == ran_there else f"{shown}, "
        who.append(f"{name} ({where.removesuffix(', ')})" if where else name)
    return ", ".join(who)


def _without_size(record: Record, text: str) -> str:
    """Return why a case was refused, without its own size, which the sizes beside the name say."""
    text = re.sub(r", not (of )?[0-9]+(?=;|$)", "", text)
    return re.sub(rf"\b{record.case.size_bytes} bytes are\b", "this size is", text)


def notes(records: Sequence[Record]) -> dict[str, int]:
    """Return the notes of cases that did not pass, each once, numbered from 1 in order of appearance."""
    found = dict.fromkeys(filter(None, map(note_of, records)))
    return {note: number for number, note in enumerate(found, start=1)}
