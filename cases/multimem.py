"""Which multimem instructions there are: PTX's table as data.

Of PTX ISA 9.x; tests/simulator/ptx/test_ptxas.py holds it to what ptxas takes. Addresses are aligned to the width of
the access. Float min and max of multimem.red, which ptxas takes for vectors of 16-bit types, are in no PTX document and
so not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BITS: dict[str, int] = {
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "e4m3x4", "e5m2x4"), 32),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 64),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), 16),
    **dict.fromkeys(("e4m3", "e5m2"), 8),
}
"""Bits of a PTX type that multimem knows: of one register of an access."""

FLOAT8_ARCHS = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f", "sm_120a", "sm_121a")
"""Architectures whose multimem knows the 8-bit floats; all else runs from sm_90 on."""

LEAST_ARCH = 90
"""sm_90 is the first architecture with multimem."""

_BITWISE, _ORDERED = ("and", "or", "xor"), ("min", "max")


@dataclass(frozen=True, slots=True)
class Form:
    """One legal form: action "ld_reduce", "red" or "st"; operation and accumulator ("acc::f32") where it has them.

    vector is "", "v2", "v4" or "v8": the number of registers of PTX type `type` in one access of width_bytes.
    """

    action: str
    operation: str
    accumulator: str
    vector: str
    type: str

    @property
    def key(self) -> str:
        """The instruction without order and state space: "multimem.ld_reduce.add.acc::f32.v4.bf16x2"."""
        parts = ("multimem", self.action, self.operation, self.accumulator, self.vector, self.type)
        return ".".join(part for part in parts if part)

    @property
    def registers(self) -> int:
        return int(self.vector[1:]) if self.vector else 1

    @property
    def width_bytes(self) -> int:
        return self.registers * BITS[self.type] // 8

    @property
    def is_float8(self) -> bool:
        return self.type.startswith(("e4m3", "e5m2"))

    def runs_on(self, arch: str) -> bool:
        """Whether an architecture such as "sm_90a" has it."""
        if self.is_float8:
            return arch in FLOAT8_ARCHS
        number = re.match(r"sm_(\d+)", arch)
        return number is not None and int(number[1]) >= LEAST_ARCH

    def instruction(self, order: str = "relaxed.sys") -> str:
        """The instruction without operands: "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2"."""
        opcode = f"multimem.{self.action}"
        return f"{opcode}.{order}.global{self.key.removeprefix(opcode)}"


def _integers(name: str) -> Iterator[Form]:
    words = _BITWISE if name[0] == "b" else _ORDERED if name == "s64" else ("add", *_ORDERED)
    for action in ("ld_reduce", "red"):
        yield from (Form(action, word, "", "", name) for word in words)
    yield Form("st", "", "", "", name)


def _floats(name: str, vectors: tuple[str, ...], wider: str, has_red: bool) -> Iterator[Form]:
    """wider: the accumulator that the type has beside its own; types that have one have min and max, too."""
    for vector in vectors:
        yield Form("ld_reduce", "add", "", vector, name)
        if wider:
            yield Form("ld_reduce", "add", wider, vector, name)
            yield from (Form("ld_reduce", word, "", vector, name) for word in _ORDERED)
        if has_red:
            yield Form("red", "add", "", vector, name)
        yield Form("st", "", "", vector, name)


def _forms() -> Iterator[Form]:
    for name in ("b32", "b64", "u32", "s32", "u64", "s64"):
        yield from _integers(name)
    yield from _floats("f32", ("", "v2", "v4"), "", True)
    yield from _floats("f64", ("",), "", True)
    for name in ("f16", "bf16"):
        yield from _floats(name, ("v2", "v4", "v8"), "acc::f32", True)
        yield from _floats(f"{name}x2", ("", "v2", "v4"), "acc::f32", True)
    for name in ("e4m3", "e5m2"):
        yield from _floats(name, ("v4", "v8"), "acc::f16", False)
        yield from _floats(f"{name}x2", ("v2", "v4", "v8"), "acc::f16", False)
        yield from _floats(f"{name}x4", ("", "v2", "v4"), "acc::f16", False)


FORMS: tuple[Form, ...] = tuple(_forms())
"""Every legal form, each once."""
