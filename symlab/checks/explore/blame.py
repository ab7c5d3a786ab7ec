"""Which access went wrong: from the first wrong element back to the store that wrote it and to what that thread read.

The trace shows a load that came before the store of what it should have read, or after one of a later launch, as far
as it can be told: values that go through other blocks, or through the switch, are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cases.finding import Access as RacingAccess
from cases.finding import Finding
from symlab.checks.explore.trace import WORD_BYTES, Noted, Tracer


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first wrong element: byte offset_bytes of a rank's tensor, after the launch of this number (-1: the last).

    in_row: number of launches that write the tensor before it is looked at, this one the last of them.
    """

    tensor: str
    rank: int
    offset_bytes: int
    launch: int = -1
    in_row: int = 1


@dataclass(frozen=True, slots=True)
class _Read:
    """A load (by its place among what was noted) of a lane, and the store that should have come before it, or after.

    how: "early", it came before the store; "late", after a store of a later launch; "old", after the store, which it
    did not see yet (weak memory).
    """

    at: int
    lane: int
    store: int
    store_lane: int
    how: str


def blame(tracer: Tracer, wrong: Wrong) -> str:
    """Mark the accesses that went wrong, and say in one sentence what they are, or that it can't be told."""
    tracer.settle()
    index = tracer.address_of(wrong.tensor, wrong.rank, wrong.offset_bytes)
    if index is None:
        return f"which access went wrong can't be told: no tensor {wrong.tensor!r}"
    word = index // WORD_BYTES
    found = _last_store(tracer.noted, word, wrong)
    element = f"{wrong.tensor} of rank {wrong.rank}"
    if found is None:
        return f"no store reached the wrong element of {element}"
    at, lane = found
    writer = tracer.noted[at]
    writer.marks.append(
        f"stores the wrong value: {tracer.value(writer, lane)}" if writer.raw is not None else "stores it"
    )
    read = _culprit(tracer.noted, at, lane)
    who = name(writer, lane)
    if read is None:
        return f"the wrong element was stored by {who}; which load went wrong before it can't be told"
    load, store = tracer.noted[read.at], tracer.noted[read.store]
    tensor, owner, place = tracer.place(load, read.lane)
    of = f"{tensor}[{place}]" + (f" of rank {owner}" if owner >= 0 else "")
    other = name(store, read.store_lane)
    if read.how == "old":
        load.marks.append("reads the old value")
        store.marks.append("is not visible yet to that load")
        return (
            f"{name(load, read.lane)} reads {of} after {other} stored it (PTX line {_line(store)}), and does not see "
            "that store yet"
        )
    if read.how == "early":
        load.marks.append("reads the old value")
        store.marks.append("comes too late")
        return f"{name(load, read.lane)} reads {of} before {other} stores it (PTX line {_line(store)})"
    load.marks.append("reads the value of a later launch")
    store.marks.append("comes too early")
    return (
        f"{name(load, read.lane)} reads {of} after {other} stored to it in launch "
        f"{_launch(store, read.store_lane)} (PTX line {_line(store)})"
    )


def blame_race(tracer: Tracer, finding: Finding) -> str:
    """Mark the two accesses of a race where they were noted, and say in one sentence which they are."""
    tracer.settle()
    for side, other in ((finding.first, finding.second), (finding.second, finding.first)):
        for noted in reversed(tracer.noted):
            if noted.instruction is not None and noted.instruction.line == side.line and _is_by(noted, side):
                noted.marks.append(f"not ordered with PTX line {other.line}" if other.line > 0 else "not ordered")
                break
    return f"{finding.missing} is missing {finding.between()}"


def _is_by(one: Noted, side: RacingAccess) -> bool:
    """Return whether the thread of an access of a finding is among the lanes that were noted."""
    if not one.words.size:
        return False
    launched = one.launched
    if side.rank not in launched.ranks or launched.number_on(side.rank) != side.launch:
        return False
    lane = (launched.ranks.index(side.rank) * launched.grid + side.block) * launched.block + side.thread
    return bool((one.lanes == lane).any())


def name(one: Noted, lane: int) -> str:
    """Rank, block and thread of a lane (by its place)."""
    rank, block, thread = one.launched.place(int(one.lanes[lane]))
    return f"rank {rank}, block {block}, thread {thread}"


def _line(one: Noted) -> int:
    return one.instruction.line if one.instruction is not None else 0


def _launch(one: Noted, lane: int) -> int:
    return int(one.launched.numbers_of(one.lanes[lane : lane + 1])[0])


def _last_store(noted: list[Noted], word: int, wrong: Wrong) -> tuple[int, int] | None:
    """The last store to a word in the launches before it was looked at: its place, and its lane's."""
    for at in range(len(noted) - 1, -1, -1):
        one = noted[at]
        if not one.writes:
            continue
        lanes = np.flatnonzero((one.words == word).any(axis=1))
        for lane in reversed(lanes.tolist()):
            if wrong.launch < 0 or 0 <= wrong.launch - _launch(one, lane) < wrong.in_row:
                return at, lane
    return None


def _culprit(noted: list[Noted], at: int, lane: int) -> _Read | None:
    """The latest load that went wrong before a store: of the storing thread, else of its block."""
    writer = noted[at]
    own = int(writer.lanes[lane])
    block = own // writer.launched.block
    for is_whole_block in (False, True):
        seen: set[tuple[int, int]] = set()
        for place in range(at, -1, -1):
            one = noted[place]
            if not one.reads or one.launched is not writer.launched or one.space == "shared":
                continue
            mine = one.lanes // one.launched.block == block if is_whole_block else one.lanes == own
            for number in np.flatnonzero(mine).tolist():
                for word in one.words[number].tolist():
                    key = (int(one.lanes[number]), word)
                    if key in seen:
                        continue  # it was read again later
                    seen.add(key)
                    if place == at:
                        continue
                    if (found := _out_of_turn(noted, place, number, word)) is not None:
                        return found
    return None


def _out_of_turn(noted: list[Noted], place: int, lane: int, word: int) -> _Read | None:
    """The store by another thread that a load of a word came too early or too late for."""
    load = noted[place]
    reader, launch = int(load.lanes[lane]), _launch(load, lane)
    if any(one.lane == lane and one.has(word) for one in load.late):
        stores = ((at, _storing(noted[at], word, load, reader)) for at in range(place - 1, -1, -1))
        return next((_Read(place, lane, at, number, "old") for at, number in stores if number >= 0), None)
    for at in range(place + 1, len(noted)):
        if (number := _storing(noted[at], word, load, reader)) >= 0:
            if _launch(noted[at], number) <= launch:
                return _Read(place, lane, at, number, "early")
            break
    for at in range(place - 1, -1, -1):
        if (number := _storing(noted[at], word, load, reader)) >= 0:
            later = _launch(noted[at], number) > launch
            return _Read(place, lane, at, number, "late") if later else None
    return None


def _storing(one: Noted, word: int, load: Noted, reader: int) -> int:
    """The place of a lane, not the reader itself, that stores to a word; -1 if there is none."""
    if not one.writes:
        return -1
    lanes = np.flatnonzero((one.words == word).any(axis=1))
    if one.launched is load.launched:
        lanes = lanes[one.lanes[lanes] != reader]
    return int(lanes[0]) if len(lanes) else -1
