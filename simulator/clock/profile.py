"""What the clock tells of a launch: its critical path, and what it moves in each phase."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simulator.clock.costs import KINDS


@dataclass(frozen=True, slots=True)
class Segment:
    """A step of the critical path.

    kind: of costs.KINDS. rank, block, warp: who took it; of a hop, who polled; of a barrier, who went on. from_us,
    to_us: since the launch began.
    """

    kind: str
    rank: int
    block: int
    warp: int
    from_us: float
    to_us: float


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
        """Number of steps by kind, what does not occur left out."""
        found = Counter(one.kind for one in self.segments)
        return {kind: found[kind] for kind in KINDS if found[kind]}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one rank moved to or from another's memory in a phase; looks of polls are not among them.

    viewer: the rank whose threads or copies asked; target: whose memory, -1 all replicas through the switch. action:
    "read", "write", "atomic", "reduce" (multimem.ld_reduce), "broadcast" (multimem.st), "switch_atomic" (multimem.red).
    how: "lanes", "bulk" or "lane_copies".
    """

    viewer: int
    target: int
    action: str
    how: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Distinct lines of 128 bytes of one rank's memory that anybody read or wrote in a phase."""

    rank: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What the ranks of a launch moved between two waits for other threads (simulator/clock/README.md says what ends
    a phase).

    traffic: by link and action. lines: by rank whose memory it is; switch_lines: read and written through the switch,
    of one replica.
    """

    traffic: tuple[Traffic, ...]
    lines: tuple[Lines, ...]
    switch_lines: tuple[int, int]

    def bytes(self, action: str, viewer: int | None = None, target: int | None = None) -> int:
        """Return the bytes of an action, by all ranks or one, of all ranks' memory or of one's."""
        return sum(
            one.bytes
            for one in self.traffic
            if one.action == action and viewer in (None, one.viewer) and target in (None, one.target)
        )


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """One launch, over all ranks that began it together.

    number: on the first rank, from 0. ends_us: by rank, when its last warp and copy was done; launches begin at 0 on
    all ranks.
    """

    kernel: str
    number: int
    ranks: tuple[int, ...]
    ends_us: tuple[float, ...]
    path: Path
    phases: tuple[Phase, ...]
