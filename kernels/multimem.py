"""Which multimem instructions there are: PTX's table as data, what of it serves a case, and why nothing does.

Pure data, of PTX ISA 9.x; tests/kernels/test_multimem.py holds it to what the assembler takes, form by form. Addresses
are aligned to the width of the access. Float min and max of multimem.red, which the assembler takes for vectors of
16-bit types, are in no PTX document and so not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from cases.case import Case
from cases.dtypes import FLOAT8, NONE, refuses_types
from cases.refusal import Refusal

ACTIONS = ("ld_reduce", "red", "st")

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

OPERATIONS = {"sum": "add", "avg": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}
"""The instruction's operation for our reductions. avg is a sum, divided afterwards."""

_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16x2",
    "bfloat16": "bf16x2",
    "float8_e4m3fn": "e4m3x4",
    "float8_e5m2": "e5m2x4",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
}
_WIDER = {("float16", "float32"): "acc::f32", ("bfloat16", "float32"): "acc::f32"}
_WIDER |= {(dtype, "float16"): "acc::f16" for dtype in FLOAT8}

_BITWISE, _ORDERED = ("and", "or", "xor"), ("min", "max")

PEER_TO_PEER = {"all_reduce": "two_shot", "reduce_scatter": "pull", "reduce": "pull"}
"""The algorithm without multimem that does what it can't."""


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


SIGNAL = Form("red", "add", "", "", "u32").instruction("release.sys")
"""How a rank tells all others, in barriers over multicast."""


@cache
def reduce_forms(dtype: str, accumulator: str, reduction: str) -> tuple[Form, ...]:
    """The forms of multimem.ld_reduce that reduce a data type of ours as asked, widest first; none where none does.

    16, 8 and 4 bytes for floats but float64; integers and float64 take no vector: one element an access.
    """
    operation = OPERATIONS.get(reduction, "")
    name = _TYPES.get(dtype, "")
    if operation in _BITWISE:
        name = {"int32": "b32", "uint32": "b32", "int64": "b64", "uint64": "b64"}.get(dtype, "")
    elif operation == "add" and dtype == "int64":
        name = "u64"  # the same bits, and s64 has no add
    wider = _WIDER.get((dtype, accumulator), "")
    if not wider and accumulator not in ("native", dtype):
        return ()
    wanted = ("ld_reduce", operation, wider, name)
    fitting = [one for one in FORMS if (one.action, one.operation, one.accumulator, one.type) == wanted]
    return tuple(sorted(fitting, key=lambda one: -one.width_bytes))


def reduce_form(dtype: str, accumulator: str, reduction: str) -> Form | None:
    """The widest of reduce_forms, None where there is none."""
    return next(iter(reduce_forms(dtype, accumulator, reduction)), None)


def store_form(width_bytes: int) -> Form:
    """How raw bits are stored to all replicas: 16 bytes as four f32 (b32 takes no vector), 8 as b64, 4 as b32."""
    vector, name = {16: ("v4", "f32"), 8: ("", "b64"), 4: ("", "b32")}[width_bytes]
    return Form("st", "", "", vector, name)


def instructions(case: Case, *, stores: bool) -> frozenset[str]:
    """All multimem instructions of a kernel for the case: its barriers' signal, the reduction, stores of 16 bytes."""
    found = {SIGNAL}
    if case.reduction != NONE and (form := reduce_form(case.dtype, case.accumulator, case.reduction)):
        found.add(form.instruction())
    if stores:
        found.add(store_form(16).instruction())
    return frozenset(found)


def refuses_multimem(case: Case, arch: str) -> Refusal | None:
    """Return why multimem can't reduce what the case wants on an architecture, and what would; None if it can.

    Moving data takes raw stores, which have every data type.
    """
    if case.reduction == NONE:
        return None
    if unfit := refuses_types(case.dtype, case.accumulator, case.reduction):
        return unfit
    instead = f"take a peer-to-peer algorithm such as {case.op}/{PEER_TO_PEER.get(case.op, 'pull')}"
    form = reduce_form(case.dtype, case.accumulator, case.reduction)
    if form is None:
        if reduce_form(case.dtype, "native", case.reduction) is None:
            return Refusal("reduction", f"multimem has no {case.reduction} of {case.dtype}", instead)
        known = [one for one in ("native", "float16", "float32") if reduce_form(case.dtype, one, case.reduction)]
        hint = f"give accumulator {' or '.join(known)}, or {instead}"
        return Refusal("accumulator", f"multimem adds {case.dtype} in no {case.accumulator}", hint)
    if not form.runs_on(arch):
        if form.is_float8:
            reason = f"multimem has {case.dtype} on {', '.join(FLOAT8_ARCHS)}, and this is {arch}"
            return Refusal("fabric.arch", reason, instead)
        return Refusal("fabric.arch", f"multimem begins with sm_{LEAST_ARCH}, and this is {arch}", instead)
    return None
