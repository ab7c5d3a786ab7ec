"""The clock: listens to a world's kernels and tells for each launch its critical path and what it moved.

Each warp has a time. A load's result is there a while after it was issued; what needs it waits (plan.py says what needs
which). A strong store leaves its step at the words that it writes, and a strong load that finds a step there goes on
when the store is over and has flown to it. Barriers let all go on when the last has come, fences take their time, and
bulk copies are steps of their own, for which mbarriers and groups wait. What a step waited for is kept, so that the
critical path is the way back from the last step of the launch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.clock.book import READ, WRITTEN, Book
from simulator.clock.costs import Costs
from simulator.clock.meetings import UNPLANNED, Meetings
from simulator.clock.path import path_of
from simulator.clock.plan import AccessPlan, Plan
from simulator.clock.profile import LaunchProfile
from simulator.clock.running import Best, Running, Spare, warps_per_block
from simulator.clock.steps import KIND, LONG_AGO, Warps
from simulator.memory.heaps import lazy_bytes
from simulator.memory.space import Space
from simulator.observe.events import (
    MULTICAST_TARGET,
    Access,
    Fence,
    LaunchBegan,
    LaunchEnded,
    Stepped,
)
from simulator.observe.lanes import Group
from simulator.run.decode import Program

WORD_BITS = 2
"""Steps are left at words of 4 bytes."""
_MAX_STAMP = 1 << 30
ANY = 0
"""The key of looks by any instruction."""
_ACQUIRES = frozenset({"acquire", "acq_rel"})
_ACTIONS = {
    "load": "read",
    "store": "write",
    "atomic": "atomic",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "red": "switch_atomic",
}


class Clock(Meetings):
    """Measures the launches that it listens to; profiles has those that are over, in the order in which they ended.

    It wants the fair order and strong memory: a poll that another order lets look late sees a store that came after the
    one that it waited for.
    """

    def __init__(self, space: Space, costs: Costs) -> None:
        super().__init__(space, costs)
        self.plans: dict[int, Plan] = {}
        self.profiles: list[LaunchProfile] = []
        self.program: Program | None = None
        self.spare = Spare()
        self.stamps: list[Any] = [None, None]  # by whether through the switch
        self.offset = 0  # what a step's number is more at words than in the table

    def forget(self) -> None:
        """Drop what was measured: a new program begins."""
        self.profiles.clear()
        self._rest()

    def expect(self, program: Program) -> None:
        """Prepare for the launch that begins next."""
        self.program = program
        if id(program) not in self.plans:
            self.plans[id(program)] = Plan(program)

    def _rest(self) -> None:
        """No launch is under way: forget all steps."""
        self.running.clear()
        self.order.clear()
        self.offset += self.steps.count
        self.steps.clear()
        self.ends.clear()
        self.first_warp = 0
        if self.offset > _MAX_STAMP:
            self.offset, self.stamps = 0, [None, None]

    # Launches and steps

    def launch_began(self, event: LaunchBegan) -> None:
        launched = event.launched
        assert self.program is not None
        per_block = warps_per_block(launched)
        warps = len(launched.ranks) * launched.grid * per_block
        space = self.space
        book = Book(warps, space.world_size, space.capacity, len(space.memory))
        run = Running(
            launched, self.plans[id(self.program)], book, self.first_warp, per_block, warps, self.spare.first_episode
        )
        self.first_warp += warps
        run.start(self.steps, self.ends)
        self.running[launched] = run
        self.order.append(run)

    def launch_ended(self, event: LaunchEnded) -> None:
        run = self.running[event.launched]
        self.settle(run)
        place = run.launched.ranks.index(event.rank)
        warps = np.arange(place * run.warps_of_rank, (place + 1) * run.warps_of_rank)
        slowest = run.latest(warps)
        best = run.ends[event.rank] = Best(float(run.clock[slowest]), int(run.last[slowest]))
        copies = run.last_copies.get(event.rank, Best())
        best.raise_to(copies.time, copies.row)
        self.ends[event.rank] = (best.time, best.row)
        if len(run.ends) == len(run.launched.ranks):
            self.profiles.append(self._profile(run))
            del self.running[event.launched]
            self.spare.give(run)
            if not self.running:
                self._rest()

    def _profile(self, run: Running) -> LaunchProfile:
        launched = run.launched
        last = max(run.ends.values(), key=lambda one: one.time)
        tops = [spans[-1][1] if spans else 0 for spans in self.space.spans]
        return LaunchProfile(
            launched.kernel,
            launched.numbers[0],
            launched.ranks,
            tuple(run.ends[rank].time - run.began_us for rank in launched.ranks),
            path_of(self, run, last.row),
            run.book.phases(tops),
        )

    def stepped(self, event: Stepped) -> None:
        run = self.running[event.launched]
        self.settle(run)
        run.block = run.plan.blocks[event.basic_block]
        run.step_lanes = event.lanes
        run.begin_step(self.warps_of(run, event.lanes))

    # Accesses

    def access(self, event: Access) -> None:
        run = self.running[event.launched]
        warps = self.warps_of(run, event.lanes)
        instruction, action = event.instruction, event.action
        plan = run.block.accesses.get(id(instruction), UNPLANNED)
        is_look = plan.strong and (
            action == "load" or (instruction.opcode == "atom" and not _ACQUIRES.isdisjoint(instruction.qualifiers))
        )
        phase = run.book.enter(warps, is_look)
        self._count(run, warps, phase, event, is_look)
        if action == "load" and plan.strong:
            self._look(run, warps, event, plan)
            return
        self._go_further(run, event.lanes)
        if action in ("load", "reduce"):
            self._load(run, warps, event, plan)
        elif plan.strong:
            self._store(run, warps, event, plan)
        else:
            self._note_stores(run, warps, event)

    def _count(self, run: Running, warps: Warps, phase: Any, event: Access, is_look: bool) -> None:
        if is_look and event.action == "load":
            return
        book = run.book
        is_switch = event.target is not None and event.space == "multicast"
        viewer, target = event.viewer, MULTICAST_TARGET if is_switch else event.target
        book.move(phase, warps, viewer, target, (_ACTIONS[event.action], "lanes"), event.width_bytes)
        assert event.index is not None
        reads = event.action in ("load", "reduce")
        way = (READ if reads else WRITTEN, is_switch)
        book.touch(phase, warps, event.index, event.width_bytes, event.is_affine, way)

    def _go_further(self, run: Running, lanes: Group) -> None:
        """Lanes do something else than to look."""
        if run.seen:
            run.episode[slice(lanes.start, lanes.stop) if isinstance(lanes, range) else lanes] += 1

    def _kinds(self, event: Access, warps: Warps, own: str, remote: str) -> Any:
        """The kind of a step, one for all warps or one a warp: remote where one of its lanes goes to another rank."""
        if event.space == "multicast":
            return KIND["switch_load"]
        return np.where(self._are_remote(event, warps), KIND[remote], KIND[own])

    def _are_remote(self, event: Access, warps: Warps) -> Any:
        """Whether lanes go to another rank, one answer for all warps or one a warp."""
        if isinstance(event.viewer, int) and isinstance(event.target, int):
            return event.viewer != event.target
        return warps.any(np.broadcast_to(np.not_equal(event.viewer, event.target), len(event.lanes)))

    def _load(self, run: Running, warps: Warps, event: Access, plan: AccessPlan) -> None:
        """A weak load, or one through the switch."""
        time, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        kind = self._kinds(event, warps, "own_load", "remote_load")
        time = time + self.cost[kind]
        run.fenced[warps.at] = False
        is_late = plan.used and bool((time > run.best_time[warps.at]).any())
        if plan.number < 0 and not plan.registers and not is_late:
            return
        self._under_way(run, warps, time, self.add(run, warps.numbers, time, before, kind), plan)

    def _under_way(self, run: Running, warps: Warps, time: Any, rows: Any, plan: AccessPlan) -> None:
        """Steps whose results come later."""
        if plan.number >= 0:
            run.set_ready(plan.number, warps, rows)
        if plan.used:
            run.await_rows(warps, time, rows)
        for register in plan.registers:
            run.set_held(register, warps, rows)

    def _note_stores(self, run: Running, warps: Warps, event: Access) -> None:
        """Stores are outstanding until a fence."""
        run.fenced[warps.at] = False
        run.outstanding[warps.at] |= event.space == "multicast" or self._are_remote(event, warps)

    def _store(self, run: Running, warps: Warps, event: Access, plan: AccessPlan) -> None:
        """A strong store, an atomic operation, or one through the switch: others may look for it."""
        if event.order in ("release", "acq_rel", "sc"):
            self._fence(run, warps, event.scope, plan)
        time, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        is_switch = event.space == "multicast"
        kind = KIND["switch_store" if is_switch else "store"]
        time = time + self.cost[kind]
        rows = self.add(run, warps.numbers, time, before, kind)
        self._stamp(self._words(is_switch), warps, event, rows, merges=event.action in ("atomic", "red"))
        self._note_stores(run, warps, event)
        if event.instruction.opcode == "atom":
            self._fetch(run, warps, event, plan)

    def _fetch(self, run: Running, warps: Warps, event: Access, plan: AccessPlan) -> None:
        """The result of an atomic operation comes after those at the same word before it."""
        kind = self._kinds(event, warps, "own_atomic", "remote_atomic")
        found, row, _ = self._found(run, warps, event, flies=False)
        time, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        later = found > time
        time, before = np.where(later, found, time) + self.cost[kind], np.where(later, row, before)
        self._under_way(run, warps, time, self.add(run, warps.numbers, time, before, kind), plan)

    # Words

    def _words(self, is_switch: bool) -> Any:
        """The steps left at words, or through the switch at those of rank 0's replica."""
        if self.stamps[is_switch] is None:
            size = self.space.capacity if is_switch else len(self.space.memory)
            self.stamps[is_switch] = lazy_bytes((size >> WORD_BITS << 2) + 64).view(np.int32)
        return self.stamps[is_switch]

    def _stamp(self, words: Any, warps: Warps, event: Access, rows: Any, merges: bool) -> None:
        """Leave steps at the words that lanes write. merges: a word keeps the step that is over last."""
        index, width = event.index, max(event.width_bytes >> WORD_BITS, 1)
        assert index is not None
        if event.is_affine and not merges:
            first = int(index[0]) >> WORD_BITS
            words[first : first + width * warps.lanes] = np.repeat(rows + self.offset, warps.sizes * width)
            return
        stamps = warps.spread(rows) + self.offset
        if merges:
            at = index >> WORD_BITS
            times = self.steps.time
            was = words[at] - self.offset
            order = np.argsort(times[stamps - self.offset], kind="stable")
            newer = times[stamps - self.offset] >= np.where(was > 0, times[np.maximum(was, 0)], LONG_AGO)
            order = order[newer[order]]
            for word in range(width):
                words[at[order] + word] = stamps[order]
        else:
            at = index >> WORD_BITS
            for word in range(width):
                words[at + word] = stamps

    def _found(self, run: Running, warps: Warps, event: Access, flies: bool) -> tuple[Any, Any, Any]:
        """What lanes find at the words that they read: by warp the step that arrives last, when, and its kind.

        flies: with the time from the store to the look; else when the store was over. Step 0 and LONG_AGO: nothing.
        """
        assert event.index is not None
        width = max(event.width_bytes >> WORD_BITS, 1)
        rows = self._latest(self._words(False), event.index >> WORD_BITS, width)
        if self.stamps[True] is not None:
            at = event.index % self.space.capacity >> WORD_BITS
            rows = self._later(rows, self._latest(self._words(True), at, width))
        first = warps.first(rows)
        if (warps.spread(first) == rows).all():
            kinds = self._hops(run, warps.numbers, first)
            return self._arrival(first, kinds, flies), first, kinds
        kinds = self._hops(run, warps.spread(warps.numbers), rows)
        times = self._arrival(rows, kinds, flies)
        most = warps.most(times)
        latest = warps.most(np.where(times == warps.spread(most), rows, 0))
        return most, latest, self._hops(run, warps.numbers, latest)

    def _latest(self, words: Any, at: Any, width: int) -> Any:
        """The latest step at the words of each lane, 0 where there is none of a launch that is under way."""
        found = words[at]
        for word in range(1, width):
            other = words[at + word]
            if not (other == found).all():
                found = (
                    self._later(np.maximum(found - self.offset, 0), np.maximum(other - self.offset, 0)) + self.offset
                )
        return np.maximum(found - self.offset, 0)

    def _later(self, rows: Any, others: Any) -> Any:
        return np.where(self.steps.time[others] > self.steps.time[rows], others, rows)

    def _arrival(self, rows: Any, kinds: Any, flies: bool) -> Any:
        time = self.steps.time[rows]
        return np.where(rows > 0, time + self.cost[kinds], LONG_AGO) if flies else time

    # Looks

    def _look(self, run: Running, warps: Warps, event: Access, plan: AccessPlan) -> None:
        """A strong load, which may be one of many in a loop that waits: only the first one takes its time."""
        start, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        since = warps.most(self._since(run, warps, event, start))
        kind = self._kinds(event, warps, "look", "remote_load")
        time = since + self.cost[kind]
        then, row, hops = self._found(run, warps, event, flies=True)
        late = then > time
        if late.any():
            time, before, kind = np.where(late, then, time), np.where(late, row, before), np.where(late, hops, kind)
        if plan.number < 0 and not plan.registers and not (time > run.clock[warps.at]).any():
            return
        self._under_way(run, warps, time, self.add(run, warps.numbers, time, before, kind), plan)

    def _since(self, run: Running, warps: Warps, event: Access, start: Any) -> Any:
        """When each lane began to look there: by this instruction, or as what it did last."""
        keys = (id(event.instruction), ANY)
        lanes, index = event.lanes, event.index
        assert index is not None
        at = slice(lanes.start, lanes.stop) if isinstance(lanes, range) else lanes
        since, episode = warps.spread(start), run.episode[at]
        by = [run.seen.get(key) or run.seen.setdefault(key, self.spare.take(run.launched.lanes)) for key in keys]
        for one in by:
            again = (one.index[at] == index) & (one.episode[at] == episode)
            since = np.where(again, one.since[at], since)
        for one in by:
            one.index[at], one.episode[at], one.since[at] = index, episode, since
        return since

    def _hops(self, run: Running, warps: Any, rows: Any) -> Any:
        """The kinds of steps from stores to the looks of warps."""
        mine = np.array(run.launched.ranks, np.int64)[warps // run.warps_of_rank]
        stored = self.ranks_of(self.steps.warp[rows])
        is_switch = self.steps.kind[rows] == KIND["switch_store"]
        return np.where(is_switch, KIND["switch_hop"], np.where(mine == stored, KIND["own_hop"], KIND["hop"]))

    # Fences

    def fence(self, event: Fence) -> None:
        run = self.running[event.launched]
        if event.kind != "thread":
            return
        plan = run.block.accesses.get(id(event.instruction), UNPLANNED)
        self._fence(run, self.warps_of(run, event.lanes), event.scope, plan)

    def _fence(self, run: Running, warps: Warps, scope: str, plan: AccessPlan) -> None:
        """Warps go on when what they did is visible; at once, if they did nothing since the fence before."""
        time, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        if scope in ("cta", "cluster"):
            time = time + self.costs.block_fence
            rows = self.add(run, warps.numbers, time, before, KIND["block_fence"])
            run.go_on(warps.at, time, rows)
            return
        fenced = run.fenced[warps.at]
        if fenced.all():
            return
        blocks = np.unique(warps.numbers // run.per_block)
        by_block = run.outstanding.reshape(-1, run.per_block)
        has_stored: Any = by_block.any(axis=1)
        by_block[blocks] = False
        kind = np.where(has_stored[warps.numbers // run.per_block], KIND["fence_after_stores"], KIND["fence"])
        time = time + np.where(fenced, 0.0, self.cost[kind])
        rows = self.add(run, warps.numbers, time, before, kind)
        run.go_on(warps.at, time, rows)
        run.fenced[warps.at] = True
