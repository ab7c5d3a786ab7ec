"""Counters: the first listener. Accesses and bytes by kind, in total by link, and for each launch by phase.

Phases. A lane waits by looking at what other threads release: by strong loads of global memory (ld with acquire,
relaxed or volatile, not multimem) and by acquiring atomics (atom with acquire or acq_rel). Such an access belongs
to the phase that it ends: the next phase begins with the lane's next access of another kind, however often it had to
look. At a barrier (of a warp, a block or a cluster) a lane that has waited begins its next phase, too, and all lanes of
the unit go on in the latest phase that one of them is in; so the threads that a few others wait for are in step with
them. A phase of a rank's launch is what its lanes do in their phases of that number. In all_reduce/one_shot the wait of
the entry barrier ends phase 0, and phase 1 is the body with the exit barrier, whose wait ends it. Waits for mbarriers
end no phase: they are not for other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.observe.events import (
    MULTICAST_TARGET,
    Access,
    BarrierCompleted,
    CopyMoment,
    LaneCopyMoment,
    LaneEvent,
    LaunchBegan,
    LaunchEnded,
    Listener,
    Stepped,
)
from simulator.observe.lanes import Group, Ids, Launched, ids_of

KINDS = ("own_read", "own_write", "peer_read", "peer_write", "multicast_reduce", "multicast_store", "signal")
MAX_PHASES = 8
"""Phases of a launch that are told apart; the last one holds all that follow, too."""
MAX_FORMS = 3
"""Maximum number of different launches that a summary describes by phase; all others share an entry without phases."""
WARP = 32

_READS, _WRITES = ("own_read", "peer_read"), ("own_write", "peer_write")
_SIGNAL = frozenset({"acquire", "release", "acq_rel"})
_STRONG = frozenset({"acquire", "relaxed", "volatile"})
_ACQUIRES = frozenset({"acquire", "acq_rel"})

Own = bool | npt.NDArray[np.bool_]
"""Whether an access is to the own rank's memory: that of all lanes, or of each."""
Counts = dict[str, list[int]]
"""By kind: number of accesses, and bytes. What did not occur is left out."""


@dataclass(slots=True)
class PhaseCounts:
    """What lanes did in a phase: accesses, and apart from them the looks (waits) at the end of it."""

    accesses: Counts = field(default_factory=dict)
    waits: Counts = field(default_factory=dict)


@dataclass(slots=True)
class LaunchCounts:
    """The launches of one number, over all ranks that have begun it. phases: by number, up to MAX_PHASES."""

    ranks: set[int] = field(default_factory=set)
    instructions: int = 0
    phases: list[PhaseCounts] = field(default_factory=list)

    def phase(self, number: int) -> PhaseCounts:
        """Return the counts of a phase."""
        number = min(number, MAX_PHASES - 1)
        while len(self.phases) <= number:
            self.phases.append(PhaseCounts())
        return self.phases[number]

    @property
    def waits(self) -> int:
        """How often lanes looked at what they waited for, in all phases."""
        return sum(count for phase in self.phases for count, _ in phase.waits.values())


@dataclass(slots=True, eq=False)
class _Running:
    """Where the lanes of a launched kernel are. states: for each lane twice its phase, plus 1 once it has waited in it.

    counts: of the launch, None where its number differs between ranks. ranks: how many have not ended it.
    """

    launched: Launched
    counts: LaunchCounts | None
    states: npt.NDArray[np.int32] = field(init=False)
    ranks: int = field(init=False)

    def __post_init__(self) -> None:
        self.states = np.zeros(self.launched.lanes, np.int32)
        self.ranks = len(self.launched.ranks)

    def phases(self, lanes: Group, waits: bool) -> int | Ids:
        """Return the phase that an access of these lanes belongs to, one for all or one a lane, and move them on."""
        at = slice(lanes.start, lanes.stop) if isinstance(lanes, range) else lanes
        now = self.states[at]
        first = int(now[0])
        if bool((now == first).all()):
            after = first | 1 if waits else (first + 1) & ~1
            if after != first:
                self.states[at] = after
            return after >> 1
        later = now | 1 if waits else (now + 1) & ~1
        self.states[at] = later
        phases: Ids = later >> 1
        return phases

    def meet(self, lanes: Group, unit: str) -> None:
        """Lanes leave barriers of units: "warp", "block" or "cluster"."""
        at = slice(lanes.start, lanes.stop) if isinstance(lanes, range) else lanes
        now = self.states[at]
        first = int(now[0])
        if bool((now == first).all()):
            if first & 1:
                self.states[at] = first + 1
            return
        latest = (now + 1) & ~1
        if unit == "cluster":
            _, number = np.unique(self.launched.clusters_of(lanes), return_inverse=True)
            most = np.zeros(int(number.max()) + 1, latest.dtype)
            np.maximum.at(most, number, latest)
            self.states[at] = most[number]
            return
        width = WARP if unit == "warp" else self.launched.block
        blocks, threads = np.divmod(ids_of(lanes), self.launched.block)
        units = blocks * self.launched.block + threads // width
        starts = np.flatnonzero(np.concatenate([[True], units[1:] != units[:-1]]))
        most = np.maximum.reduceat(latest, starts)
        self.states[at] = np.repeat(most, np.diff([*starts, len(units)]))


class Counters(Listener):
    """What kernels did since reset().

    launches: by number of the launch, over all ranks. instructions are PTX instructions times lanes. A signal is an
    access with acquire or release order, or an atomic; a bulk copy or reduction is one access of its size, when it is
    issued, and so is what a lane's cp.async reads; shared memory is not counted. links[viewer, target]: bytes that rank
    viewer read from or wrote to target's memory. The switch is counted from the viewer's side: bytes reduced, and bytes
    stored, once.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.reset()

    def reset(self) -> None:
        self.links = np.zeros((self.world_size, self.world_size), np.int64)
        self.launches: dict[int, LaunchCounts] = {}
        self._running: dict[Launched, _Running] = {}

    # Events

    def launch_began(self, event: LaunchBegan) -> None:
        launched = event.launched
        for rank, number in zip(launched.ranks, launched.numbers, strict=True):
            self.launches.setdefault(number, LaunchCounts()).ranks.add(rank)
        is_one = len(set(launched.numbers)) == 1
        self._running[launched] = _Running(launched, self.launches[launched.numbers[0]] if is_one else None)

    def launch_ended(self, event: LaunchEnded) -> None:
        running = self._running[event.launched]
        running.ranks -= 1
        if not running.ranks:
            del self._running[event.launched]

    def stepped(self, event: Stepped) -> None:
        counts = self._running[event.launched].counts
        if counts is not None:
            counts.instructions += event.instructions * event.count
            return
        for number, lanes in zip(*np.unique(event.launches, return_counts=True), strict=True):
            self.launches[int(number)].instructions += event.instructions * int(lanes)

    def barrier_completed(self, event: BarrierCompleted) -> None:
        self._running[event.launched].meet(event.lanes, event.unit)

    def access(self, event: Access) -> None:
        words = event.instruction.qualifiers
        signal = not _SIGNAL.isdisjoint(words) or event.action in ("atomic", "red")
        waits = (event.action == "load" and not _STRONG.isdisjoint(words)) or (
            event.instruction.opcode == "atom" and not _ACQUIRES.isdisjoint(words)
        )
        if event.space == "multicast":
            kind = "signal" if signal else "multicast_reduce" if event.action == "reduce" else "multicast_store"
            self._count(event, (kind, kind), event.width_bytes, waits, True)
            return
        viewer, target = event.viewer, event.target
        if isinstance(viewer, int) and isinstance(target, int):
            own: Own = viewer == target
            self.links[viewer, target] += event.count * event.width_bytes
        else:
            own = np.equal(viewer, target)
            pairs = np.bincount(viewer * self.world_size + target, minlength=self.world_size**2)
            self.links += pairs.reshape(self.links.shape) * event.width_bytes
        kinds = ("signal", "signal") if signal else _READS if event.action == "load" else _WRITES
        self._count(event, kinds, event.width_bytes, waits, own)

    def copy(self, event: CopyMoment) -> None:
        if event.moment == "issued" and event.target == MULTICAST_TARGET:
            self._count(event, ("multicast_store", "multicast_store"), event.size_bytes, False, True)
        elif event.moment == "issued" and event.within < 0:
            viewer = int(event.ranks[0])
            self.links[viewer, event.target] += event.size_bytes
            kinds = _READS if event.is_load else _WRITES
            self._count(event, kinds, event.size_bytes, False, viewer == event.target)

    def lane_copy(self, event: LaneCopyMoment) -> None:
        if event.moment != "issued":
            return
        for size in np.unique(event.taken[event.taken > 0]).tolist():
            at = event.taken == size
            lanes, targets = ids_of(event.lanes)[at], event.targets[at]
            some = LaneEvent(event.launched, lanes, event.step)
            pairs = np.bincount(some.ranks * self.world_size + targets, minlength=self.world_size**2)
            self.links += pairs.reshape(self.links.shape) * size
            self._count(some, _READS, size, False, some.ranks == targets)

    def _count(self, event: LaneEvent, kinds: tuple[str, str], width_bytes: int, waits: bool, own: Own) -> None:
        """Count an access of each lane. kinds: what it is if it is to the own rank's memory (own), and if it is not."""
        running = self._running[event.launched]
        phases = running.phases(event.lanes, waits)
        if isinstance(phases, int) and running.counts is not None:
            phase = running.counts.phase(phases)
            _add(phase.waits if waits else phase.accesses, kinds, own, event.count, width_bytes)
            return
        places = np.stack([event.launches, np.broadcast_to(phases, event.count)])
        for number, one in np.unique(places, axis=1).T.tolist():
            mask = (places[0] == number) & (places[1] == one)
            phase = self.launches[number].phase(one)
            mine = own if isinstance(own, bool) else own[mask]
            _add(phase.waits if waits else phase.accesses, kinds, mine, int(np.count_nonzero(mask)), width_bytes)

    # What is said

    def summary(self) -> dict[str, Any]:
        """Return what was counted as plain values, of all launches that ranks have begun.

        instructions, accesses ({kind: {"count", "bytes"}}) and links ({"0->1": bytes}, between different ranks only)
        are sums over these launches; "of" says how many they are, and on how many ranks. "launches" has an entry for
        launches that did the same, but for how often they looked while they waited: their numbers, the ranks that ran
        them, the fewest and the most instructions and waits of one of them, over all ranks, and its accesses by phase,
        waits left out. Launches of more than MAX_FORMS kinds share a last entry, which has no phases.
        """
        links = {
            f"{viewer}->{target}": int(self.links[viewer, target])
            for viewer, target in np.argwhere(self.links > 0).tolist()
            if viewer != target
        }
        total: Counts = {kind: [0, 0] for kind in KINDS}
        ranks: set[int] = set()
        for launch in self.launches.values():
            ranks |= launch.ranks
            for counts in (one for phase in launch.phases for one in (phase.accesses, phase.waits)):
                for kind, (count, size) in counts.items():
                    total[kind][0] += count
                    total[kind][1] += size
        return {
            "instructions": sum(launch.instructions for launch in self.launches.values()),
            "accesses": _plain(total),
            "links": links,
            "of": {"launches": len(self.launches), "ranks": len(ranks)},
            "launches": self._forms(),
        }

    def _forms(self) -> list[dict[str, Any]]:
        forms: dict[str, list[int]] = {}
        for number, launch in sorted(self.launches.items()):
            form = repr((sorted(launch.ranks), [_plain(phase.accesses) for phase in launch.phases]))
            if form not in forms and len(forms) >= MAX_FORMS:
                form = ""
            forms.setdefault(form, []).append(number)
        return [self._entry(numbers, has_phases=bool(form)) for form, numbers in forms.items()]

    def _entry(self, numbers: list[int], has_phases: bool) -> dict[str, Any]:
        alike = [self.launches[number] for number in numbers]
        instructions, waits = [one.instructions for one in alike], [one.waits for one in alike]
        ranks: set[int] = set().union(*(one.ranks for one in alike))
        entry: dict[str, Any] = {
            "launches": spans(numbers),
            "ranks": spans(sorted(ranks)),
            "instructions": {"min": min(instructions), "max": max(instructions)},
            "waits": {"min": min(waits), "max": max(waits)},
        }
        return entry | ({"phases": [_plain(phase.accesses) for phase in alike[0].phases]} if has_phases else {})


def _add(counts: Counts, kinds: tuple[str, str], own: Own, lanes: int, width_bytes: int) -> None:
    """Count an access by the given number of lanes; kinds and own as in Counters._count."""
    mine = (lanes if own else 0) if isinstance(own, bool) else int(np.count_nonzero(own))
    for kind, number in zip(kinds, (mine, lanes - mine), strict=True):
        if number:
            found = counts.setdefault(kind, [0, 0])
            found[0] += number
            found[1] += number * width_bytes


def _plain(counts: Counts) -> dict[str, dict[str, int]]:
    return {kind: {"count": counts[kind][0], "bytes": counts[kind][1]} for kind in KINDS if kind in counts}


def spans(numbers: list[int]) -> str:
    """Return ascending numbers as text: "0-2, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
