"""Made-up algorithms: what a check has to know of one, and the results of an honest one."""

import torch

from cases.dtypes import ALL, NONE, REDUCTIONS
from cases.ops import collective
from kernels.numeric.numerics import fold
from kernels.spec import KernelSpec
from memory.fabric import Launch
from runner.case.inputs import make_inputs


def owner(case, rank):
    """Contiguous slices of the rank's output, in rank order, the first of them the rank's own."""
    count = collective(case.op).counts(case.numel, case.world_size)[1]
    same = collective(case.op).same_on_all_ranks
    return (torch.arange(count) * case.world_size // max(count, 1) + (0 if same else rank)) % case.world_size


def spec(order="rank_order", op="all_reduce", positive_zero=""):
    takes = {"dtypes": ALL, "accumulators": ("native", "float32", "float16", NONE), "reductions": (*REDUCTIONS, NONE)}
    runs = {"workspaces": lambda case: (), "launch": lambda case: Launch(1, 32), "build": lambda case: None}
    promised = {"fold": order, "owner": owner if order == "from_next_rank" else None, "positive_zero": positive_zero}
    plain = {"summary": "for tests", "placements": ("out_of_place",), "parameters": (), "files": ()}
    return KernelSpec(op, "made_up", needs_multicast=order == "unordered", **plain, **takes, **runs, **promised)


def parts_of(case, rank):
    """What is reduced, or moved, into a rank's output."""
    op = collective(case.op)
    count = op.counts(case.numel, case.world_size)[0]
    return op.outputs(make_inputs(case, range(case.world_size), count), rank, case.root)


def right(case, promise, rank):
    """What an honest kernel that promises this gives a rank; None: nothing."""
    parts = parts_of(case, rank)
    if parts is None or not collective(case.op).reduces:
        return None if parts is None else parts[0].clone()
    first = None if promise.owner is None else (promise.owner(case, rank) + 1) % case.world_size
    return fold(parts, case.accumulator, case.reduction, first, promise.positive_zero)
