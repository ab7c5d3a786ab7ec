"""What the lanes of a warp do together: shuffles, votes, matches, elections, reductions.

An instruction of this file ends a basic block. The machine keeps lanes there until all lanes of their mask that have
not returned have come, and then calls the function once, with complete sets of lanes: lanes of one warp that gave the
same mask. A shuffle from a lane that is not in the set gives POISON (PTX leaves it undefined).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.isa.registry import INTEGER, Binder, LaneFrame, Lanes, Run, fill, operation, pair_slots, put
from simulator.ptx.ir import Instruction, Negated, Operand

WARP = 32
POISON = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Sets:
    """Where each lane of a frame is: the number of its set, and its place in the warp; present[set, place]."""

    number: Lanes
    place: Lanes
    count: int
    present: npt.NDArray[np.bool_]

    def table(self, values: Lanes) -> Lanes:
        """Values by set and place; 0 where there is no lane."""
        out = np.zeros((self.count, WARP), values.dtype)
        out[self.number, self.place] = values
        return out

    def reduced(self, function: Any, values: Lanes) -> Lanes:
        """What a ufunc makes of the values of each set, one a set."""
        starts = np.cumsum(np.bincount(self.number)) - np.bincount(self.number)
        with np.errstate(over="ignore"):
            found: Lanes = function.reduceat(values[np.argsort(self.number, kind="stable")], starts)
        return found

    def bits(self, flags: npt.NDArray[np.bool_]) -> Lanes:
        """For each row of a table of flags a word, with bit l for place l."""
        found: Lanes = (flags.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=-1).astype(np.uint32)
        return found


def places_of(frame: LaneFrame) -> tuple[Lanes, Lanes]:
    """The number of each lane's warp, and its place there."""
    lanes = np.asarray(frame.view.lanes)
    blocks, threads = np.divmod(lanes, frame.view.launched.block)
    return blocks * (frame.view.launched.block // WARP + 1) + threads // WARP, threads % WARP


def _sets(frame: LaneFrame, masks: Lanes) -> Sets:
    warps, places = places_of(frame)
    masks = np.broadcast_to(masks, frame.count).astype(np.int64)
    _, number = np.unique(warps << 32 | masks, return_inverse=True)
    count = int(number.max()) + 1
    present = np.zeros((count, WARP), np.bool_)
    present[number, places] = True
    return Sets(number, places, count, present)


def _column(operand: Operand, kind: str, bind: Binder) -> Any:
    """A function from a frame to an operand's values, one a lane."""
    negated = isinstance(operand, Negated)
    slot = bind.read(operand.register if isinstance(operand, Negated) else operand, kind)

    def read(frame: LaneFrame) -> Lanes:
        found = np.broadcast_to(frame.regs[slot], frame.count)
        return ~found if negated else found

    return read


@operation(*(f"shfl.sync.{way}.b32" for way in ("up", "down", "bfly", "idx")))
def _shuffle(instruction: Instruction, bind: Binder) -> Run:
    """As the PTX ISA says: c holds a clamp and, from bit 8 on, a mask that cuts warps into segments."""
    way = next(word for word in instruction.qualifiers if word in ("up", "down", "bfly", "idx"))
    target, *sources = instruction.operands
    slots = pair_slots(target, bind)
    values, amounts, clamps, masks = (_column(one, "u4", bind) for one in sources)

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        lane = sets.place
        b, c = amounts(frame).astype(np.int64) & 31, clamps(frame).astype(np.int64)
        clamp, segment = c & 31, c >> 8 & 31
        most = (lane & segment) | (clamp & ~segment)
        source = {
            "up": lane - b,
            "down": lane + b,
            "bfly": lane ^ b,
            "idx": (lane & segment) | (b & ~segment),
        }[way]
        inside = source >= most if way == "up" else source <= most
        source = np.where(inside, source, lane)
        found = sets.table(values(frame))[sets.number, source]
        known = sets.present[sets.number, source]
        put(frame, slots, (np.where(known, found, POISON), inside))

    return run


@operation("vote.sync.all.pred", "vote.sync.any.pred", "vote.sync.uni.pred", "vote.sync.ballot.b32")
def _vote(instruction: Instruction, bind: Binder) -> Run:
    word = next(one for one in instruction.qualifiers if one in ("all", "any", "uni", "ballot"))
    target = bind.write(instruction.operands[0])
    predicates = _column(instruction.operands[1], "?", bind)
    masks = _column(instruction.operands[2], "u4", bind)

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        yes = sets.table(predicates(frame))
        every, some = (yes | ~sets.present).all(axis=1), yes.any(axis=1)
        answers: dict[str, Any] = {"all": every, "any": some, "uni": every | ~some}
        found = sets.bits(yes) if word == "ballot" else answers[word]
        fill(frame.regs[target], found[sets.number])

    return run


@operation(*(f"match.{word}.sync.{kind}" for word in ("any", "all") for kind in ("b32", "b64")))
def _match(instruction: Instruction, bind: Binder) -> Run:
    kind = "u4" if "b32" in instruction.qualifiers else "u8"
    target, value, mask = instruction.operands
    slots = pair_slots(target, bind)
    values, masks = _column(value, kind, bind), _column(mask, "u4", bind)
    is_all = "all" in instruction.qualifiers

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        mine = values(frame)
        rows = sets.table(mine)[sets.number]
        equal = (rows == mine[:, None]) & sets.present[sets.number]
        everyone = (equal == sets.present[sets.number]).all(axis=1)
        found = sets.bits(equal)
        put(frame, slots, (np.where(everyone, found, 0).astype(np.uint32) if is_all else found, everyone))

    return run


@operation("elect.sync")
def _elect(instruction: Instruction, bind: Binder) -> Run:
    """The lowest lane of a set is its leader."""
    slots = pair_slots(instruction.operands[0], bind)
    masks = _column(instruction.operands[1], "u4", bind)

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        leader = sets.present.argmax(axis=1)[sets.number]
        put(frame, slots, (leader.astype(np.uint32), leader == sets.place))

    return run


@operation(
    *(f"redux.sync.{word}.{kind}" for word in ("add", "min", "max") for kind in ("u32", "s32")),
    *(f"redux.sync.{word}.b32" for word in ("and", "or", "xor")),
)
def _reduce(instruction: Instruction, bind: Binder) -> Run:
    function = next(INTEGER[one] for one in instruction.qualifiers if one in INTEGER)
    kind = "i4" if "s32" in instruction.qualifiers else "u4"
    target = bind.write(instruction.operands[0])
    values, masks = (_column(one, "u4", bind) for one in instruction.operands[1:])

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        found = sets.reduced(function, values(frame).view(kind))
        fill(frame.regs[target], found.astype(kind)[sets.number])

    return run


_CANONICAL_NAN = 0x7FFFFFFF
_LEAST, _MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max


@operation(
    *(f"redux.sync.{word}{way}{nan}.f32" for word in ("min", "max") for way in ("", ".abs") for nan in ("", ".NaN"))
)
def _reduce_floats(instruction: Instruction, bind: Binder) -> Run:
    """The least or the largest number of a set, -0 below +0. With .NaN a NaN wins, else it counts only among NaNs."""
    words = instruction.qualifiers
    is_max, is_abs = "max" in words, "abs" in words
    function = np.maximum if is_max else np.minimum
    of_nan = _MOST if is_max == ("NaN" in words) else _LEAST  # of keys, which no number has
    target = bind.write(instruction.operands[0])
    values, masks = (_column(one, "u4", bind) for one in instruction.operands[1:])

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, masks(frame))
        bits = values(frame).view(np.uint32)
        magnitudes = bits & np.uint32(0x7FFFFFFF)
        keys = magnitudes.view(np.int32) if is_abs else _flipped(bits.view(np.int32))
        keys = np.where(magnitudes > 0x7F800000, np.int32(of_nan), keys)
        found = sets.reduced(function, keys)
        made = _flipped(found).view(np.uint32)
        made[found == of_nan] = _CANONICAL_NAN
        fill(frame.regs[target], made[sets.number])

    return run


def _flipped(bits: Any) -> Any:
    """Floats' bits as integers in the order of the floats, and back."""
    return bits ^ (bits >> 31 & 0x7FFFFFFF)


@operation("activemask.b32")
def _active(instruction: Instruction, bind: Binder) -> Run:
    """The lanes of the warp that run this instruction together: those that the schedule happens to keep together."""
    target = bind.write(instruction.operands[0])

    def run(frame: LaneFrame) -> None:
        sets = _sets(frame, np.zeros(1, np.int64))
        fill(frame.regs[target], sets.bits(sets.present)[sets.number])

    return run


@operation(
    "bar.red.popc.u32",
    "barrier.red.popc.u32",
    *(f"{bar}.red.{word}.pred" for bar in ("bar", "barrier") for word in ("and", "or")),
    neutral="cta aligned",
)
def _barrier_reduce(instruction: Instruction, bind: Binder) -> Run:
    """Called once for each barrier that is complete, with all threads that wait there."""
    word = next(one for one in instruction.qualifiers if one in ("popc", "and", "or"))
    target = bind.write(instruction.operands[0])
    predicates = _column(instruction.operands[-1], "?", bind)
    functions: dict[str, Any] = {"popc": np.count_nonzero, "and": np.all, "or": np.any}

    def run(frame: LaneFrame) -> None:
        found = functions[word](predicates(frame))
        kind = np.bool_ if word != "popc" else np.uint32
        fill(frame.regs[target], np.full(frame.count, found, kind))

    return run
