"""What a kernel asks of the system: to print, to fail an assertion, to stop. BUILTINS are the functions that every GPU
has: they are called, and have no body in PTX.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, fill, operation
from simulator.isa.spaces import load_rows, reach, symbol_reader
from simulator.memory.space import LaneFault
from simulator.observe.events import Printed, tell
from simulator.ptx.ir import Group, Immediate, Instruction, Register, Symbol

MAX_TEXT_BYTES = 4096
"""Of one string that a kernel prints."""
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|j|z|t|L)?([diouxXaAeEfFgGcspn%])")


@operation("trap", "brkpt")
def _stop(instruction: Instruction, bind: Binder) -> Run:
    word = instruction.opcode

    def run(frame: LaneFrame) -> None:
        raise LaneFault(0, f"{word}: the kernel stopped itself")

    return run


def _argument(operand: Any, size_bytes: int, instruction: Instruction, bind: Binder) -> Callable[[LaneFrame], Lanes]:
    """A function from a frame to the unsigned values of what a call passes."""
    kind = f"u{size_bytes}"
    if isinstance(operand, Symbol):
        assert bind.place(operand.name)[0] == "frame"
        address = symbol_reader(operand, bind)
        return lambda frame: reach(frame, "local", address(frame), size_bytes, instruction, "load").rows(kind)[:, 0]
    assert isinstance(operand, Register | Immediate)
    slot = bind.read(operand, kind)
    return lambda frame: np.broadcast_to(frame.regs[slot], frame.count)


def _answer(instruction: Instruction, bind: Binder) -> Callable[[LaneFrame, Lanes], None]:
    """A function that gives the 32-bit values back that a call returns, if it wants them."""
    (returns, *_) = instruction.operands
    assert isinstance(returns, Group)
    if not returns.parts:
        return lambda frame, values: None
    (one,) = returns.parts
    if isinstance(one, Register):
        slot = bind.write(one)
        return lambda frame, values: fill(frame.regs[slot], values.astype(np.uint32))
    assert isinstance(one, Symbol)
    assert bind.place(one.name)[0] == "frame"
    address = symbol_reader(one, bind)

    def put(frame: LaneFrame, values: Lanes) -> None:
        reach(frame, "local", address(frame), 4, instruction, "store").put(values.astype(np.uint32).reshape(-1, 1))

    return put


def _arguments(sizes: tuple[int, ...], instruction: Instruction, bind: Binder) -> list[Callable[[LaneFrame], Lanes]]:
    group = instruction.operands[2]
    assert isinstance(group, Group)
    return [_argument(one, size, instruction, bind) for one, size in zip(group.parts, sizes, strict=True)]


def _one_lane(frame: LaneFrame, position: int) -> LaneFrame:
    found: LaneFrame = frame.batch.narrow(frame, np.array([position]), [])
    return found


def _bytes_at(frame: LaneFrame, address: int, size_bytes: int, instruction: Instruction) -> bytes:
    """What a frame of one lane finds at a generic address."""
    return load_rows(frame, "", np.array([address], np.uint64), size_bytes, "u1", instruction).tobytes()


def _text_at(frame: LaneFrame, address: int, instruction: Instruction) -> str:
    """A string that ends with a zero byte."""
    found = bytearray()
    while len(found) < MAX_TEXT_BYTES:
        (one,) = _bytes_at(frame, address + len(found), 1, instruction)
        if not one:
            break
        found.append(one)
    return found.decode("utf-8", "replace")


def _vprintf(instruction: Instruction, bind: Binder) -> Run:
    """printf: the format's address, and that of the values, each at a multiple of its size (varargs of the ABI)."""
    formats, buffers = _arguments((8, 8), instruction, bind)
    answer = _answer(instruction, bind)

    def run(frame: LaneFrame) -> None:
        texts, counts = [], []
        addresses, values = formats(frame).tolist(), buffers(frame).tolist()
        for position in range(frame.count):
            lane = _one_lane(frame, position)
            try:
                text = _text_at(lane, addresses[position], instruction)
                written, count = _formatted(lane, text, values[position], instruction)
            except LaneFault as fault:
                raise LaneFault(position, f"printf: {fault.message}", fault.kind) from None
            texts.append(written)
            counts.append(count)
        events = frame.batch.space.events
        if events.printed:
            who = (frame.view.launched, frame.view.lanes, events.step)
            tell(events.printed, Printed(*who, instruction, tuple(texts)))
        answer(frame, np.array(counts))

    return run


class _Values:
    """Reads a lane's values one behind the other."""

    def __init__(self, frame: LaneFrame, address: int, instruction: Instruction) -> None:
        self.frame, self.address, self.instruction = frame, address, instruction

    def next(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        self.address = -(-self.address // size) * size
        raw = _bytes_at(self.frame, self.address, size, self.instruction)
        self.address += size
        return struct.unpack("<" + kind, raw)[0]


def _formatted(frame: LaneFrame, text: str, address: int, instruction: Instruction) -> tuple[str, int]:
    """The text with its values put in, and how many conversions it has."""
    values = _Values(frame, address, instruction)
    out, end, count = [], 0, 0
    for match in _CONVERSION.finditer(text):
        out.append(text[end : match.start()])
        end = match.end()
        if match.group(5) == "%":
            out.append("%")
            continue
        count += 1
        out.append(_converted(frame, match, values, instruction))
    return "".join([*out, text[end:]]), count


def _converted(frame: LaneFrame, match: re.Match[str], values: _Values, instruction: Instruction) -> str:
    """A value as this machine's C writes it."""
    flags, width, precision, length, kind = match.groups()
    form = f"%{flags}{_count(values, width)}"
    if "." in match.group() and not (places := _count(values, precision)).startswith("-"):
        form += f".{places}"  # a negative one is as if there were none
    given: Any
    if kind in "diouxXc":
        is_long = length in ("l", "ll", "j", "z", "t")
        given = (ctypes.c_longlong if is_long else ctypes.c_int)(values.next("q" if is_long else "i"))
        form += "ll" if is_long else length or ""
    elif kind in "aAeEfFgG":
        given = ctypes.c_double(values.next("d"))
    elif kind == "p":
        given = ctypes.c_void_p(values.next("Q"))
    elif kind == "s":
        given = _text_at(frame, values.next("Q"), instruction).encode()
    else:
        raise LaneFault(0, f"the conversion {match.group()} is not one of a GPU's printf")
    into = ctypes.create_string_buffer(3 * MAX_TEXT_BYTES)
    size = ctypes.CDLL(None).snprintf(into, len(into), f"{form}{kind}".encode(), given)
    return into.raw[:size].decode("utf-8", "replace")


def _count(values: _Values, text: str | None) -> str:
    """A width or a precision, which may be a value."""
    count = values.next("i") if text == "*" else int(text or 0)
    if abs(count) > MAX_TEXT_BYTES:
        raise LaneFault(0, f"a width or precision of {count:,}; the simulator prints {MAX_TEXT_BYTES:,} at most")
    return str(count) if text else ""


def _assert_failed(instruction: Instruction, bind: Binder) -> Run:
    """assert(): message, file, line, function, size of a character."""
    message, file, line, function, _ = _arguments((8, 8, 4, 8, 8), instruction, bind)

    def run(frame: LaneFrame) -> None:
        lane = _one_lane(frame, 0)
        said, where, name = (
            _text_at(lane, int(one(frame)[0]), instruction) if int(one(frame)[0]) else ""
            for one in (message, file, function)
        )
        raise LaneFault(0, f"assertion failed: {said} ({name}, {where}:{int(line(frame)[0])})")

    return run


BUILTINS: dict[str, Callable[[Instruction, Binder], Run]] = {"vprintf": _vprintf, "__assertfail": _assert_failed}
