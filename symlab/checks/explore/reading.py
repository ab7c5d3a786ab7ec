"""A trace as text: one line for each step that matters, folded where one actor goes on without touching what others
touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from symlab.checks.explore.trace import Row

MAX_LINES = 60
"""Maximum number of lines to print. JSON has all rows."""
AROUND = 12
"""Lines before and after each mark that are kept where there are more."""


def lines_of(rows: Sequence[Row], most: int = MAX_LINES) -> list[str]:
    """Return the lines: ">" at a switch, "!" at what went wrong, "~" at what did not take the newest store."""
    part = part_of(rows)
    shown = rows[part.start : part.stop]
    is_named = [len({getattr(one, name) for one in shown}) > 1 for name in ("launch", "kernel")]
    folded = [_line(one, *is_named) for one in _folded(shown)]
    before = [f"   .. {part.start} events of earlier launches"] if part.start else []
    rest = [f"   .. {len(rows) - part.stop} more events, to the end of the run"] if part.stop < len(rows) else []
    return before + _chosen(folded, most) + rest


def part_of(rows: Sequence[Row]) -> range:
    """The places of the rows that matter: of the first launch that an event is marked of, up to the last one that is
    marked. All, if none is."""
    marked = [number for number, one in enumerate(rows) if one.mark]
    if not marked:
        return range(len(rows))
    launch = min(rows[number].launch for number in marked)
    first = next(number for number, one in enumerate(rows) if one.launch >= launch)
    return range(min(first, marked[0]), marked[-1] + 1)


def switches_of(rows: Sequence[Row]) -> int:
    """The number of switches in the part that matters; the first row of it is none."""
    part = part_of(rows)
    return sum(rows[number].is_switch for number in part[1:])


def _chosen(folded: Sequence[Line], most: int) -> list[str]:
    """The lines, at most `most`: those around what went wrong."""
    if len(folded) <= most:
        return _aligned(folded)
    marked = [number for number, (sign, *_) in enumerate(folded) if "!" in sign] or [len(folded) - 1]
    around = AROUND
    kept = {0, len(folded) - 1}
    for number in marked:
        kept |= set(range(max(0, number - around), min(len(folded), number + around + 1)))
    shown = sorted(kept)[:most]
    lines = _aligned([folded[number] for number in shown])
    found = []
    before = -1
    for number, line in zip(shown, lines, strict=True):
        if number != before + 1:
            found.append(f"   .. {number - before - 1} more lines")
        found.append(line)
        before = number
    if before != len(folded) - 1:
        found.append(f"   .. {len(folded) - 1 - before} more lines")
    return found


@dataclass(slots=True)
class Folded:
    """The first of some rows, and their number. repeats: how often its thread read the same again, if it polls."""

    row: Row
    count: int = 1
    repeats: int = 0


def _folded(rows: Sequence[Row]) -> list[Folded]:
    found: list[Folded] = []
    polled: dict[object, Folded] = {}
    actor: object = None
    for one in rows:
        mine = (one.ranks, one.blocks, one.threads[0] // 32, one.threads[1] // 32, one.launch)
        if mine != actor or one.is_switch or one.kind not in ("load", "barrier", "fence"):
            polled = {}
        actor = mine
        key = (one.line, one.threads, one.lanes, one.tensor, one.element, one.value)
        if one.kind == "load" and not one.mark and key in polled:
            polled[key].repeats += 1
        elif _is_plain(one) and found and not one.is_switch and not polled and _goes_on(found[-1], mine):
            found[-1].count += 1
        else:
            found.append(Folded(one))
            if one.kind == "load" and one.is_shared and not one.mark:
                polled[key] = found[-1]
    return found


def _goes_on(before: Folded, actor: object) -> bool:
    """Whether a row of an actor can be folded into the line before."""
    one = before.row
    mine = (one.ranks, one.blocks, one.threads[0] // 32, one.threads[1] // 32, one.launch)
    return mine == actor and _is_plain(one)


def _is_plain(one: Row) -> bool:
    return not one.is_shared and not one.mark and not one.late and one.kind != "end"


Line = tuple[str, str, str, str, str]


def _line(folded: Folded, has_launches: bool, has_kernels: bool) -> Line:
    """has_launches, has_kernels: whether there are several, so that each line says its own."""
    one, count = folded.row, folded.count
    sign = (">" if one.is_switch else " ") + ("!" if one.mark else "~" if one.late else " ")
    if one.kind == "end":
        return sign, "", "", one.text, ""
    names = [f"launch {one.launch}"] * has_launches + [one.kernel.rpartition("/")[2]] * has_kernels
    who = ", ".join([*names, _who(one)])
    if count > 1:
        return sign, str(one.step), who, f"{count} steps that no other thread can see", ""
    where = f"PTX line {one.line}" if one.line else ""
    where += f", {one.source}" if one.source else ""
    again = f"{folded.repeats} times more" if folded.repeats else ""
    rest = "; ".join(part for part in (_memory(one), where, again, one.late, one.mark) if part)
    return sign, str(one.step), who, one.text, rest


def _memory(one: Row) -> str:
    if not one.tensor:
        return ""
    last = f"..{one.element + one.elements - 1}" if one.elements > 1 and one.lanes > 1 else ""
    owner = f" of rank {one.owner}" if one.owner >= 0 else "" if one.tensor == "shared memory" else " of all ranks"
    value = f" = {one.value}" if one.value else ""
    return f"{one.tensor}[{one.element}{last}]{owner}{value}"


def _who(one: Row) -> str:
    """ "rank 0, block 1, warp 2 (thread 64)"."""
    text = f"rank {_numbers(one.ranks)}, block {_numbers(one.blocks)}"
    warps = (one.threads[0] // 32, one.threads[1] // 32)
    text += f", warp {warps[0]}" + (f"-{warps[1]}" if warps[1] != warps[0] else "")
    threads = f"thread {one.threads[0]}" if one.lanes == 1 else f"{one.lanes} threads"
    return f"{text} ({threads})"


def _numbers(numbers: Sequence[int]) -> str:
    """ "0-3, 7" of ascending numbers."""
    runs = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(runs)


def _aligned(lines: Sequence[Line]) -> list[str]:
    """Columns as wide as their widest cell, but no wider than makes a line readable."""
    steps = max((len(line[1]) for line in lines), default=0)
    who = max((len(line[2]) for line in lines), default=0)
    what = min(max((len(line[3]) for line in lines if line[2]), default=0), 60)
    return [
        f"{sign} {step:>{steps}}  {actor:<{who}}  {text:<{what}}  {rest}".rstrip() if actor else f"{sign} {text}"
        for sign, step, actor, text, rest in lines
    ]
