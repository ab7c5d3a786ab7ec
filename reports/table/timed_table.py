"""Tables of what was timed: nccl-tests' columns for all contestants of a size, and what has to be said below them.

long: a line a contestant, grouped by size. wide: a line a size, a column a contestant. flat: raw values, for programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from cases.case import UNIFORM
from cases.gathered import gathered
from cases.record.record import Record, Status
from cases.record.timing import Timing
from reports.table import average, refusals
from reports.table.compare import (
    Row,
    Section,
    accumulator,
    commit_text,
    contestant_text,
    device_text,
    limits,
    rows,
    setup_text,
)
from reports.table.overlap import Overlap, overlap_of, times_alone
from reports.table.sheet import Formats, Line, Sheet, line_of
from reports.table.text import counted, late_text, place_text, reason_of, size_text

BEST = "*"
"""The sign of the best at a size, for where there is no colour."""

_SETTINGS = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_")
"""Beginnings of the names of variables by which libraries take or leave a way, such as multicast."""

_COLUMNS = (
    *("size (B)", "count", "type", "redop", "algorithm", "place", "status", "time (us)", "min", "p95"),
    *("p99", "algbw (GB/s)", "busbw (GB/s)", "TFLOP/s", "matmul %", "overlap %", "#wrong", "link %"),
    *("ours/base", "worlds"),
)
_TEXTUAL = frozenset({"type", "redop", "algorithm", "place", "status", "worlds"})
_FIGURES = {"time (us)": "median_us", "min": "min_us", "p95": "p95_us", "p99": "p99_us"}
_FIGURES |= {"algbw (GB/s)": "algbw_gbps", "busbw (GB/s)": "busbw_gbps"}
_OF_OVERLAP = ("matmul %", "overlap %")
_OPTIONAL = frozenset({"place", "status", "TFLOP/s", *_OF_OVERLAP, "link %", "ours/base", "worlds"})
"""Columns that are there only where they say something."""

_SPARE = (
    *("type", "redop", "count", "p99", "min", "p95", "algbw (GB/s)", "worlds", "link %", "#wrong", "ours/base"),
    *("busbw (GB/s)", "place"),
)

_PLACES = {"out_of_place": "out", "in_place": "in"}


def long(sections: Sequence[Section], numbers: dict[str, int]) -> list[Sheet]:
    """A sheet a section, a line for each row but refused ones, which refused_lines tells. numbers: of the reasons."""
    judged = [[row for row in rows(section) if row.status is not Status.REFUSED] for section in sections]
    alone = times_alone(sections)
    lines = [[_line(row, numbers, overlap_of(row, some, alone)) for row in some] for some in judged]
    said = _said([one for some in judged for one in some])
    said |= {name for name in _OF_OVERLAP if any(name in line.raw for some in lines for line in some)}
    columns = tuple(column for column in _COLUMNS if column not in _OPTIONAL or column in said)
    sheets = []
    for section, some in zip(sections, lines, strict=True):
        groups = gathered((line.cells["size (B)"], line) for line in some)
        sheets.append(
            Sheet(section.heading, columns, tuple(map(tuple, groups.values())), frozenset(columns) - _TEXTUAL, _SPARE)
        )
    return sheets


def wide(sections: Sequence[Section], numbers: dict[str, int]) -> list[Sheet]:
    """A sheet a section, a line a size, a column for each contestant that was timed anywhere in it: time and busbw."""
    sheets = []
    for section in sections:
        judged = [row for row in rows(section) if row.status is not Status.REFUSED]
        names = dict.fromkeys(contestant_text(row, judged) for row in sorted(judged, key=lambda row: not row.is_ours))
        ratios = any(row.ratio is not None for row in judged)
        columns = ("size", *names, *(["ours/base"] if ratios else []))
        lines = []
        for size_bytes in dict.fromkeys(row.size_bytes for row in judged):
            cells = dict.fromkeys(columns, "-") | {"size": size_text(size_bytes)}
            styles: dict[str, str] = {}
            for row in (row for row in judged if row.size_bytes == size_bytes):
                name = contestant_text(row, judged)
                cells[name] = _wide_cell(row, numbers)
                styles |= {name: "bold"} if row.best else {}
                cells |= {"ours/base": f"{row.ratio:.2f}"} if row.ratio is not None else {}
            lines.append(Line(cells, styles))
        sheets.append(Sheet(section.heading, columns, (tuple(lines),), frozenset(columns)))
    return sheets


def flat(records: Sequence[Record], sections: Sequence[Section]) -> list[dict[str, Any]]:
    """A dict of raw values for each row of the sections, refused ones as well; then one for each other record."""
    alone = times_alone(sections)
    known = []
    for section in sections:
        for row in rows(section):
            overlap = overlap_of(row, rows(section), alone)
            more = {} if overlap is None else {"of_matmul": overlap.of_matmul, "overlap": overlap.efficiency}
            known.append(_values(section, row) | more)
    return [*known, *(_values(None, Row((record,))) for record in records)]


def captions(sections: Sequence[Section], is_wide: bool = False) -> list[str]:
    """What the figures are: how they were taken, in what state, against what limit, by which code."""
    records = [record for section in sections for record in section.records]
    timings = [record.timing for record in records if record.timing is not None]
    judged = [row for section in sections for row in rows(section)]
    placed = len({row.placement for row in judged if row.timings}) > 1
    setups = dict.fromkeys(setup_text(record) for record in records if record.timing is not None)
    shown = "time (busbw)" if is_wide else "time (median), min, p95 and p99 (nearest rank)"
    median = ", median" if is_wide else ""
    lines = [
        f"{shown}: microseconds a call, over the samples' maxima over all ranks{median}",
        f"timed: {'; '.join(setups)}; {_spanned((timing.slots for timing in timings), 'slot')} of "
        f"{_span((timing.slot_bytes for timing in timings), size_text)}, "
        f"{_spanned((timing.calls_per_sample for timing in timings), 'call')} a sample, "
        f"{_spanned((len(timing.samples_us[0]) for timing in timings), 'sample')}; data checked before and after",
        *average.lines(judged),
        *_bandwidths(timings),
    ]
    lines += _cached(records)
    worlds = [len(row.records) for row in judged if row.timings]
    if max(worlds, default=0) > 1:
        lines.append(
            f"worlds: {_span(worlds)} {_ran_in(judged)}; every figure is the median over them, and their times lie "
            f"up to {max(map(_spread, judged)):.1%} apart (highest minus lowest, over the median)"
        )
    if found := limits(records):
        size = _span((limit.size_bytes for limit in found), size_text)
        measured = f"peer copies in the same runs, {limit_range(found)} ({size}, one direction, all GPUs at once)"
        lines.append(f"link's limit: {measured}" if is_wide else f"link %: busbw over the better of {measured}")
    else:
        lines.append("the link's limit was not measured")
    lines.append(f"{BEST}: the best of its size" + _ratio_text(judged))
    alone = times_alone(sections)
    if not is_wide and any(overlap_of(row, rows(one), alone) for one in sections for row in rows(one)):
        lines.append(
            "matmul %: the best time of op=matmul on the same matrices over this one; overlap %: 0 as nccl, 100 if it "
            "took as long as the matmul alone or the link, whichever is longer"
        )
    if late := sorted({late_text(record) for record in records} - {""}):
        lines.append(f"{', '.join(late)}: a library without a time by the deadline (deadline_s); its note says why")
    if placed:
        narrow = "place: out of place or in place, as each contestant was called; ours/base compares the faster ones"
        lines.append(_places(judged) if is_wide else narrow)
    return [*lines, *_origins(records)]


def _bandwidths(timings: Sequence[Timing]) -> list[str]:
    """What bandwidths are of: an op's size, or what a custom kernel's description declares; nothing without either. Ops
    that multiply have no busbw."""
    of_ops = [timing for timing in timings if timing.moved_bytes is None]
    lines = []
    if of_ops:
        factors = [timing.bus_factor for timing in of_ops if timing.bus_factor]
        busbw = f", busbw = algbw * {_span(factors, '{:.4g}'.format)}" if factors else ""
        lines.append(f"algbw = size / time{busbw}, 1 GB = 10^9 bytes, as in nccl-tests")
    if declared := sorted({timing.moved_bytes for timing in timings if timing.moved_bytes}):
        lines.append(
            f"algbw and busbw of custom kernels: the bytes that custom.bytes declares ({_span(declared, size_text)}) / "
            "time, 1 GB = 10^9 bytes"
        )
    return lines


def refused_lines(sections: Sequence[Section]) -> list[str]:
    """Lines for each key for which cases were refused: who, at which sizes, why."""
    found = refusals.lines(record for section in sections for record in section.records)
    return [line for lines in found.values() for line in lines]


def limit_range(found: Sequence[Any]) -> str:
    """ "push 386.1, pull 369.0 GB/s", or from the lowest to the highest of several runs."""
    push = _span((limit.push_gbps for limit in found), lambda one: f"{one:.1f}")
    return f"push {push}, pull {_span((limit.pull_gbps for limit in found), lambda one: f'{one:.1f}')} GB/s"


def _places(judged: Sequence[Row]) -> str:
    """Who was called in place and who out of place, where no column says it."""
    names: dict[str, dict[str, None]] = {}
    for row in judged:
        if row.timings:
            place = place_text(row.placement)
            names.setdefault(place, {})[row.algorithm] = None
    return "; ".join(f"{place}: {', '.join(some)}" for place, some in sorted(names.items()))


def _cached(records: Sequence[Record]) -> list[str]:
    """What has to be said of the sizes at which rotating slots still fit in the L2 cache."""
    found = [(record, record.timing) for record in records if record.timing is not None]
    cached = [(record, timing) for record, timing in found if timing.l2 == "rotate" and timing.fits_l2]
    if not cached:
        return []
    largest = max(record.case.size_bytes for record, _ in cached)
    return [
        f"L2 rotate: up to {size_text(largest)} a contestant's slots fit in the L2 cache "
        f"({_span((timing.l2_bytes for _, timing in cached), size_text)}) together: calls may find their data there"
    ]


def _ratio_text(judged: Sequence[Row]) -> str:
    if all(row.ratio is None for row in judged):
        return ""
    return "; ours/base: the time of our best over that of the best baseline at this size, below 1 ours is faster"


def _origins(records: Sequence[Record]) -> list[str]:
    """Which machine, libraries and commits: so far as the records say it."""
    lines = []
    if devices := dict.fromkeys(filter(None, map(device_text, records))):
        fabrics = dict.fromkeys(record.fabric.name for record in records if record.fabric is not None)
        lines.append(f"device: {', '.join(devices)}; fabric: {', '.join(fabrics)}")
    if libraries := sorted({record.library for record in records} - {""}):
        lines.append(f"libraries: {', '.join(libraries)}")
    if chosen := sorted(set().union(*map(variables_set, records))):
        lines.append(f"set in the environment: {', '.join(chosen)}")
    if commits := sorted(set(map(commit_text, records)) - {""}):
        lines.append(f"symlab: {', '.join(commits)}")
    return lines


def variables_set(record: Record) -> set[str]:
    """Return the variables that tell the libraries what to do, and were set when it ran: ["NCCL_NVLS_ENABLE=0"]."""
    allowed = (record.environment.variables or {}).get("allowed")
    if not isinstance(allowed, dict):
        return set()
    return {
        f"{name}={value}"
        for name, value in allowed.items()
        if name.startswith(_SETTINGS) and not name.endswith("_VERSION")  # what an image says that it holds
    }


def _span(values: Iterable[Any], text: Any = str) -> str:
    """One value, or "lowest to highest"."""
    known = sorted(set(values))
    if not known:
        return "-"
    return str(text(known[0])) if len(known) == 1 else f"{text(known[0])} to {text(known[-1])}"


def _spanned(values: Iterable[int], noun: str) -> str:
    """A number of things, or "8 to 64 slots"."""
    known = sorted(set(values))
    return counted(known[0], noun) if len(known) == 1 else f"{_span(known)} {noun}s"


def _ran_in(rows: Sequence[Row]) -> str:
    """What several records of a case are: each command starts a world; within one, it may have been the same."""
    own = all(len({one.request.command for one in row.records}) == len(row.records) for row in rows)
    return "new worlds a case" if own else "runs a case, not each in a world of its own"


def _spread(row: Row) -> float:
    """How far its worlds' times lie apart, as a share of their median."""
    middle = row.figure("median_us")
    return (max(row.times_us) - min(row.times_us)) / middle if middle else 0.0


def _line(row: Row, numbers: dict[str, int], overlap: Overlap | None = None) -> Line:
    record, times = row.records[0], row.times_us
    note = refusals.note_of(record)
    remark = f" [{numbers[note]}]" if note in numbers else ""
    unchecked = " (unchecked)" if row.status is Status.PASSED and not record.verified else ""
    values = {
        "size (B)": row.size_bytes,
        "count": row.count,
        "type": record.case.dtype,
        "redop": record.case.reduction,
        "algorithm": row.algorithm,
        "place": _PLACES[record.case.placement],
        "status": f"{row.status}{unchecked}{remark}",
        **{column: row.figure(name) for column, name in _FIGURES.items()},
        "TFLOP/s": row.tflops,
        "matmul %": overlap and overlap.of_matmul,
        "overlap %": overlap and overlap.efficiency,
        "#wrong": row.wrong,
        "link %": row.figure("of_limit"),
        "ours/base": row.ratio,
        "worlds": len(times),
    }
    made = line_of(values, _FORMATS)
    cells = {
        **made.cells,
        "time (us)": f"{late_text(record) or made.cells['time (us)']} {BEST if row.best else ' '}",
        "#wrong": "N/A" if row.wrong is None else str(row.wrong),
        "ours/base": "" if row.ratio is None else made.cells["ours/base"],
    }
    if len(times) != 1:
        cells["worlds"] = f"{len(times)}: {time_text(min(times))}..{time_text(max(times))}" if times else "-"
    return Line(cells, _styles(row), made.raw)


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _styles(row: Row) -> dict[str, str]:
    styles = dict.fromkeys(("algorithm", "time (us)"), "bold green") if row.best else {}
    if row.ratio is not None:
        styles["ours/base"] = "green" if row.ratio <= 1 else "yellow"
    if row.status is not Status.PASSED:
        styles["status"] = "yellow" if row.records[0].is_late_library else "bold red"
    return styles | ({"#wrong": "bold red"} if row.wrong else {})


def _said(judged: Sequence[Row]) -> frozenset[str]:
    """Which of the optional columns say something."""
    told = {
        "place": len({row.placement for row in judged}) > 1,
        "status": any(row.status is not Status.PASSED or not row.records[0].verified for row in judged),
        "TFLOP/s": any(row.tflops is not None for row in judged),
        "link %": any(row.figure("of_limit") is not None for row in judged),
        "ours/base": any(row.ratio is not None for row in judged),
        "worlds": any(len(row.times_us) > 1 for row in judged),
    }
    assert {*told, *_OF_OVERLAP} == _OPTIONAL
    return frozenset(column for column, says in told.items() if says)


def _wide_cell(row: Row, numbers: dict[str, int]) -> str:
    time, bandwidth = row.figure("median_us"), row.figure("busbw_gbps")
    if time is None:
        note = refusals.note_of(row.records[0])
        said = late_text(row.records[0]) or str(row.status)
        return f"{said} [{numbers[note]}]" if note in numbers else said
    carried = "" if bandwidth is None else f" ({bandwidth:.1f})"
    return f"{time_text(time)}{carried}{BEST if row.best else ' '}"


def time_text(time_us: float) -> str:
    """Microseconds with about four digits."""
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.1f}" if time_us < 10000 else f"{time_us:.0f}"


_FORMATS: Formats = {
    **{column: time_text if name.endswith("_us") else "{:.2f}".format for column, name in _FIGURES.items()},
    **dict.fromkeys(("size (B)", "count"), str),
    "TFLOP/s": "{:.1f}".format,
    **dict.fromkeys((*_OF_OVERLAP, "link %"), _percent),
    "ours/base": "{:.2f}".format,
}


def _values(section: Section | None, row: Row) -> dict[str, Any]:
    record, times = row.records[0], row.times_us
    case, check, timing = record.case, record.check, record.timing
    values: dict[str, Any] = {"op": case.op, "dtype": case.dtype, "reduction": case.reduction}
    values |= {"world_size": case.world_size, "size_bytes": case.size_bytes}
    values |= {"root": case.root, "offset": case.offset}
    values |= {"counts": case.counts} if case.counts != UNIFORM else {}
    values |= {"gemm": list(case.gemm), "tflops": row.tflops} if case.gemm else {}
    values |= {"stress": case.stress} if case.stress != "none" else {}
    values |= {"accumulator": accumulator(record), "count": row.count, "inputs": case.inputs}
    values |= {"algorithm": row.algorithm, "placement": case.placement, "library": record.library}
    values |= {"status": str(row.status), "reason": reason_of(record), "verified": record.verified}
    values |= {"fabric": record.fabric.name if record.fabric else None, "device": device_text(record)}
    values |= {name: getattr(timing, name) if timing else None for name in ("mode", "window", "l2")}
    names = ("median_us", "min_us", "p95_us", "p99_us", "max_us", "algbw_gbps", "busbw_gbps", "of_limit")
    values |= {name: row.figure(name) for name in names}
    values |= {"best": row.best if timing else None, "ours_over_baseline": row.ratio, "worlds": len(row.records)}
    values |= {"median_us_lowest": min(times, default=None), "median_us_highest": max(times, default=None)}
    values |= {"wrong": row.wrong, "max_ulp_error": check.max_ulp_error if check else None}
    error = check.max_absolute_error if check else None
    values |= {"max_absolute_error": str(error) if error is not None and not math.isfinite(error) else error}
    return values | {"section": section.heading if section else None}
