"""What the clock tells of a launch: its critical path, its phases, and their form as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from simulator.clock.costs import KINDS, Costs

FORM = 1
"""The number of the JSON form."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A step of the critical path.

    kind: of costs.KINDS, "instruction" excepted. rank, block, warp: who took it; of a hop, who polled; of a barrier,
    who went on. from_us, to_us: since the launch began. instructions: that were issued since the segment before; of a
    barrier, by who came last. outstanding: stores to other ranks before a fence, by lanes of its block. line: of the
    PTX; source: the Python line, "" if unknown; text: the instruction. awaited: whom it waited for, as rank, block,
    warp and PTX line: of a hop the store, of a barrier the last step of who came last.
    """

    kind: str
    rank: int
    block: int
    warp: int
    from_us: float
    to_us: float
    instructions: int = 0
    outstanding: int = 0
    line: int = 0
    source: str = ""
    text: str = ""
    awaited: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The longest chain of steps from the beginning of a launch to its end, where each waits for the one before.

    segments: in the order of time, back to back.
    """

    segments: tuple[Segment, ...]

    @property
    def total_us(self) -> float:
        """How long it takes by the costs that the clock ran with."""
        return self.segments[-1].to_us if self.segments else 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Number of steps by kind, what does not occur left out; under "instruction" those issued on the path."""
        found = Counter(one.kind for one in self.segments if one.kind in KINDS)
        found["instruction"] = sum(one.instructions for one in self.segments)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def weigh(self, costs: Costs) -> float:
        """Return the path's microseconds by other costs: the counts of this path weighed anew. By the costs that the
        clock ran with it is total_us; by others another chain may be longer, so it is a lower bound of what a clock
        with these costs would find."""
        weights = costs.document()
        return sum(count * weights[kind] for kind, count in self.counts.items())


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one rank moved to or from another's memory in a phase.

    viewer: the rank whose threads or copies asked; target: whose memory, -1 all replicas through the switch. action:
    "read", "write", "atomic", "reduce" (multimem.ld_reduce), "broadcast" (multimem.st), "switch_atomic" (multimem.red).
    how: "lanes", "bulk" or "lane_copies". accesses: by lanes, or copies; looks of polls are not among them
    (Phase.looks).
    """

    viewer: int
    target: int
    action: str
    how: str
    bytes: int
    accesses: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Distinct lines of 128 bytes of one rank's memory that anybody read or wrote in a phase."""

    rank: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Bulk copies of a phase: their number by size, the most that one block had under way at a time by the clock
    (stages), and how many loads and stores of global memory they are."""

    sizes: dict[int, int]
    stages: int
    loads: int
    stores: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What the ranks of a launch did between two waits for other threads (simulator/observe/counters.py says what ends
    a phase).

    from_us, to_us: when its first access began, and the last step in it was over, by the clock. traffic: by link and
    action. busiest_block: bytes that the busiest block read and wrote, and its accesses. loads_in_flight: of a thread,
    the most and the mean number of global loads that it issued before it needed one of them. bytes_in_flight: the most
    bytes of such loads. instructions: of the busiest warp, without those of loops that only wait; total_instructions:
    of all warps. looks: how often warps looked at what they waited for: it depends on the order in which the simulator
    ran. lines: by rank whose memory it is; switch_lines: read and written through the switch, of one replica.
    """

    number: int
    from_us: float
    to_us: float
    traffic: tuple[Traffic, ...]
    busiest_block_bytes: int
    busiest_block_accesses: int
    loads_in_flight: int
    mean_loads_in_flight: float
    bytes_in_flight: int
    instructions: int
    total_instructions: int
    looks: int
    lines: tuple[Lines, ...]
    switch_lines: tuple[int, int]
    copies: Copies

    def bytes(self, action: str, viewer: int | None = None, target: int | None = None) -> int:
        """Return the bytes of an action, by all ranks or one, of all ranks' memory or of one's."""
        return sum(
            one.bytes
            for one in self.traffic
            if one.action == action and viewer in (None, one.viewer) and target in (None, one.target)
        )

    def links(self) -> dict[tuple[int, int], int]:
        """Return bytes over links between ranks by (from, to), the way that payload flows: of a read from its target
        to its viewer, of a write from its viewer to its target. Of the switch: from and to rank -1."""
        found: dict[tuple[int, int], int] = {}
        for one in self.traffic:
            if one.viewer == one.target:
                continue
            inward = one.action in ("read", "reduce")
            way = (one.target, one.viewer) if inward else (one.viewer, one.target)
            found[way] = found.get(way, 0) + one.bytes
        return found


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the timeline of a block, by one of its warps; its fields as in Segment. from_us: when the warp's step
    before was over. stored_us: when what it awaited was over, None if it awaited no other warp."""

    rank: int
    block: int
    warp: int
    kind: str
    from_us: float
    to_us: float
    line: int = 0
    text: str = ""
    awaited: tuple[int, int, int, int] | None = None
    stored_us: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """One launch, over all ranks that began it together.

    number: on the first rank, from 0. grid, block: number of blocks of a rank, of threads of a block. ends_us: by rank,
    when its last warp and copy was done; launches begin at 0 on all ranks. spans: the timeline of its blocks, () unless
    the clock was asked to keep it; it is not part of the JSON form.
    """

    kernel: str
    number: int
    ranks: tuple[int, ...]
    grid: int
    block: int
    costs: Costs
    ends_us: tuple[float, ...]
    path: Path
    phases: tuple[Phase, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)

    @property
    def clock_us(self) -> float:
        """How long the critical path is."""
        return self.path.total_us

    def bytes(self, action: str, viewer: int | None = None, target: int | None = None) -> int:
        """Return bytes of all phases, as Phase.bytes."""
        return sum(one.bytes(action, viewer, target) for one in self.phases)

    def document(self) -> dict[str, Any]:
        """Return the JSON form: plain values, keys that stay."""
        document = {name: value for name, value in asdict(self).items() if name != "spans"}
        document["costs"] = self.costs.document()
        return {"form": FORM, "clock_us": self.clock_us, "counts": self.path.counts, **_plain(document)}

    @staticmethod
    def of(document: Mapping[str, Any]) -> LaunchProfile:
        """Return the profile of a JSON form. Raises ValueError for one of another form."""
        if document.get("form") != FORM:
            raise ValueError(f"the profile has form {document.get('form')!r}; this version reads form {FORM}")
        return LaunchProfile(
            document["kernel"],
            document["number"],
            tuple(document["ranks"]),
            document["grid"],
            document["block"],
            Costs.of(document["costs"]),
            tuple(document["ends_us"]),
            Path(tuple(_segment(one) for one in document["path"]["segments"])),
            tuple(_phase(one) for one in document["phases"]),
        )


def _plain(value: Any) -> Any:
    """Tuples as lists, keys as text."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _segment(one: Mapping[str, Any]) -> Segment:
    awaited = one["awaited"]
    return Segment(**{**one, "awaited": None if awaited is None else tuple(awaited)})


def _phase(one: Mapping[str, Any]) -> Phase:
    copies = one["copies"]
    sizes = {int(size): number for size, number in copies["sizes"].items()}
    return Phase(
        **{
            **one,
            "traffic": tuple(Traffic(**each) for each in one["traffic"]),
            "lines": tuple(Lines(**each) for each in one["lines"]),
            "switch_lines": tuple(one["switch_lines"]),
            "copies": Copies(**{**copies, "sizes": sizes}),
        }
    )
