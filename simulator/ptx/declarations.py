"""Declarations of PTX variables and parameters: state space, alignment, type, extents, first value."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from simulator.ptx.constants import constant
from simulator.ptx.ir import Immediate, ModuleVariable, Relocation, Symbol

SIZE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_DECLARED = re.compile(r"(?:\.(visible|extern|weak|common)\s+)?\.(global|const|shared|local|param)\b(.*)$")
_WORD = re.compile(
    r"\s*\.(?:align\s+(?P<align>\d+)|attribute\s*\((?P<attribute>[^)]*(?:\([^)]*\))?)\s*\)|v(?P<vector>[248])\b"
    r"|ptr\b|(?:global|const|shared|local|param)\b|(?P<type>pred|[busf](?:8|16|32|64|128)|f16x2|bf16x?2?)\b)"
)
_NAME = re.compile(r"\s*([%\w$]+)\s*((?:\[[^\]]*\]\s*)*)$")
_MASKED = re.compile(r"(0[xX][fF]+)([0]*)\s*\((.*)\)$")


@dataclass(frozen=True, slots=True)
class Declared:
    """One variable. element: the type's name; count: elements, 0 for an array without a size; initial: text, or ""."""

    name: str
    space: str
    linkage: str
    alignment_bytes: int
    element: str
    vector: int
    count: int
    initial: str
    extents: tuple[int, ...]

    @property
    def element_bytes(self) -> int:
        return SIZE_BYTES[bits_of(self.element)]

    @property
    def size_bytes(self) -> int:
        return self.element_bytes * self.vector * self.count


def bits_of(element: str) -> str:
    """The number of bits in a type's name: "32" of f16x2, "16" of bf16."""
    return "32" if element.endswith("x2") else element.lstrip("busf")


def declared(text: str) -> list[Declared]:
    """Return the variables of a declaration such as ".shared .align 8 .b8 a[4], b". Raises ValueError."""
    match = _DECLARED.match(text)
    if match is None:
        raise ValueError("the simulator does not know this directive")
    linkage, space, rest = match.group(1) or "", match.group(2), match.group(3)
    alignment, vector, element = 0, 1, ""
    while (word := _WORD.match(rest)) is not None:
        alignment = int(word.group("align") or alignment)
        vector = int(word.group("vector") or vector)
        element = word.group("type") or element
        rest = rest[word.end() :]
    if not element or element == "pred":
        raise ValueError("the simulator has no variables of this type")
    size = SIZE_BYTES[bits_of(element)] * vector
    made = []
    for part in split(rest):
        head, _, initial = part.partition("=")
        name = _NAME.match(head.strip())
        if name is None:
            raise ValueError("the simulator can't read this declaration")
        extents = tuple(_extent(one) for one in re.findall(r"\[([^\]]*)\]", name.group(2)))
        if extents and extents[0] == 0 and initial:
            extents = (_outermost(initial), *extents[1:])
        how = (space, linkage, alignment or size, element, vector, math.prod(extents), initial.strip(), extents)
        made.append(Declared(name.group(1), *how))
    return made


def _extent(text: str) -> int:
    if not text.strip():
        return 0
    found = constant(text)
    if not isinstance(found, Immediate) or found.width_bits or found.bits < 0:
        raise ValueError("an array's size is no whole number")
    return found.bits


def _outermost(initial: str) -> int:
    text = initial.strip()
    return len(split(text[1:-1])) if text.startswith("{") else 1


def split(text: str) -> list[str]:
    """Parts at commas that no bracket, brace or parenthesis encloses."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def module_variable(one: Declared) -> ModuleVariable:
    """Return a .global or .const variable with its first value. Raises ValueError."""
    data = bytearray(one.size_bytes)
    relocations: list[Relocation] = []
    if one.initial:
        shape = (*one.extents, one.vector) if one.vector > 1 else one.extents
        _fill(one, one.initial, shape, 0, data, relocations)
    return ModuleVariable(
        one.name, one.space, one.alignment_bytes, one.size_bytes, bytes(data), tuple(relocations), one.linkage
    )


def _fill(
    one: Declared, text: str, shape: tuple[int, ...], start: int, data: bytearray, relocations: list[Relocation]
) -> None:
    """Write an initialiser's values from element start on; those that it leaves out stay 0."""
    if not text.startswith("{"):
        _write(one, text, start * one.element_bytes, data, relocations)
        return
    parts = split(text[1:-1])
    below, room = math.prod(shape[1:]), shape[0] if shape else 1
    step = below if any(part.startswith("{") for part in parts) else 1
    if len(parts) * step > room * below:
        raise ValueError(f"more values than {one.name} has elements")
    for number, part in enumerate(parts):
        _fill(one, part, shape[1:], start + number * step, data, relocations)


def _write(one: Declared, text: str, at: int, data: bytearray, relocations: list[Relocation]) -> None:
    size, shift, is_generic = one.element_bytes, 0, False
    masked = _MASKED.match(text)
    if masked is not None:  # 0xFF00(name): one byte of an address
        text, shift = masked.group(3).strip(), 4 * len(masked.group(2))
    if text.startswith("generic(") and ")" in text:
        inner, _, rest = text[len("generic(") :].partition(")")
        text, is_generic = inner + rest, True
    found = constant(text)
    if isinstance(found, Symbol):
        relocations.append(Relocation(at, size, found.name, found.offset_bytes, shift, is_generic))
        return
    bits = found.bits
    if one.element in ("f32", "f64") and found.width_bits != 8 * size:
        bits = _as_float(found, size)
    data[at : at + size] = (bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _as_float(found: Immediate, size: int) -> int:
    """The bits of a number as a float of size bytes."""
    if found.width_bits:
        wide = found.width_bits == 64
        number = struct.unpack("<d" if wide else "<f", found.bits.to_bytes(8 if wide else 4, "little"))[0]
    else:
        number = float(found.bits)
    return int.from_bytes(struct.pack("<f" if size == 4 else "<d", number), "little")
