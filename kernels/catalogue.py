"""All kernels and collectives, listed by hand: what is not here does not exist, and importing this compiles nothing."""

from __future__ import annotations

import difflib

from kernels.all_reduce import collective as all_reduce
from kernels.all_reduce import multimem_one_shot, multimem_two_shot, one_shot, two_shot
from kernels.spec import Collective, KernelSpec

SPECS: tuple[KernelSpec, ...] = (
    one_shot.SPEC,
    two_shot.SPEC,
    multimem_one_shot.SPEC,
    multimem_two_shot.SPEC,
)

COLLECTIVES: tuple[Collective, ...] = (all_reduce.COLLECTIVE,)

OPS: tuple[str, ...] = tuple(collective.op for collective in COLLECTIVES)


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
