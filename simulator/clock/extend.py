"""Counts at sizes that are not worth simulating, from sizes of the same launch that were.

With grid and block fixed, the number of units of a thread grows with the message, and what it does for each unit is the
same: every count is a constant and a part for each unit, a line in the message's bytes. The line goes through two
simulated sizes, and must give the counts of a third, larger one; only then it goes on to the size that is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile, Lines, Phase, Traffic

TOLERANCE = 0.02
"""How far the held-out size's counts may be from the line, relative to the count, and at least a step."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model reads of a launch, simulated or extended.

    counts: of the critical path's steps, by kind. clock_us: by the costs that the clock ran with. simulated: the sizes
    that it comes from, of a simulated launch its own one.
    """

    kernel: str
    ranks: tuple[int, ...]
    grid: int
    block: int
    size_bytes: int
    costs: Costs
    clock_us: float
    counts: dict[str, int]
    phases: tuple[Phase, ...]
    simulated: tuple[int, ...]

    def weigh(self, costs: Costs) -> float:
        """Return the path's microseconds by other costs, as Path.weigh."""
        weights = costs.document()
        return sum(number * weights[kind] for kind, number in self.counts.items())


def summary_of(size_bytes: int, one: LaunchProfile) -> Summary:
    """Return the summary of a simulated launch of a message of size_bytes."""
    shape = (one.kernel, one.ranks, one.grid, one.block)
    return Summary(*shape, size_bytes, one.costs, one.clock_us, one.path.counts, one.phases, (size_bytes,))


def extended(simulated: Mapping[int, LaunchProfile], size_bytes: int) -> Summary:
    """Return what a launch of size_bytes does, from launches of other sizes by their bytes: three or more.

    Raises ValueError if they have different shapes (kernel, ranks, grid, block, number of phases), if size_bytes is not
    above all of them, or if the line through the first and the second size misses what a third one counts.
    """
    sizes = sorted(simulated)
    if len(sizes) < 3:
        raise ValueError(f"simulated has {len(sizes)} sizes; to extend and to check takes 3 or more")
    if size_bytes <= sizes[-1]:
        raise ValueError(f"size_bytes is {size_bytes:,}; it must be above the simulated {sizes[-1]:,}")
    summaries = [summary_of(size, simulated[size]) for size in sizes]
    first = summaries[0]
    for one in summaries[1:]:
        _check_shape(first, one)
    for held_out in summaries[2:]:
        line = _on_line(first, summaries[1], held_out.size_bytes)
        _check_counts(line, held_out)
    made = _on_line(first, summaries[-1], size_bytes)
    return replace(made, simulated=tuple(sizes))


def _check_shape(one: Summary, other: Summary) -> None:
    for name in ("kernel", "ranks", "grid", "block", "costs"):
        if getattr(one, name) != getattr(other, name):
            raise ValueError(
                f"{name} is {getattr(one, name)} at {one.size_bytes:,} bytes and {getattr(other, name)} at "
                f"{other.size_bytes:,}: the launches must have one shape"
            )
    if len(one.phases) != len(other.phases):
        raise ValueError(
            f"there are {len(one.phases)} phases at {one.size_bytes:,} bytes and {len(other.phases)} at "
            f"{other.size_bytes:,}: the launches must have one shape"
        )


def _check_counts(line: Summary, held_out: Summary) -> None:
    """Raise ValueError for the first count of a held-out size that is not on the line."""
    expected, found = _numbers(line), _numbers(held_out)
    for name in sorted(expected.keys() | found.keys()):
        one, other = expected.get(name, 0.0), found.get(name, 0.0)
        if abs(one - other) > max(TOLERANCE * abs(other), 1.0 if name != "clock_us" else 0.0):
            raise ValueError(
                f"{held_out.kernel}: {name} is {other:,g} at {held_out.size_bytes:,} bytes, the line through the "
                f"sizes below gives {one:,g}: it can't be extended from these sizes"
            )


def _numbers(one: Summary) -> dict[str, float]:
    """All counts of a summary by name."""
    found = {"clock_us": one.clock_us, **{f"path's {kind}": float(number) for kind, number in one.counts.items()}}
    for phase in one.phases:
        head = f"phase {phase.number}'s"
        for each in phase.traffic:
            key = f"{each.how} {each.action} {each.viewer}->{each.target}"
            found[f"{head} bytes of {key}"] = float(each.bytes)
            found[f"{head} accesses of {key}"] = float(each.accesses)
        for name in _LINEAR:
            found[f"{head} {name}"] = float(getattr(phase, name))
        for lines in phase.lines:
            found[f"{head} lines of rank {lines.rank}"] = float(lines.read + lines.written)
    return found


_LINEAR = ("busiest_block_bytes", "busiest_block_accesses", "instructions", "total_instructions", "loads_in_flight")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line through two sizes. part: how far from the first the wanted size is, in distances between the two."""

    part: float

    def number(self, one: float, other: float) -> float:
        return one + self.part * (other - one)

    def count(self, one: int, other: int) -> int:
        return max(round(self.number(one, other)), 0)

    def counts(self, one: Any, other: Any, names: tuple[str, ...]) -> dict[str, Any]:
        """Fields of two objects."""
        return {name: self.count(getattr(one, name), getattr(other, name)) for name in names}


def _on_line(low: Summary, high: Summary, size_bytes: int) -> Summary:
    """The summary on the line through two others."""
    line = _Line((size_bytes - low.size_bytes) / (high.size_bytes - low.size_bytes))
    kinds = dict.fromkeys((*low.counts, *high.counts))
    return replace(
        high,
        size_bytes=size_bytes,
        clock_us=line.number(low.clock_us, high.clock_us),
        counts={kind: line.count(low.counts.get(kind, 0), high.counts.get(kind, 0)) for kind in kinds},
        phases=tuple(_phase_on(line, one, other) for one, other in zip(low.phases, high.phases, strict=True)),
    )


def _phase_on(line: _Line, one: Phase, other: Phase) -> Phase:
    mine, its = ({_link(each): each for each in phase.traffic} for phase in (one, other))
    traffic = []
    for key, each in sorted((mine | its).items()):
        nothing = replace(each, bytes=0, accesses=0)
        ends = (mine.get(key, nothing), its.get(key, nothing))
        traffic.append(replace(each, **line.counts(*ends, ("bytes", "accesses"))))
    own = {each.rank: each for each in one.lines}
    lines = [(own.get(each.rank, Lines(each.rank, 0, 0)), each) for each in other.lines]
    switch = [line.count(a, b) for a, b in zip(one.switch_lines, other.switch_lines, strict=True)]
    sizes = {size: line.count(one.copies.sizes.get(size, 0), count) for size, count in other.copies.sizes.items()}
    return replace(
        other,
        from_us=line.number(one.from_us, other.from_us),
        to_us=line.number(one.to_us, other.to_us),
        traffic=tuple(traffic),
        lines=tuple(replace(b, **line.counts(a, b, ("read", "written"))) for a, b in lines),
        switch_lines=(switch[0], switch[1]),
        copies=replace(other.copies, sizes=sizes, **line.counts(one.copies, other.copies, ("loads", "stores"))),
        **line.counts(one, other, _LINEAR),
    )


def _link(one: Traffic) -> tuple[int, int, str, str]:
    return (one.viewer, one.target, one.action, one.how)
