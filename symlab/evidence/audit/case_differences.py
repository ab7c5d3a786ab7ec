"""A recorded case beside the same case as it came out here: what differs in its data, its code and its counters.

The data: everything that a check says. Where a method determines the bits (bytes, bitwise, bitwise_fold), and of
simulated runs, all of it must be the same again. Where real GPUs kept a bound, the bits of their outputs are unknown
here; what does not rest on them (elements, method, promises, the bound, the inputs) is compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cases.record.record import Check, KernelInfo, Record
from reports.record.leaves import by_dotted_path

TOLERANCE = 1e-9
"""Relative difference of two figures that are the same: sums of squares depend on the order of the host's additions."""

OF_BITS = frozenset({"bytes", "bitwise", "bitwise_fold"})
"""Methods of a check that leave an output one value for its bits, but for those of NaN."""

SOURCES_CHANGED = "sources changed"
"""Why recorded code is not compared with today's."""

_ASKED = ("elements", "launches", "input_digests")
"""What follows from the case and its seed, whatever code ran."""

_PROMISED = ("method", "ranks_equal_promised", "launches_equal_promised", "bound", "bound_value")
"""What follows from the case and what the kernel promises."""

_CAME_OUT = (
    *("wrong", "max_absolute_error", "max_ulp_error", "rms_ulp_error", "max_relative_error", "rms_relative_error"),
    *("bound_used", "ranks_equal", "launches_equal", "results", "guard_faults", "output_digests"),
)
"""What follows from the outputs."""

_OF_CODE = ("code_digest", "entry", "grid", "block", "multimem")
_LATER = frozenset({"input_digests", "output_digests", "max_relative_error", "rms_relative_error", "results"})
"""Fields that older records do not have: None there says nothing."""


def is_determined(record: Record) -> bool:
    """Return whether the record's outputs are determined by its case, so that they can be compared here."""
    assert record.check is not None
    return _is_simulated(record) or record.check.method in OF_BITS


def data_differences(recorded: Record, here: Check) -> tuple[list[str], list[str]]:
    """Return what differs between a record's check and the one made here: what no change of code explains, and what
    another order of additions, or another promise, would explain."""
    assert recorded.check is not None
    firm = _differing(recorded.check, here, _ASKED)
    names = list(_PROMISED)
    if is_determined(recorded):
        names += _CAME_OUT
        if recorded.case.inputs == "edge" and not _is_simulated(recorded):
            names.remove("output_digests")  # the bits of NaN are not promised
            names.remove("results")
    return firm, _differing(recorded.check, here, names)


def promise_differences(recorded: Record, here: Check) -> list[str]:
    """Return what differs in what the case and its kernel promise, which rests on no output."""
    assert recorded.check is not None
    return _differing(recorded.check, here, _PROMISED)


def _is_simulated(record: Record) -> bool:
    return record.fabric is not None and record.fabric.simulated


def _differing(recorded: Check, here: Check, names: tuple[str, ...] | list[str]) -> list[str]:
    found = []
    for name in names:
        there, now = getattr(recorded, name), getattr(here, name)
        if there is None and name in _LATER:
            continue
        if not _same(there, now):
            found.append(_sentence(name, there, now))
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or one == other or math.isclose(one, other, rel_tol=TOLERANCE)
    return bool(one == other)


def _sentence(name: str, there: Any, now: Any) -> str:
    if name == "output_digests":
        rank = next((rank for rank, pair in enumerate(zip(there, now, strict=False)) if pair[0] != pair[1]), 0)
        return f"output of rank {rank} differs from the recorded digest"
    if name == "input_digests":
        return "inputs differ from the recorded digests"
    return f"{name} is {_brief(there)} in the record, {_brief(now)} here"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def code_differences(recorded: KernelInfo, here: KernelInfo, is_there: bool = False) -> tuple[list[str], str]:
    """Return what differs between a kernel's recorded code and what its sources compile to here; and, where that can't
    be compared, the reason. is_there: the sources are those of its commit."""
    if not is_there and recorded.source_digest != here.source_digest:
        return [], SOURCES_CHANGED
    others = _other_tools(recorded.compiler, here.compiler)
    names = () if others else _OF_CODE
    pairs = ((name, getattr(recorded, name), getattr(here, name)) for name in ("source_digest", *names))
    found = [_sentence(name, one, other) for name, one, other in pairs if one != other and one is not None]
    if others and not found:
        return [], f"another compiler ({others})"
    is_older = not is_there and recorded.code_digest is None
    return ([], "recorded before code digests") if is_older else (found, "")


def choices_differ(recorded: Record, here: Record) -> list[str]:
    """Return what differs between the choices that a recorded kernel was compiled with and those of today."""
    there, now = ((one.request.kernel or {}).get("choices") for one in (recorded, here))
    if not isinstance(there, dict) or not isinstance(now, dict):
        return []
    return [
        _sentence(f"choice {name}", there.get(name), now.get(name))
        for name in dict.fromkeys([*there, *now])
        if there.get(name) != now.get(name)
    ]


def settings_differ(recorded: Record, here: Record) -> list[str]:
    """Return which settings of a simulated fabric are not those that the configuration gives here."""
    if not _is_simulated(recorded) or recorded.fabric is None or here.fabric is None:
        return []
    there, now = recorded.fabric.settings, here.fabric.settings
    both = (name for name in there if name in now)
    return [_sentence(f"setting {name}", there[name], now[name]) for name in both if there[name] != now[name]]


def is_same_code(recorded: Record, here: Record) -> bool:
    """Return whether a case ran the same code in both: by the code's digest, else by that of the sources."""
    ours, theirs = recorded.kernel, here.kernel
    if ours is None or theirs is None:
        return ours is theirs
    if ours.source_digest and ours.source_digest == theirs.source_digest:
        return True
    return ours.code_digest is not None and ours.code_digest == theirs.code_digest


def _other_tools(recorded: str, here: str) -> str:
    """Return the tools that both name, with different versions; "" if there are none."""
    ours, theirs = _tools(recorded), _tools(here)
    differing = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return ", ".join(f"{name} {ours[name]} there, {theirs[name]} here" for name in differing)


def _tools(compiler: str) -> dict[str, str]:
    """Return versions by the name of a tool: "nvidia-cutlass-dsl 4.8.1, NVVM 13.0.1" has two."""
    pairs = (part.strip().rpartition(" ") for part in compiler.split(","))
    return {name: version for name, _, version in pairs}


def counters_differ(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first counter that differs, and the number of the others; "" if none does. Left out are sums by
    launch, which older records have besides, and the orders of the race checker, which a machine's speed decides."""
    there, now = (
        by_dotted_path({name: one[name] for name in one if name not in ("launches", "race_orders")})
        for one in (recorded, here)
    )
    names = [name for name in dict.fromkeys([*there, *now]) if there.get(name) != now.get(name)]
    if not names:
        return ""
    more = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return f"counter {names[0]} is {there.get(names[0])} in the record, {now.get(names[0])} here{more}"
