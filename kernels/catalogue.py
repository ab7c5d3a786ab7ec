"""All kernels and collectives, listed by hand: what is not here does not exist, and importing this compiles nothing."""

from __future__ import annotations

import difflib

import kernels.all_gather.collective
import kernels.all_gather.multimem
import kernels.all_gather.pull
import kernels.all_gather.push
import kernels.all_reduce.collective
import kernels.all_reduce.lamport
import kernels.all_reduce.ll
import kernels.all_reduce.multimem_one_shot
import kernels.all_reduce.multimem_two_shot
import kernels.all_reduce.one_shot
import kernels.all_reduce.two_shot
import kernels.all_reduce.two_shot_lamport
import kernels.all_to_all.collective
import kernels.all_to_all.pull
import kernels.all_to_all.push
import kernels.barrier.collective
import kernels.barrier.multimem
import kernels.barrier.peers
import kernels.broadcast.collective
import kernels.broadcast.multimem
import kernels.broadcast.pull
import kernels.broadcast.push
import kernels.broadcast.two_shot
import kernels.reduce.collective
import kernels.reduce.multimem
import kernels.reduce.pull
import kernels.reduce.two_shot
import kernels.reduce_scatter.collective
import kernels.reduce_scatter.multimem
import kernels.reduce_scatter.pull
import kernels.reduce_scatter.push
import kernels.send_recv.collective
import kernels.send_recv.pull
import kernels.send_recv.push
from kernels.spec import Collective, KernelSpec

SPECS: tuple[KernelSpec, ...] = (
    kernels.all_reduce.one_shot.SPEC,
    kernels.all_reduce.two_shot.SPEC,
    kernels.all_reduce.lamport.SPEC,
    kernels.all_reduce.ll.SPEC,
    kernels.all_reduce.two_shot_lamport.SPEC,
    kernels.all_reduce.multimem_one_shot.SPEC,
    kernels.all_reduce.multimem_two_shot.SPEC,
    kernels.reduce_scatter.pull.SPEC,
    kernels.reduce_scatter.push.SPEC,
    kernels.reduce_scatter.multimem.SPEC,
    kernels.all_gather.pull.SPEC,
    kernels.all_gather.push.SPEC,
    kernels.all_gather.multimem.SPEC,
    kernels.broadcast.pull.SPEC,
    kernels.broadcast.push.SPEC,
    kernels.broadcast.two_shot.SPEC,
    kernels.broadcast.multimem.SPEC,
    kernels.reduce.pull.SPEC,
    kernels.reduce.two_shot.SPEC,
    kernels.reduce.multimem.SPEC,
    kernels.all_to_all.pull.SPEC,
    kernels.all_to_all.push.SPEC,
    kernels.send_recv.pull.SPEC,
    kernels.send_recv.push.SPEC,
    kernels.barrier.peers.SPEC,
    kernels.barrier.multimem.SPEC,
)

COLLECTIVES: tuple[Collective, ...] = (
    kernels.all_reduce.collective.COLLECTIVE,
    kernels.reduce_scatter.collective.COLLECTIVE,
    kernels.all_gather.collective.COLLECTIVE,
    kernels.broadcast.collective.COLLECTIVE,
    kernels.reduce.collective.COLLECTIVE,
    kernels.all_to_all.collective.COLLECTIVE,
    kernels.send_recv.collective.COLLECTIVE,
    kernels.barrier.collective.COLLECTIVE,
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
