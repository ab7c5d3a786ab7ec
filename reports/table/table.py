"""The table at the end of a command, and of `symlab table`.

What was timed is shown in nccl-tests' columns, all contestants of a size together (see timed). All other cases have a
line each, in the order of the records, under a heading for each job. On a terminal it is drawn by rich; everywhere
else, and for tests, it is aligned plain text. A case that ran without a check is shown as unchecked. A simulated fabric
is named below the table, which holds no times and no bandwidths.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from cases.record.record import Record, Status
from reports.table import races, refusals, sheet
from reports.table.compare import Section, heading, is_shown, ops_of_several_counts, split, varying
from reports.table.refusals import notes
from reports.table.sheet import Formats, Line, Sheet, line_of
from reports.table.text import counted, number, size_text, story_of

_NUMERIC = frozenset({"world", "size", "wrong", "max abs error", "max ulp", "PTX instr (M)"})
_SPARE = ("check", "PTX instr (M)", "max ulp", "max abs error", "wrong")
_STYLES = {Status.PASSED: "green", Status.REFUSED: "yellow"}


Render = Callable[[Sequence[Sheet], Sequence[str]], str]
"""What makes text of sheets and captions."""


def console_table(
    records: Sequence[Record], styled: bool | None = None, is_wide: bool = False, elsewhere: str = ""
) -> str:
    """The table as text to be printed here, no wider than a line is (see sheet.room_here). is_wide: see plain.

    styled: drawn by rich with colours; left out, that is so on a terminal only. elsewhere names the place that
    explains the failures, which the table then leaves out.
    """
    return _rendered(records, rendering(styled), is_wide, elsewhere)


def rendering(styled: bool | None = None) -> Render:
    """Return what renders sheets and captions to be printed here. styled: see console_table."""
    if styled is None:
        styled = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return sheet.drawn if styled else functools.partial(sheet.text, width=sheet.room_here())


def plain(records: Sequence[Record], is_wide: bool = False) -> str:
    """The table as aligned text without any control characters. is_wide: a line a size, a column a contestant."""
    return _rendered(records, sheet.text, is_wide)


def markdown(records: Sequence[Record], is_wide: bool = False) -> str:
    """The table as Markdown, the best of each size in bold, ending in a newline."""
    return _rendered(records, sheet.markdown, is_wide) + "\n"


def values(records: Sequence[Record]) -> list[dict[str, object]]:
    """Raw values: a dict for each case, worlds of one case together, refused ones as well. Only if some case was
    checked for races, each has "races" and the number of findings of each severity."""
    from reports.table import timed_table

    found, others = split(records)
    made = timed_table.flat(others, found)
    if not races.were_checked(records):
        return made
    # A timed case was never checked for races, and a line without times is of one record.
    listed = [*[None] * (len(made) - len(others)), *others]
    return [one | races.values(record) for one, record in zip(made, listed, strict=True)]


def _rendered(records: Sequence[Record], render: Render, is_wide: bool = False, elsewhere: str = "") -> str:
    """TimedResult sections with their captions, then everything else with its own."""
    found, others = split(records)
    parts = []
    if found:
        from reports.table import timed_table

        told = [record for one in found for record in one.records if record.status is not Status.REFUSED]
        numbers = notes(told)
        sheets = timed_table.wide(found, numbers) if is_wide else timed_table.long(found, numbers)
        said = [*note_lines(told, elsewhere), *timed_table.refused_lines(found)]
        parts.append(render(sheets, [*said, *timed_table.captions(found, is_wide)]))
    if others:
        parts.append(render(sheets_of(others), captions(others, elsewhere)))
    return "\n\n".join(parts)


def sections(records: Sequence[Record]) -> list[Section]:
    """Records by what a job fixes (op, dtype, accumulator, reduction, world size, inputs), in order of appearance,
    whatever command ran them."""
    differing = varying([record.request.overrides for record in records])
    naming_counts = ops_of_several_counts(records)
    found: dict[str, list[Record]] = {}
    for record in records:
        parts = [one for one in record.request.overrides if one in differing and not is_shown(one)]
        found.setdefault(", ".join([heading(record, naming_counts), *parts]), []).append(record)
    return [Section(heading, tuple(members)) for heading, members in found.items()]


def worlds_of(records: Sequence[Record]) -> dict[str, int]:
    """Return the numbers of commands from 1, in order of appearance, if several ran the same case; else none."""
    commands: dict[str, set[str]] = {}
    for record in records:
        commands.setdefault(record.id, set()).add(record.request.command)
    if all(len(some) < 2 for some in commands.values()):
        return {}
    return {name: number for number, name in enumerate(dict.fromkeys(one.request.command for one in records), start=1)}


def note_lines(records: Sequence[Record], elsewhere: str = "") -> list[str]:
    """Return "[1] why" for each note: the refusals of a key together (see refusals.lines), of a failure its story;
    or, if elsewhere names the place that has it, its id and that place."""
    refused = refusals.lines(records)
    members: dict[str, list[Record]] = {}
    for record in records:
        members.setdefault(refusals.note_of(record), []).append(record)
    found = []
    for note, index in notes(records).items():
        first, others = members[note][0], len(members[note]) - 1
        more = f" and {counted(others, 'case')} more" if others else ""
        is_elsewhere = elsewhere and not first.is_late_library
        failure = f"{first.id}{more}: {elsewhere}" if is_elsewhere else story_of(first)
        lines = refused.get(note, [failure])
        found += [f"[{index}] {lines[0]}", *lines[1:]]
    return found


def captions(records: Sequence[Record], elsewhere: str = "") -> list[str]:
    """What must be said below the table: why cases did not pass (see note_lines), what was counted, which fabric ran
    it."""
    lines = note_lines(records, elsewhere)
    if any(instruction_count(record) is not None for record in records):
        lines.append("PTX instr: instructions times threads, summed over all ranks and all launches, in millions (M)")
    lines += races.captions(records)
    fabrics = {record.fabric.name: record.fabric for record in records if record.fabric is not None}
    for fabric in fabrics.values():
        if fabric.simulated:
            lines.append(
                f"fabric: {fabric.name} ({fabric.arch}), simulated: results and counts of executed instructions are "
                "those of the PTX; times and bandwidths do not exist"
            )
        else:
            lines.append(f"fabric: {fabric.name} ({fabric.arch})")
    if worlds := worlds_of(records):
        lines.append("world: " + ", ".join(f"{number} is {name or '(no name)'}" for name, number in worlds.items()))
    if any(record.status is Status.PASSED and not record.verified for record in records):
        lines.append("unchecked: ran to its end, and its result was not checked")
    return lines


def instruction_count(record: Record) -> int | None:
    """PTX instructions executed, all lanes of all ranks, as the fabric counted them; None if it did not count."""
    count = record.counters.get("instructions")
    return count if isinstance(count, int) and count > 0 else None


def _columns(records: Sequence[Record]) -> list[str]:
    """The columns that say something: the placement only where it differs, races only where some case was checked."""
    columns = ["algorithm", "size", "status", "wrong", "max abs error", "max ulp", "check", "PTX instr (M)"]
    if len({record.case.placement for record in records}) > 1:
        columns.insert(1, "place")
    if worlds_of(records):
        columns.insert(1, "world")
    if races.were_checked(records):
        columns.insert(columns.index("check") + 1, "races")
    return columns


def _line(record: Record, numbers: Mapping[str, int], worlds: Mapping[str, int]) -> Line:
    check = record.check
    unchecked = record.status is Status.PASSED and not record.verified
    remark = " (unchecked)" if unchecked else ""
    if note := refusals.note_of(record):
        remark = f" [{numbers[note]}]"
    values = {
        "algorithm": record.case.algorithm,
        "place": record.case.placement.partition("_")[0],
        "world": str(worlds.get(record.request.command, "-")),
        "size": record.case.size_bytes,
        "status": f"{record.status}{remark}",
        "wrong": check.wrong if check else None,
        "max abs error": check.max_absolute_error if check else None,
        "max ulp": check.max_ulp_error if check else None,
        "check": check.method if check else None,
        "races": races.cell(record),
        "PTX instr (M)": instruction_count(record),
    }
    return line_of(values, _FORMATS, {"status": _style(record), "races": races.style(record)})


_FORMATS: Formats = {
    "size": size_text,
    "wrong": str,
    "max abs error": number,
    "max ulp": str,
    "PTX instr (M)": lambda count: f"{count / 1e6:.3f}",
}


def sheets_of(records: Sequence[Record]) -> list[Sheet]:
    """A sheet for each job, a line for each record."""
    columns = tuple(_columns(records))
    numbers, worlds = notes(records), worlds_of(records)
    found = []
    for section in sections(records):
        lines = [_line(record, numbers, worlds) for record in section.records]
        found.append(Sheet(section.heading, columns, (tuple(lines),), _NUMERIC, _SPARE))
    return found


def _style(record: Record) -> str:
    if record.is_late_library or (record.status is Status.PASSED and not record.verified):
        return "yellow"
    return _STYLES.get(record.status, "bold red")
