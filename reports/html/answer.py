"""The first screen of the page: what was asked, the best of each size, and the one picture that shows it."""

from __future__ import annotations

from collections.abc import Sequence

from cases.record.record import Record
from reports.html.blocks import Block, Notes, Side, Table
from reports.html.pictures import Album
from reports.table import brief
from reports.table.compare import Row, contestant_text, is_baseline, limit_gbps, rows, split
from reports.table.sheet import Line, Sheet, line_of
from reports.table.text import counted, size_text
from reports.table.timed_table import variables_set

_COLUMNS = ("size", "fastest", "time (us)", "busbw (GB/s)", "ours/base")
_FORMATS = {
    "size": size_text,
    "time (us)": "{:.2f}".format,
    "busbw (GB/s)": "{:.1f}".format,
    "ours/base": "{:.2f}".format,
}

SIMULATED = (
    "simulated: the kernels' own PTX ran and its data was checked; symlab publishes no bandwidth of a simulated run"
)
"""What stands on the first screen of a page without a record of hardware."""

MOST_NAMES = 6
"""Maximum number of names of a kind to list; of more, their number is shown."""


def asked(records: Sequence[Record]) -> str:
    """Return what was asked for in one line: ops, types, ranks, sizes, algorithms."""
    cases = [record.case for record in records]
    experiments = sorted({record.request.experiment for record in records} - {""})
    ranks = sorted({case.world_size for case in cases})
    sizes = sorted({case.size_bytes for case in cases})
    span = f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    parts = [
        *([f"+exp={_named(experiments, 'experiment')}"] if experiments else []),
        _named([case.op for case in cases], "op"),
        _named([case.dtype for case in cases], "data type"),
        f"{_named([str(one) for one in ranks], 'world size')} {'rank' if ranks == [1] else 'ranks'}",
        size_text(sizes[0]) if len(sizes) == 1 else f"{len(sizes)} sizes, {span}",
    ]
    ours = dict.fromkeys(record.case.algorithm for record in records if not is_baseline(record))
    theirs = dict.fromkeys(record.case.algorithm for record in records if is_baseline(record))
    parts += [_named(ours, "algorithm")] if ours else []
    parts += [f"beside {_named(theirs, 'baseline')}"] if theirs else []
    return "; ".join(parts)


def rivals(records: Sequence[Record]) -> str:
    """Return in how many worlds times were taken, and what the libraries did without; "" without times."""
    timed = [record for record in records if record.timing is not None]
    if not timed:
        return ""
    counts = {len(row.records) for section in split(timed)[0] for row in rows(section)}
    has_multicast = {record.fabric.multicast for record in timed if record.fabric is not None}
    said = [f"each time in {'up to ' if len(counts) > 1 else ''}{counted(max(counts), 'world')}"]
    if False in has_multicast:
        said.append("no multicast (NVLS)" + (" in some of them" if True in has_multicast else ""))
    if not any(map(is_baseline, timed)):
        said.append("beside no library")
    elif chosen := sorted(set().union(*map(variables_set, timed))):
        said.append(f"libraries with {', '.join(chosen)}")
    return "; ".join(said)


def blocks(real: Sequence[Record], simulated: Sequence[Record], album: Album) -> list[Block]:
    """Return the answer: of what was timed, the best of each size with its picture; else how the cases of each
    algorithm ended. If all is simulated, it says what that means."""
    found = _of_times(real, album)
    if not found and any(record.check is not None for record in (*real, *simulated)):
        found = [Side((Table(brief.by_kernel([*real, *simulated])),), ())]
    return [*found, Notes((SIMULATED,))] if simulated and not real else found


def _named(names: Sequence[str] | dict[str, None], noun: str) -> str:
    """Names once each, or their number."""
    each = list(dict.fromkeys(names))
    return ", ".join(each) if len(each) <= MOST_NAMES else counted(len(each), noun)


def _of_times(records: Sequence[Record], album: Album) -> list[Block]:
    sections, _ = split(records)
    if not sections:
        return []
    first = sections[0]
    judged = rows(first)
    lines = [_line(row, judged) for row in judged if row.best]
    ratios = any(line.cells["ours/base"] != "-" for line in lines)
    columns = _COLUMNS if ratios else _COLUMNS[:-1]
    table = Table(
        Sheet(f"Best of each size: {first.heading}", columns, (tuple(lines),), frozenset(columns) - {"fastest"})
    )
    more = len(sections) - 1
    said = (f"{counted(more, 'more section')} under Measured on hardware",)
    drawn = album.curves(first.heading, judged, limit_gbps(first.records), most=1)
    return [Side((table, *([Notes(said)] if more else [])), tuple(drawn))]


def _line(row: Row, judged: Sequence[Row]) -> Line:
    """The fastest of a size; ours/base is that of our best there, which a baseline may beat."""
    ratio = next((one.ratio for one in judged if one.size_bytes == row.size_bytes and one.ratio is not None), None)
    values = {
        "size": row.size_bytes,
        "fastest": contestant_text(row, judged),
        "time (us)": row.figure("median_us"),
        "busbw (GB/s)": row.figure("busbw_gbps") or None,
        "ours/base": ratio,
    }
    return line_of(values, _FORMATS, {"fastest": "bold" if row.is_ours else ""})
