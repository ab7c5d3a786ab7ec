"""mbarrier: barriers in shared memory that count arrivals and bytes.

The objects are in simulator/run/mbarriers.py. A form without a state space takes a generic address. An arrival gives a
state, 64 bits that a wait for that phase and pending_count read; what they hold is this simulator's own, as the PTX ISA
leaves it open. Lanes of one step are served in lane order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import BARRIER_BYTES, READERS, address_reader, own_addresses, places_of, shared_place
from simulator.memory.space import SHARED, WINDOW_SHIFT, LaneFault, blamed, fault_where
from simulator.observe.events import MbarrierOperation, tell
from simulator.ptx.ir import Instruction, Operand, Register

SINK = Register("_")
_WORDS = frozenset(["acquire", "release", "relaxed", "cta", "cluster"])
_HERE = ("", "shared.", "shared::cta.")
_ANYWHERE = (*_HERE, "shared::cluster.")
"""State spaces; other blocks' objects are for arrivals and bytes, and nothing waits for them."""
_NAMED = frozenset({"release", "relaxed"})


def values_of(operand: Operand, bind: Binder) -> Callable[[LaneFrame], list[int]]:
    """Return a function from a frame to the lanes' values of a 32-bit operand."""
    assert not isinstance(operand, Register) or bind.register_dtype(operand) == "u4"
    slot = bind.read(operand, "u4")

    def read(frame: LaneFrame) -> list[int]:
        found: list[int] = np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64).tolist()
        return found

    return read


def _addresses(instruction: Instruction, operand: Operand, bind: Binder) -> Callable[[LaneFrame], Lanes]:
    """Return a function from a frame to the lanes' addresses in shared memory, whichever space the form names."""
    if any(word.startswith("shared") for word in instruction.qualifiers):
        shared: Callable[[LaneFrame], Lanes] = READERS["shared"](operand, bind)
        return shared
    generic = address_reader(operand, bind)

    def read(frame: LaneFrame) -> Lanes:
        found = generic(frame)
        wrong = found >> np.uint64(WINDOW_SHIFT) != np.uint64(SHARED >> WINDOW_SHIFT)
        fault_where(wrong, lambda lane: f"an mbarrier at {int(found[lane]):#x}: not an address of shared memory")
        out: Lanes = (found - np.uint64(SHARED)).view(np.int64)
        return out

    return read


def barrier_reader(instruction: Instruction, operand: Operand, bind: Binder) -> Callable[[LaneFrame], list[int]]:
    """Return a function from a frame to the lanes' keys of mbarriers: of the cluster's where the form names it."""
    addresses = _addresses(instruction, operand, bind)
    space = "shared::cluster" if "shared::cluster" in instruction.qualifiers else "shared::cta"

    def keys(frame: LaneFrame) -> list[int]:
        return [
            shared_place(frame, place, position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            for position, place in enumerate(places_of(frame, addresses(frame), space))
        ]

    return keys


def check_scope(instruction: Instruction, orders: frozenset[str], scopes: tuple[str, ...] = ("cta", "cluster")) -> None:
    """Raise UnknownInstruction unless the form names no order and no scope, or one of each."""
    words = [word for word in instruction.qualifiers if word in _WORDS]
    if words and not (len(words) == 2 and words[0] in orders and words[1] in scopes):
        raise UnknownInstruction(f"{instruction.mnemonic} names {' '.join(words)}; {instruction.where()}")


def _each(frame: LaneFrame, keys: list[int], change: Callable[[int, int], Any]) -> list[int]:
    """Call change(key, position) for each lane, in their order; return the phases that the mbarriers were in before."""
    barriers = frame.batch.mbarriers
    phases = []
    for position, key in enumerate(keys):
        phases.append(barriers.phase(key))
        try:
            change(key, position)
        except LaneFault as fault:
            raise LaneFault(position, fault.message) from None
    return phases


def _report(
    frame: LaneFrame, instruction: Instruction, operation: str, keys: Any, phases: Any, counts: Any, passed: Any = None
) -> None:
    """Tell the listeners of an operation; keys, phases and counts: one a lane, or one for all."""
    events, view = frame.batch.space.events, frame.view
    if events.mbarrier:
        columns = [np.asarray(one, np.int64) for one in (keys, phases, counts)]
        at, phase, count = (np.broadcast_to(one, frame.count) for one in columns)
        blocks, at = np.divmod(at, frame.batch.shared.shape[1])
        owners = blocks % frame.batch.grid if "shared::cluster" in instruction.qualifiers else None
        who = (view.launched, view.lanes, events.step)
        tell(events.mbarrier, MbarrierOperation(*who, instruction, operation, at, phase, count, passed, owners))


# The object


@operation(
    *(f"mbarrier.{word}.{space}b64" for word in ("init", "inval") for space in _HERE),
    *(f"mbarrier.{word}.{space}b64" for word in ("expect_tx", "complete_tx") for space in _ANYWHERE),
    neutral=" ".join(sorted(_WORDS)),
)
def _change(instruction: Instruction, bind: Binder) -> Run:
    """Make an object or give it up; announce bytes, or count them as copied, without an arrival."""
    word = next(one for one in instruction.qualifiers if one in ("init", "inval", "expect_tx", "complete_tx"))
    check_scope(instruction, frozenset({"relaxed"} if word.endswith("tx") else ()))
    address, *count = instruction.operands
    assert len(count) == (word != "inval")
    keys = barrier_reader(instruction, address, bind)
    counts = values_of(count[0], bind) if count else lambda frame: [0] * frame.count

    def run(frame: LaneFrame) -> None:
        barriers, told, given = frame.batch.mbarriers, keys(frame), counts(frame)

        def change(key: int, position: int) -> None:
            if word == "init":
                barriers.init(key, given[position])
            elif word == "inval":
                barriers.invalidate(key)
            else:
                one = barriers.at(key)
                (one.expect if word == "expect_tx" else one.complete)(given[position])

        phases = _each(frame, told, change)
        frame.batch.space.version += word != "inval"
        _report(frame, instruction, word, told, phases, given)

    return run


# Arrivals


def _arrival_keys() -> list[str]:
    plain = [f"mbarrier.{word}.{space}b64" for word, space in product(("arrive", "arrive_drop"), _ANYWHERE)]
    expecting = [key.replace(".arrive", ".expect_tx.arrive") for key in plain]
    partial = [f"mbarrier.{word}.noComplete.{space}b64" for word, space in product(("arrive", "arrive_drop"), _HERE)]
    return plain + expecting + partial


@operation(*_arrival_keys())
def _arrive(instruction: Instruction, bind: Binder) -> Run:
    """An arrival of `count` threads, or of one that announces bytes. arrive_drop: they stay away from now on."""
    words = instruction.qualifiers
    expects, partial, drops = "expect_tx" in words, "noComplete" in words, "arrive_drop" in words
    check_scope(instruction, frozenset({"release"}) if partial else _NAMED, ("cta",) if partial else ("cta", "cluster"))
    sink, address, *rest = instruction.operands
    assert len(rest) == 1 if expects or partial else len(rest) <= 1
    assert sink == SINK or "shared::cluster" not in words
    target = bind.write(sink) if sink != SINK else -1
    keys = barrier_reader(instruction, address, bind)
    values = values_of(rest[0], bind) if rest else lambda frame: [1] * frame.count

    def run(frame: LaneFrame) -> None:
        barriers, given, told = frame.batch.mbarriers, values(frame), keys(frame)
        arrivals = [1] * frame.count if expects else given
        states = np.zeros(frame.count, np.uint64)

        def change(key: int, position: int) -> None:
            barrier = barriers.at(key)
            states[position] = barrier.state()
            if expects:
                barrier.expect(given[position])
            barrier.arrive(arrivals[position], partial, drops)

        phases = _each(frame, told, change)
        frame.batch.space.version += 1
        if target >= 0:
            fill(frame.regs[target], states)
        if expects:
            _report(frame, instruction, "expect_tx", told, phases, given)
        _report(frame, instruction, "arrive_drop" if drops else "arrive", told, phases, arrivals)

    return run


@operation("mbarrier.pending_count.b64")
def _pending_count(instruction: Instruction, bind: Binder) -> Run:
    """How many arrivals the phase waited for before the arrival that gave the state."""
    to, state = instruction.operands
    assert bind.register_dtype(to) == "u4"
    target, source = bind.write(to), bind.read(state, "u8")

    def run(frame: LaneFrame) -> None:
        states = np.broadcast_to(frame.regs[source], frame.count)
        frame.regs[target][...] = frame.batch.mbarriers.pending_of(states)

    return run


# Waits


@operation(
    *(
        f"mbarrier.{word}.{parity}{space}b64"
        for word, parity, space in product(("try_wait", "test_wait"), ("", "parity."), _HERE)
    )
)
def _wait(instruction: Instruction, bind: Binder) -> Run:
    """try_wait may suspend the thread for a while and then give up: here it gives up at once."""
    check_scope(instruction, frozenset({"acquire", "relaxed"}))
    word = "try_wait" if "try_wait" in instruction.qualifiers else "test_wait"
    by_parity = "parity" in instruction.qualifiers
    to, address, phase, *limit = instruction.operands
    assert len(limit) <= (word == "try_wait")  # a hint of how long to suspend
    target = bind.write(to)
    addresses = _addresses(instruction, address, bind)
    assert not isinstance(phase, Register) or bind.register_dtype(phase) == ("u4" if by_parity else "u8")
    asked = bind.read(phase, "u4" if by_parity else "u8")

    def run(frame: LaneFrame) -> None:
        barriers = frame.batch.mbarriers
        # Many threads ask the same few barriers: each is looked at once.
        row = np.int64(frame.batch.shared.shape[1])
        blocks: Lanes = frame.batch.blocks_of(frame.view.lanes)
        found = own_addresses(frame, addresses(frame))
        _, first, back = np.unique(blocks * row + found, return_index=True, return_inverse=True)
        phases, keys = np.empty(len(first), np.int64), np.empty(len(first), np.int64)
        for number, position in enumerate(first.tolist()):
            place = int(blocks[position]), int(found[position])
            key = shared_place(frame, place, position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            with blamed(position):
                barriers.at(key)
            phases[number], keys[number] = barriers.phase(key), key
            barriers.asked = key
        given = np.broadcast_to(frame.regs[asked], frame.count)
        if by_parity:
            fault_where(given > 1, lambda lane: f"a phase has parity 0 or 1, not {int(given[lane])}")
            passed = (phases[back] & 1) != given
        else:
            passed = barriers.over(keys[back], given)
        fill(frame.regs[target], passed)
        _report(frame, instruction, word, keys[back], phases[back], 0, passed)

    return run
