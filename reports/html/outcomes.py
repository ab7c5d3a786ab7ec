"""How cases ended: the verdict at the top, cases without times, refusals and failures with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cases.gathered import gathered
from cases.record.record import Record, Status
from reports.html import races
from reports.html.blocks import Block, Facts, Heading, Notes, Part, Table
from reports.table import refusals, table
from reports.table.compare import commit_text, device_text, heading, is_simulated, split
from reports.table.text import counted, span_text, story_of

_BROKEN = (Status.FAILED, Status.DEADLOCK, Status.TIMEOUT)

_NONE = (Notes(("Nothing was refused, and nothing failed.",)),)


def counts(records: Sequence[Record]) -> tuple[tuple[str, str, int, str], ...]:
    """Return (sign, word, number, CSS class) of each kind of outcome; unchecked is left out if it is 0."""
    found = Counter(record.status for record in records)
    unchecked = sum(record.status is Status.PASSED and not record.verified for record in records)
    broken = sum(found[status] for status in _BROKEN)
    shown = [
        ("✓", "passed", found[Status.PASSED] - unchecked, "good"),
        ("✗", "wrong", found[Status.WRONG], "bad" if found[Status.WRONG] else ""),
        ("-", "refused", found[Status.REFUSED], ""),
        ("!", "failed", broken, "bad" if broken else ""),
    ]
    return (*shown, *([("?", "unchecked", unchecked, "caution")] if unchecked else []))


def verdict(records: Sequence[Record]) -> str:
    """Return one sentence: did all cases that ran pass?"""
    found = Counter(record.status for record in records)
    ran = len(records) - found[Status.REFUSED]
    unchecked = sum(record.status is Status.PASSED and not record.verified for record in records)
    bad = ran - found[Status.PASSED]
    if not ran:
        return f"Every case was refused ({counted(len(records), 'case')}): nothing ran."
    if bad:
        return f"{bad:,} of {counted(ran, 'case')} that ran did not pass."
    if unchecked:
        ended = f"Every case that ran ended ({counted(ran, 'case')})"
        return f"{ended}, and the results of {unchecked:,} of them were not checked."
    return f"Every case that ran passed its check ({counted(ran, 'case')})."


def machine(records: Sequence[Record]) -> str:
    """Return the devices: "4 x NVIDIA H200", "2 and 4 x simulated GPU", or both."""
    found: dict[str, set[int]] = {}
    for record in records:
        if record.fabric is not None:
            name = "simulated GPU" if record.fabric.simulated else device_text(record)
            found.setdefault(name, set()).add(record.fabric.world_size)
    texts = []
    for name, sizes in found.items():
        ranks = sorted(sizes)
        shown = ", ".join(map(str, ranks[:-1])) + (" and " if len(ranks) > 1 else "") + str(ranks[-1])
        texts.append(f"{shown} x {name}")
    return "; ".join(texts) or "no machine: nothing got as far as a fabric"


def facts(records: Sequence[Record]) -> Facts:
    """Return machine, kind (measured or simulated), time, what was found of races in simulated cases, number of
    commands, and commits."""
    simulated = sum(map(is_simulated, records))
    measured = sum(record.timing is not None for record in records)
    said = [f"measured on hardware: {counted(measured, 'case')} with times"] if measured else []
    said += [f"simulated: {counted(simulated, 'case')} without times and bandwidths"] if simulated else []
    commits = dict.fromkeys(filter(None, map(commit_text, records)))
    commands = {record.request.command for record in records}
    first, last = min(record.started for record in records), max(record.ended for record in records)
    return Facts(
        (
            ("machine", machine(records)),
            ("kind", "; ".join(said) or "neither measured nor simulated"),
            ("when (UTC)", f"{first[:19].replace('T', ' ')} to {last[:19].replace('T', ' ')}"),
            *([("races", races.fact(records))] if simulated else []),
            ("commands", f"{len(commands):,}"),
            ("symlab", ", ".join(commits) or "commit not captured"),
        )
    )


def plain_part(records: Sequence[Record], anchor: str, title: str) -> Part | None:
    """Return the part of cases without times, a line each; None if there are no such cases."""
    _, others = split(records)
    ran = [record for record in others if record.status is not Status.REFUSED]
    if not ran:
        return None
    refused = len(others) - len(ran)
    said = [f"{counted(refused, 'refused case')} under Refusals and failures, each reason once"] if refused else []
    sheets = table.sheets_of(ran)
    blocks: list[Block] = [Notes((*said, *table.captions(ran)))]
    for number, sheet in enumerate(sheets, start=1):
        blocks.append(Heading(f"{anchor}-{number}", sheet.heading))
        blocks.append(Table(sheet, heading=False))
    return Part(anchor, title, tuple(blocks))


def refusals_part(records: Sequence[Record]) -> Part:
    """Return the part of refused, wrong and failed cases, with their reasons."""
    bad = [record for record in records if record.status is Status.WRONG or record.status in _BROKEN]
    refused = sum(record.status is Status.REFUSED for record in records)
    blocks: list[Block] = []
    if refused:
        lines = [line for lines in refusals.lines(records).values() for line in lines]
        blocks += [Heading("refused", f"Refused: {counted(refused, 'case')}"), Notes(tuple(lines))]
    if bad:
        alike = gathered(((f"{one.status}: {one.case.algorithm}", heading(one), story_of(one)), one) for one in bad)
        lines = [f"{who}, {span_text(own)} ({job}): {story}" for (who, job, story), own in alike.items()]
        blocks += [Heading("failed", f"Wrong or failed: {counted(len(bad), 'case')}"), Notes(tuple(lines))]
    return Part("reasons", "Refusals and failures", (*blocks, *_NONE[: not blocks]))
