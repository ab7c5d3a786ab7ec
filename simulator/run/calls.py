"""Functions: where each thread is to return to, its stack of frames in local memory, and what calls pass.

A frame holds the .local and .param variables of one activation of a function; a thread's frames lie one behind the
other in its local memory, the kernel's own first. Registers belong to the function's text, not to an activation: a call
that can come back to its own function saves those that are still needed, and gives them back on return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memory.fabric import DeviceFault
from simulator.isa.registry import Lanes
from simulator.memory.space import FUNCTION
from simulator.observe.lanes import Group, Ids, ids_of
from simulator.ptx.ir import FrameVariable, Function, Instruction
from simulator.run.groups import compact

if TYPE_CHECKING:
    from simulator.run.owner import Owner

MAX_DEPTH = 256
"""Calls within calls of one thread."""
MAX_LOCAL_BYTES = 64 << 10
"""Local memory of one thread, of which its stack is made."""
FRAME_ALIGNMENT_BYTES = 64
FUNCTION_BYTES = 16
"""Distance between the addresses of two functions."""
FRESH = 0xFF
"""What local memory holds before it is written. Reading it is no fault: compilers copy the padding of structs."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value that is passed: in the frame, in a register's slot, or a constant. size_bytes of it."""

    kind: str
    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call: whom (or the slot that holds the address), what it passes and gets, and where it goes on.

    saves: slots to save, of a call that may come back to its own function. frame_bytes: of the caller.
    """

    number: int
    instruction: Instruction
    function: Function | None
    slot: int
    arguments: tuple[Place, ...]
    returns: tuple[Place, ...]
    saves: tuple[int, ...]
    frame_bytes: int
    following: int


def address_of(number: int) -> int:
    """Return the address of a module's function by its number."""
    return FUNCTION + FUNCTION_BYTES * (number + 1)


@dataclass(slots=True)
class Calls:
    """The stacks of one batch's lanes. parameters: for each function its parameters' and returns' register slots."""

    batch: Owner
    frame_bytes: int
    sites: tuple[CallSite, ...]
    by_address: dict[int, Function]
    slots: dict[str, int]
    local: npt.NDArray[np.uint8] = field(init=False)
    depth: Ids | None = None
    tops: Ids = field(init=False)
    levels: list[npt.NDArray[np.int64]] = field(default_factory=list)  # the call, and the function, of each lane
    saved: list[dict[int, Lanes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        row = _aligned(self.frame_bytes)
        self.local = np.full((self.batch.lanes, row), FRESH, np.uint8) if row else np.zeros((1, 0), np.uint8)

    def pointers(self, lanes: Group) -> Ids:
        """Where the frames of the lanes' functions begin in their local memory."""
        if self.depth is None:
            return np.zeros(len(lanes), np.int64)
        found: Ids = self.tops[ids_of(lanes)]
        return found

    # Calling

    def call(self, number: int, group: Group) -> None:
        """Send lanes into the function that they call; number: of the call."""
        site = self.sites[number]
        if site.function is not None:
            self._enter(site, site.function, ids_of(group))
            return
        lanes = ids_of(group)
        addresses = self.batch.kept[site.slot][lanes]
        for address in np.unique(addresses).tolist():
            some = lanes[addresses == address]
            function = self.by_address.get(address)
            if function is None:
                self._fail(int(some[0]), f"an indirect call of {address:#x}, which is no function of this module", site)
            assert function is not None
            passed = [one.size_bytes for one in (*site.returns, *site.arguments)]
            if passed != [one.size_bytes for one in (*function.returns, *function.parameters)]:
                text = f"an indirect call of {function.name}, which does not have the prototype's parameters"
                self._fail(int(some[0]), text, site)
            self._enter(site, function, some)

    def _enter(self, site: CallSite, function: Function, lanes: Ids) -> None:
        if self.depth is None:
            self.depth, self.tops = np.zeros(self.batch.lanes, np.int64), np.zeros(self.batch.lanes, np.int64)
        depth = self.depth[lanes]
        if int(depth.max()) >= MAX_DEPTH:
            self._fail(int(lanes[np.argmax(depth)]), f"calls are nested more than {MAX_DEPTH} deep", site)
        old = self.tops[lanes]
        new = old + _aligned(site.frame_bytes)
        self._make_room(int(new.max()) + function.frame_bytes, int(lanes[np.argmax(new)]), site)
        for place, parameter in zip(site.arguments, self._places(function.parameters), strict=True):
            self._pass(lanes, place, old, parameter, new)
        self._note(site, function, lanes, depth)
        self.depth[lanes] = depth + 1
        self.tops[lanes] = new
        self.batch.arrive(function.first, compact(lanes))

    def _note(self, site: CallSite, function: Function, lanes: Ids, depth: Ids) -> None:
        """Keep where the lanes return to, and the registers that they need there."""
        while len(self.levels) <= int(depth.max()):
            self.levels.append(np.zeros(self.batch.lanes, np.int64))
            self.saved.append({})
        for level in np.unique(depth).tolist():
            some = lanes[depth == level]
            self.levels[level][some] = site.number << 32 | function.number
            for slot in site.saves:
                kept = self.batch.kept[slot]
                self.saved[level].setdefault(slot, np.zeros_like(kept))[some] = kept[some]

    def leave(self, group: Group) -> None:
        """Lanes return from their function."""
        assert self.depth is not None
        lanes = ids_of(group)
        depth = self.depth[lanes] - 1
        for level in np.unique(depth).tolist():
            at_level = lanes[depth == level]
            numbers = self.levels[level][at_level]
            for number in np.unique(numbers).tolist():
                function = self.by_address[address_of(number & 0xFFFFFFFF)]
                self._return(self.sites[number >> 32], function, level, at_level[numbers == number])

    def _return(self, site: CallSite, function: Function, level: int, lanes: Ids) -> None:
        assert self.depth is not None
        kept = self.batch.kept
        for slot in site.saves:
            kept[slot][lanes] = self.saved[level][slot][lanes]
        old = self.tops[lanes]
        new = old - _aligned(site.frame_bytes)
        for place, returned in zip(site.returns, self._places(function.returns), strict=True):
            self._pass(lanes, returned, old, place, new)
        self.depth[lanes] = level
        self.tops[lanes] = new
        self.batch.arrive(site.following, compact(lanes))

    def _places(self, passed: Sequence[FrameVariable]) -> list[Place]:
        """Where a function has what it takes, or what it returns."""
        return [
            Place("slot", self.slots[one.register], one.size_bytes)
            if one.register
            else Place("frame", one.offset_bytes, one.size_bytes)
            for one in passed
        ]

    # Values

    def _value(self, place: Place, lanes: Ids, tops: Ids) -> npt.NDArray[np.uint8]:
        """The bytes of a place, a row a lane."""
        size = place.size_bytes
        if place.kind == "frame":
            at = lanes * self.local.shape[1] + tops + place.number
            found: npt.NDArray[np.uint8] = self.local.reshape(-1)[at[:, None] + np.arange(size)]
            return found
        if place.kind == "slot":
            return np.ascontiguousarray(self.batch.kept[place.number][lanes]).view(np.uint8).reshape(len(lanes), -1)
        row = np.frombuffer((place.number & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8)
        return np.ascontiguousarray(np.broadcast_to(row, (len(lanes), size)))

    def _pass(self, lanes: Ids, source: Place, tops: Ids, target: Place, new: Ids) -> None:
        """Give what is at a place, in frames that begin at tops, to a place in those that begin at new."""
        data = self._value(source, lanes, tops)
        if target.kind == "slot":
            kept = self.batch.kept[target.number]
            kept[lanes] = data.view(kept.dtype)[:, 0]
        else:
            at = lanes * self.local.shape[1] + new + target.number
            self.local.reshape(-1)[at[:, None] + np.arange(data.shape[1])] = data

    def _make_room(self, size_bytes: int, lane: int, site: CallSite) -> None:
        row = self.local.shape[1]
        if size_bytes <= row:
            return
        if size_bytes > MAX_LOCAL_BYTES:
            self._fail(lane, f"the thread's stack is full: it has {MAX_LOCAL_BYTES:,} bytes", site)
        wider = np.full((self.batch.lanes, _aligned(max(size_bytes, 2 * row))), FRESH, np.uint8)
        wider[:, :row] = self.local if row else 0
        self.local = wider

    def _fail(self, lane: int, message: str, site: CallSite) -> None:
        raise self.batch.fault(lane, message, site.instruction, DeviceFault)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // FRAME_ALIGNMENT_BYTES) * FRAME_ALIGNMENT_BYTES
