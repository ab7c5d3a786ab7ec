"""Where warps wait for others of their own GPU: barriers, mbarriers, bulk copies and copies by lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.clock.plan import AccessPlan
from simulator.clock.running import Best, Running
from simulator.clock.steps import KIND, Warps
from simulator.clock.timer import Timer
from simulator.observe.events import (
    MULTICAST_TARGET,
    BarrierArrived,
    BarrierCompleted,
    CopiesAwaited,
    CopyMoment,
    LaneCopyMoment,
    MbarrierOperation,
    meetings_of,
)
from simulator.observe.lanes import Ids, ids_of

_ARRIVALS = frozenset({"arrive", "arrive_drop"})
_WAITS = frozenset({"try_wait", "test_wait"})
UNPLANNED = AccessPlan((), (), -1, True, (), False)


class Meetings(Timer):
    """Barriers and copies."""

    # Barriers

    def barrier_arrived(self, event: BarrierArrived) -> None:
        run = self.running[event.launched]
        self.settle(run)
        for key, lanes in meetings_of(event):
            self._come(run, key, Warps(lanes, run.launched.block).numbers)

    def _come(self, run: Running, key: tuple[str, int, int], warps: Ids) -> None:
        slowest = run.latest(warps)
        best = run.meetings.setdefault(key, Best())
        if run.clock[slowest] > best.time:
            best.raise_to(float(run.clock[slowest]), slowest)
            best.step = int(run.last[slowest])

    def barrier_completed(self, event: BarrierCompleted) -> None:
        run = self.running[event.launched]
        self.settle(run)
        if event.unit == "block" and event.numbers is None:
            self._meet_blocks(run, Warps(event.lanes, run.launched.block))
        for key, lanes in meetings_of(event):
            warps = Warps(lanes, run.launched.block).numbers
            if event.unit == "cluster":  # others may have to wait for this phase still, and none for the one before
                run.meetings.pop((*key[:2], key[2] - 1), None)
                self._let_go(run, warps, run.meetings[key], "cluster_barrier")
            else:
                self._let_go(run, warps, run.meetings.pop(key, Best()), "barrier")
            run.book.meet(warps[None])

    def _meet_blocks(self, run: Running, warps: Warps) -> None:
        """Whole blocks go on when their last warp has come."""
        units = warps.numbers
        blocks = np.unique(units // run.per_block)
        if len(units) != len(blocks) * run.per_block:  # some of their warps have returned
            for block in blocks.tolist():
                mine = units[units // run.per_block == block]
                self._meet_units(run, mine[None])
            return
        self._meet_units(run, units.reshape(len(blocks), run.per_block))

    def _meet_units(self, run: Running, units: Any) -> None:
        """Warps go on together, those of each row."""
        slowest = units[np.arange(len(units)), run.clock[units].argmax(axis=1)]
        run.book.meet(units)
        each = np.repeat(slowest, units.shape[1])
        self._leave(run, units.reshape(-1), run.clock[each], run.last[each], "barrier")

    def _let_go(self, run: Running, warps: Ids, best: Best, kind: str) -> None:
        """Warps go on when the last of those that arrived has come. best: of those that did not wait, whose row is a
        warp."""
        own = run.latest(warps)
        slowest = best.row if best.time > run.clock[own] else own
        before = run.last[slowest] if best.time <= run.clock[own] else best.step
        time = np.full(len(warps), max(best.time, float(run.clock[own])))
        self._leave(run, warps, time, np.full(len(warps), before), kind)

    def _leave(self, run: Running, warps: Ids, time: Any, before: Any, kind: str) -> None:
        """Warps go on from a barrier, each with a step of its own; before: of the one that came last."""
        self._wait_for(run, warps, time, before, kind)
        run.fenced[warps] = False

    # Mbarriers

    def mbarrier(self, event: MbarrierOperation) -> None:
        run = self.running[event.launched]
        lanes = ids_of(event.lanes)
        blocks = run.launched.owners_of(lanes, event.target_blocks)
        plan = run.block.accesses.get(id(event.instruction), UNPLANNED)
        if event.operation in _ARRIVALS:
            self._arrive(run, lanes, blocks, event, plan)
        elif event.operation in _WAITS:
            self._wait(run, lanes, blocks, event)
        elif event.operation == "complete_tx":
            key = (int(blocks[0]), int(event.addresses[0]), int(event.phases[0]))
            time = float(self.steps.time[run.completing])
            run.mbarriers.setdefault(key, Best()).raise_to(time, run.completing)

    def _keys(self, *columns: Ids) -> tuple[Any, Any]:
        """Different mbarriers and phases among lanes (block, address, phase), and which of them each lane has."""
        different, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
        return different.T.tolist(), which.reshape(-1)

    def _arrive(self, run: Running, lanes: Ids, blocks: Ids, event: MbarrierOperation, plan: AccessPlan) -> None:
        keys, which = self._keys(blocks, event.addresses, event.phases)
        for number, key in enumerate(keys):
            mine = Warps(lanes[which == number], run.launched.block)
            time, before = run.moment(self.steps, mine, plan.needs, plan.arrived)
            if event.instruction.opcode == "cp":  # it arrives when the copies of its lanes are done
                for rows in (latest[mine.at] for latest in run.lane_groups.values()):
                    later = self.steps.time[rows] > time
                    time, before = np.where(later, self.steps.time[rows], time), np.where(later, rows, before)
            latest = int(np.argmax(time))
            run.mbarriers.setdefault(tuple(key), Best()).raise_to(float(time[latest]), int(before[latest]))

    def _wait(self, run: Running, lanes: Ids, blocks: Ids, event: MbarrierOperation) -> None:
        assert event.passed is not None
        if not event.passed.any():
            return
        lanes, of = lanes[event.passed], (blocks, event.addresses, event.phases - 1)
        keys, which = self._keys(*(column[event.passed] for column in of))
        for number, key in enumerate(keys):
            mine = Warps(lanes[which == number], run.launched.block)
            best = run.mbarriers.get(tuple(key))
            late = mine.numbers if best is None else mine.numbers[best.time > run.clock[mine.at]]
            if best is None or not len(late):
                late, time, before = mine.numbers, run.clock[mine.at], run.last[mine.at]
            else:
                time, before = np.full(len(late), best.time), np.full(len(late), best.row)
            self._wait_for(run, late, time, before, "mbarrier")

    def _wait_for(self, run: Running, warps: Ids, time: Any, before: Any, kind: str) -> None:
        """Warps go on after a wait, each with a step of its own."""
        time = time + self.cost[KIND[kind]]
        run.last[warps] = self.add(run, warps, time, before, KIND[kind])
        run.clock[warps] = time

    # Bulk copies

    def copy(self, event: CopyMoment) -> None:
        run = self.running[event.launched]
        if event.moment == "issued":
            self._issue(run, event)
        elif event.moment == "written":
            run.completing = run.copies[event.number]  # its bytes are counted next

    def _issue(self, run: Running, event: CopyMoment) -> None:
        """A copy begins: when it is over is known at once."""
        warps = Warps(event.lanes, run.launched.block)
        plan = run.block.accesses.get(id(event.instruction), UNPLANNED)
        start, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        viewer = int(event.ranks[0])
        kind = self._copy_kind(event, viewer)
        time = start + self.cost[KIND[kind]]
        row = int(self.add(run, warps.numbers, time, before, KIND[kind])[0])
        run.copies[event.number] = row
        if event.within < 0:
            phase = run.book.enter(warps, False)
            phase = phase if isinstance(phase, int) else int(phase[0])
            run.book.copy(phase, viewer, event.target, self._action(event), event.global_bytes)
        if event.mbarrier < 0:
            read = start + self.costs.bulk_read
            reads = int(self.add(run, warps.numbers, read, before, KIND["bulk_read"])[0])
            run.groups.setdefault((int(ids_of(event.lanes)[0]), event.group), []).extend((row, reads))
        if not event.is_load:
            run.outstanding[warps.at] |= event.target != viewer
        run.last_copies.setdefault(viewer, Best()).raise_to(float(time[0]), row)

    @staticmethod
    def _copy_kind(event: CopyMoment, viewer: int) -> str:
        if event.target == MULTICAST_TARGET:
            return "bulk_switch_store"
        if event.is_load:
            return "bulk_own_load" if event.target == viewer else "bulk_remote_load"
        return "bulk_store"

    @staticmethod
    def _action(event: CopyMoment) -> str:
        if event.target == MULTICAST_TARGET:
            return "switch_atomic" if event.reduction else "broadcast"
        return "read" if event.is_load else "atomic" if event.reduction else "write"

    def copies_awaited(self, event: CopiesAwaited) -> None:
        run = self.running[event.launched]
        self.settle(run)
        if "bulk" in event.instruction.qualifiers:
            self._await_bulk(run, event)
        else:
            self._await_lanes(run, event)

    def _await_bulk(self, run: Running, event: CopiesAwaited) -> None:
        for lane, last in zip(ids_of(event.lanes).tolist(), event.groups.tolist(), strict=True):
            best = Best()
            for key in [key for key in run.groups if key[0] == lane and key[1] < last]:
                rows = run.groups[key][1::2] if event.reads_only else run.groups.pop(key)[::2]
                for row in rows:
                    best.raise_to(float(self.steps.time[row]), row)
            warp = Warps(np.array([lane]), run.launched.block).numbers
            if best.row and best.time > float(run.clock[warp[0]]):
                run.go_on(warp, np.array([best.time]), np.array([best.row], np.int32))

    # Copies by lanes

    def lane_copy(self, event: LaneCopyMoment) -> None:
        if event.moment != "issued":
            return
        run = self.running[event.launched]
        warps = Warps(event.lanes, run.launched.block)
        plan = run.block.accesses.get(id(event.instruction), UNPLANNED)
        time, before = run.moment(self.steps, warps, plan.needs, plan.arrived)
        remote = warps.any((event.targets != event.ranks) & (event.taken > 0))
        time = time + np.where(remote, self.costs.remote_load, self.costs.lane_copy)
        kind = np.where(remote, KIND["remote_load"], KIND["lane_copy"])
        rows = self.add(run, warps.numbers, time, before, kind)
        for group in np.unique(event.groups).tolist():
            mine = warps.any(event.groups == group)
            latest = run.lane_groups.setdefault(group, np.zeros(run.warps, np.int32))
            numbers = warps.numbers[mine]
            later = self.steps.time[rows[mine]] > self.steps.time[latest[numbers]]
            latest[numbers[later]] = rows[mine][later]
        phase = run.book.enter(warps, False)
        for size in np.unique(event.taken[event.taken > 0]).tolist():
            at = event.taken == size
            some = Warps(ids_of(event.lanes)[at], run.launched.block)
            one = phase if isinstance(phase, int) else int(phase.max())
            run.book.move(one, some, event.ranks[at], event.targets[at], ("read", "lane_copies"), size)

    def _await_lanes(self, run: Running, event: CopiesAwaited) -> None:
        warps = Warps(event.lanes, run.launched.block)
        most = warps.most(event.groups)
        for group, latest in sorted(run.lane_groups.items()):
            numbers = warps.numbers[group < most]
            rows = latest[numbers]
            run.go_on(numbers, self.steps.time[rows], rows)
