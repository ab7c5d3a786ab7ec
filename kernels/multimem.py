"""Which multimem instructions (cases/multimem.py) serve a case, and why none does."""

from __future__ import annotations

from functools import cache

from cases.case import Case
from cases.dtypes import FLOAT8, NONE, refuses_types
from cases.multimem import FLOAT8_ARCHS, FORMS, LEAST_ARCH, Form
from cases.refusal import Refusal

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

PEER_TO_PEER = {"all_reduce": "two_shot", "reduce_scatter": "pull", "reduce": "pull"}
"""The algorithm without multimem that does what it can't."""


SIGNAL = Form("red", "add", "", "", "u32").instruction("release.sys")
"""How a rank tells all others, in barriers over multicast."""


@cache
def reduce_forms(dtype: str, accumulator: str, reduction: str) -> tuple[Form, ...]:
    """The forms of multimem.ld_reduce that reduce a data type of ours as asked, widest first; none where none does.

    16, 8 and 4 bytes for floats but float64; integers and float64 take no vector: one element an access.
    """
    operation = OPERATIONS.get(reduction, "")
    name = _TYPES.get(dtype, "")
    if operation in ("and", "or", "xor"):
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
