"""What a kernel asks of the system: to print, to fail an assertion, to stop. BUILTINS are the functions that every GPU
has: they are called, and have no body in PTX.
"""

from __future__ import annotations

import math
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
    flags, width_text, precision_text, length, kind = match.groups()
    width = _count(values.next("i") if width_text == "*" else int(width_text or 0))
    if width < 0:
        flags, width = f"{flags}-", -width
    precision = None
    if "." in match.group():
        precision = _count(values.next("i") if precision_text == "*" else int(precision_text or 0))
        precision = None if precision < 0 else precision  # as if there were none
    if kind in "diouxX":
        flags = flags if precision is None else flags.replace("0", "")
        return _padded(*_integer(_whole_value(values, length, kind), kind, flags, precision), flags, width)
    if kind in "aAeEfFgG":
        number = float(values.next("d"))
        if kind in "aA":
            head, digits = _hexadecimal(number, flags, precision)
            head, digits = (head.upper(), digits.upper()) if kind == "A" else (head, digits)
        else:
            places = "" if precision is None else f".{precision}"
            digits = str(f"%{'#' if '#' in flags else ''}{places}{kind}" % abs(number))
            head = _sign(math.copysign(1, number) < 0, flags)
        return _padded(head, digits, flags if math.isfinite(number) else flags.replace("0", ""), width)
    if kind in "cps":
        if kind == "s":
            text = _text_at(frame, values.next("Q"), instruction)[:precision]
        else:
            text = chr(values.next("i") & 255) if kind == "c" else f"{values.next('Q'):#x}"
        return _padded("", text, flags.replace("0", ""), width)
    raise LaneFault(0, f"the conversion {match.group()} is not one of a GPU's printf")


def _count(number: int) -> int:
    """A width or a precision."""
    if abs(number) > MAX_TEXT_BYTES:
        raise LaneFault(0, f"a width or precision of {number:,}; the simulator prints {MAX_TEXT_BYTES:,} at most")
    return number


def _whole_value(values: _Values, length: str | None, kind: str) -> int:
    is_signed = kind in "di"
    code = "q" if length in ("l", "ll", "j", "z", "t") else "i"
    number = int(values.next(code if is_signed else code.upper()))
    cut = {"h": 16, "hh": 8}.get(length or "")
    if cut:
        number &= (1 << cut) - 1
        if is_signed and number >> (cut - 1):
            number -= 1 << cut
    return number


def _padded(head: str, digits: str, flags: str, width: int) -> str:
    """C's padding: behind, between sign and digits, or in front."""
    room = " " * (width - len(head) - len(digits))
    if "-" in flags:
        return head + digits + room
    return head + room.replace(" ", "0") + digits if "0" in flags else room + head + digits


def _sign(is_negative: bool, flags: str) -> str:
    return "-" if is_negative else "+" if "+" in flags else " " if " " in flags else ""


def _integer(number: int, kind: str, flags: str, precision: int | None) -> tuple[str, str]:
    """Sign and prefix, and the digits; a precision is a least number of digits."""
    digits = format(abs(number), kind if kind in "oxX" else "d")
    if precision is not None:
        digits = digits.rjust(precision, "0") if number or precision else ""
    if kind == "o" and "#" in flags and not digits.startswith("0"):
        digits = f"0{digits}"
    prefix = f"0{kind}" if kind in "xX" and "#" in flags and number else ""
    return (_sign(number < 0, flags) if kind in "di" else "") + prefix, digits


def _hexadecimal(number: float, flags: str, precision: int | None) -> tuple[str, str]:
    """%a: sign and 0x, and the rest; without a precision as many digits as it needs."""
    head = _sign(math.copysign(1, number) < 0, flags)
    if not math.isfinite(number):
        return head, "nan" if math.isnan(number) else "inf"
    mantissa, _, exponent = abs(number).hex()[2:].partition("p")
    first, _, rest = mantissa.partition(".")
    rest = rest.rstrip("0")
    if precision is not None and precision < len(rest):
        dropped = 4 * (len(rest) - precision)
        exact = int(first + rest, 16)
        half, tail = 1 << (dropped - 1), exact & ((1 << dropped) - 1)
        kept = exact >> dropped
        kept += tail > half or (tail == half and kept & 1)
        text = format(kept, "x").rjust(precision + 1, "0")
        first, rest = text[: len(text) - precision], text[len(text) - precision :]
    rest = rest.ljust(precision or 0, "0")
    point = "." if rest or "#" in flags else ""
    return f"{head}0x", f"{first}{point}{rest}p{exponent}"


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
