"""All kernels and collectives, listed by hand: what is not here does not exist, and importing this compiles nothing."""

from __future__ import annotations

import difflib

from kernels.all_gather import collective as all_gather
from kernels.all_gather import push as all_gather_push
from kernels.all_reduce import collective as all_reduce
from kernels.all_reduce import lamport, ll, one_shot, two_shot, two_shot_lamport
from kernels.all_to_all import collective as all_to_all
from kernels.barrier import collective as barrier
from kernels.broadcast import collective as broadcast
from kernels.reduce import collective as reduce
from kernels.reduce_scatter import collective as reduce_scatter
from kernels.send_recv import collective as send_recv
from kernels.spec import Collective, KernelSpec

SPECS: tuple[KernelSpec, ...] = (
    one_shot.SPEC,
    two_shot.SPEC,
    lamport.SPEC,
    ll.SPEC,
    two_shot_lamport.SPEC,
    all_gather_push.SPEC,
)

COLLECTIVES: tuple[Collective, ...] = tuple(
    module.COLLECTIVE
    for module in (all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, send_recv, barrier)
)

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
