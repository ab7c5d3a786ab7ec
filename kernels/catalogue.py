"""All kernels and collectives, listed by hand: what is not here does not exist, and importing this compiles nothing.

A name is the path of a file: "all_reduce/one_shot" is kernels/all_reduce/one_shot.py, which has a SPEC; what an op
means is in its collective.py, which has a COLLECTIVE.
"""

from __future__ import annotations

import difflib
from importlib import import_module

from kernels.brought import spec_at
from kernels.spec import Collective, KernelSpec

OPS: tuple[str, ...] = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "all_to_all",
    "send_recv",
    "barrier",
)

NAMES: tuple[str, ...] = (
    "all_reduce/one_shot",
    "all_reduce/one_shot_rotated",
    "all_reduce/two_shot",
    "all_reduce/lamport",
    "all_reduce/ll",
    "all_reduce/two_shot_lamport",
    "all_reduce/multimem_one_shot",
    "all_reduce/multimem_two_shot",
    "reduce_scatter/pull",
    "reduce_scatter/push",
    "reduce_scatter/multimem",
    "all_gather/pull",
    "all_gather/push",
    "all_gather/multimem",
    "all_gather/bulk",
    "broadcast/pull",
    "broadcast/push",
    "broadcast/two_shot",
    "broadcast/multimem",
    "broadcast/bulk",
    "reduce/pull",
    "reduce/two_shot",
    "reduce/multimem",
    "all_to_all/pull",
    "all_to_all/push",
    "all_to_all/bulk",
    "send_recv/pull",
    "send_recv/push",
    "barrier/peers",
    "barrier/multimem",
)

SPECS: tuple[KernelSpec, ...] = tuple(spec_at(f"kernels.{name.replace('/', '.')}:SPEC") for name in NAMES)

COLLECTIVES: tuple[Collective, ...] = tuple(import_module(f"kernels.{op}.collective").COLLECTIVE for op in OPS)


def find(name: str) -> KernelSpec:
    """The spec of "op/algorithm"; ValueError with the nearest names if there is none."""
    for spec in SPECS:
        if spec.name == name:
            return spec
    raise ValueError(_unknown("kernel", name, [spec.name for spec in SPECS]))


def collective(op: str) -> Collective:
    """What an op means; ValueError with the nearest names if there is none."""
    for known in COLLECTIVES:
        if known.op == op:
            return known
    raise ValueError(_unknown("op", op, list(OPS)))


def _unknown(what: str, name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=4, cutoff=0.5)
    if near:
        return f"unknown {what} {name!r}: did you mean {' or '.join(near)}?"
    return f"unknown {what} {name!r}: there is {', '.join(names)}"
