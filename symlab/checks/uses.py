"""What a kernel does with its parameters, as far as its text says: numbers, addresses, tables of addresses, structs.

Values are followed through moves and additions of 64 bits, whatever the way that threads take: a hint, not a proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from simulator.ptx.ir import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol, Vector

_TYPE = re.compile(r"[bsuf](8|16|32|64|128)")
_MOVES = frozenset({"mov", "cvta", "add", "sub", "mad", "cvt", "selp", "max", "min", "or"})
_ACCESSES = frozenset({"ld", "st", "atom", "red", "multimem"})
_ELSEWHERE = frozenset({"param", "shared", "local", "const", "shared::cta", "shared::cluster"})


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a parameter that the kernel reads: bytes from offset_bytes on, of a type such as "u32".

    is_array: it reads more of the kind behind it, by an index. kind: "number", "address", "peers" (of a table of
    addresses) or "multicast". element: type of what lies at the address, "" if unknown.
    """

    offset_bytes: int
    type: str
    is_array: bool = False
    kind: str = "number"
    element: str = ""


_Place = tuple[str, int]
"""A parameter's name and an offset in it."""


@dataclass(slots=True)
class _Uses:
    """What is known of a kernel's registers. spots: those that are addresses of parameters; values: those that come
    from a field; loaded: those that come from memory at a field."""

    fields: dict[_Place, Field]
    spots: dict[str, tuple[str, int, bool]]
    values: dict[str, set[_Place]]
    loaded: dict[str, set[_Place]]

    def see(self, one: Instruction) -> None:
        if one.opcode == "ld" and "param" in one.qualifiers:
            self._load(one)
        elif one.opcode in _ACCESSES and _ELSEWHERE.isdisjoint(one.qualifiers):
            self._access(one)
        elif one.opcode in _MOVES and one.operands and isinstance(one.operands[0], Register):
            self._move(one.operands[0].name, one.operands[1:])

    def _load(self, one: Instruction) -> None:
        target, place = one.operands[0], one.operands[1]
        assert isinstance(place, Address)
        if isinstance(place.base, Symbol):
            name, offset, is_array = place.base.name, place.base.offset_bytes + place.offset_bytes, False
        elif isinstance(place.base, Register) and place.base.name in self.spots:
            name, offset, is_array = self.spots[place.base.name]
            offset += place.offset_bytes
        else:
            return
        kind = _type_of(one)
        parts = target.parts if isinstance(target, Vector) else (target,)
        for number, part in enumerate(parts):
            key = (name, offset + number * (int(kind[1:]) // 8))
            known = self.fields.get(key, Field(key[1], kind))
            self.fields[key] = Field(key[1], known.type, known.is_array or is_array, known.kind, known.element)
            if isinstance(part, Register) and kind.endswith("64"):
                self.values.setdefault(part.name, set()).add(key)

    def _access(self, one: Instruction) -> None:
        for place in one.operands:
            if not isinstance(place, Address) or not isinstance(place.base, Register):
                continue
            base, kind = place.base.name, "multicast" if one.opcode == "multimem" else "address"
            for key in self.values.get(base, ()):
                self._note(key, kind, _type_of(one))
            for key in self.loaded.get(base, ()):
                self._note(key, "peers", _type_of(one))
            if one.opcode == "ld" and _type_of(one).endswith("64") and base in self.values:
                target = one.operands[0]
                for part in target.parts if isinstance(target, Vector) else (target,):
                    if isinstance(part, Register):
                        self.loaded.setdefault(part.name, set()).update(self.values[base])

    def _note(self, key: _Place, kind: str, element: str) -> None:
        known = self.fields[key]
        if known.kind != "peers" or kind == "peers":
            self.fields[key] = Field(known.offset_bytes, known.type, known.is_array, kind, element)

    def _move(self, target: str, sources: tuple[Operand, ...]) -> None:
        for one in sources:
            if isinstance(one, Symbol):
                self.spots.setdefault(target, (one.name, one.offset_bytes, False))
            if not isinstance(one, Register):
                continue
            if one.name in self.spots and target not in self.spots:
                name, offset, is_array = self.spots[one.name]
                steps = [_signed(other.bits) for other in sources if isinstance(other, Immediate)]
                is_indexed = any(isinstance(other, Register) and other is not one for other in sources)
                self.spots[target] = (name, offset + sum(steps), is_array or is_indexed)
            for known in (self.values, self.loaded):
                if one.name in known:
                    known.setdefault(target, set()).update(known[one.name])


def fields_of(kernel: Kernel) -> dict[str, tuple[Field, ...]]:
    """Return the fields of each parameter that the kernel reads, by name and in their order."""
    uses = _Uses({}, {}, {}, {})
    for _ in range(3):  # a value may be used in a block before the one that makes it
        for one in _instructions(kernel):
            uses.see(one)
    names = [one.name for one in kernel.parameters]
    found = sorted((name, offset) for name, offset in uses.fields if name in names and offset >= 0)
    return {name: tuple(uses.fields[key] for key in found if key[0] == name) for name in names}


def _instructions(kernel: Kernel) -> Iterator[Instruction]:
    for block in kernel.blocks:
        yield from (one for one in block.instructions if not one.unsupported)


def _type_of(one: Instruction) -> str:
    return next((word for word in reversed(one.qualifiers) if _TYPE.fullmatch(word)), "b32")


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
