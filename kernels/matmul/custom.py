"""Fused matmuls as op: custom runs them, and what must come out: conf/exp has an experiment for each.

Buffers are a rank's; `a` has a block of rows for each rank where C is divided. Constants are the number of ranks,
and columns and cluster of a Tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Int32, Int64

from kernels.matmul.all_gather import AllGather
from kernels.matmul.matmul import Tuning
from kernels.matmul.ranks import address, shards_last
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatter, ReduceScatterByAdding

Contents = Sequence[Mapping[str, torch.Tensor]]


@cute.jit
def all_gather_matmul(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    gathered: cute.Tensor,
    gathered_of: cute.Pointer,
    flags: cute.Pointer,
    flags_of: cute.Pointer,
    state: cute.Pointer,
    status: cute.Pointer,
    rank: Int32,
    patience: Int64,
    blocks: Int32,
    ranks: cutlass.Constexpr,
    columns: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
) -> None:
    words = [rank, patience, *map(address, (status, state, flags, flags_of, a.iterator, gathered_of))]
    AllGather(a.element_type, ranks, Tuning(columns, cluster=cluster)).launch_gathered(a, b, c, gathered, words, blocks)


@cute.jit
def matmul_reduce_scatter(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    inbox: cute.Pointer,
    inboxes: cute.Pointer,
    flags: cute.Pointer,
    flags_of: cute.Pointer,
    state: cute.Pointer,
    status: cute.Pointer,
    rank: Int32,
    patience: Int64,
    blocks: Int32,
    ranks: cutlass.Constexpr,
    columns: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
) -> None:
    words = [rank, patience, *map(address, (status, state, flags, flags_of, inbox, inboxes))]
    ReduceScatter(a.element_type, ranks, Tuning(columns, cluster=cluster)).launch_sharded(a, b, [c], words, blocks)


@cute.jit
def matmul_reduce_scatter_by_adding(
    a: cute.Tensor,
    b: cute.Tensor,
    c: list[cute.Tensor],
    flags: cute.Pointer,
    flags_of: cute.Pointer,
    state: cute.Pointer,
    status: cute.Pointer,
    rank: Int32,
    patience: Int64,
    blocks: Int32,
    ranks: cutlass.Constexpr,
    columns: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
) -> None:
    words = [rank, patience, *map(address, (status, state, flags, flags_of))]
    ReduceScatterByAdding(a.element_type, ranks, Tuning(columns, cluster=cluster)).launch_sharded(
        a, b, c, words, blocks
    )


@cute.jit
def matmul_all_reduce(
    a: cute.Tensor,
    b: cute.Tensor,
    c: list[cute.Tensor],
    inbox: cute.Pointer,
    inboxes: cute.Pointer,
    flags: cute.Pointer,
    flags_of: cute.Pointer,
    state: cute.Pointer,
    status: cute.Pointer,
    rank: Int32,
    patience: Int64,
    blocks: Int32,
    ranks: cutlass.Constexpr,
    columns: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
) -> None:
    words = [rank, patience, *map(address, (status, state, flags, flags_of, inbox, inboxes))]
    made = AllReduce(a.element_type, ranks, Tuning(columns, cluster=cluster))
    made.launch_sharded(a, b, [shards_last(one) for one in c], words, blocks)


def gathered(inputs: Contents) -> list[dict[str, torch.Tensor]]:
    """All ranks' rows times the rank's B, in float64."""
    rows = torch.stack([one["a"] for one in inputs]).double()
    return [{"c": (rows @ one["b"].double().T).to(one["a"].dtype)} for one in inputs]


def reduced(inputs: Contents) -> list[dict[str, torch.Tensor]]:
    """The sum of all ranks' products in float64, on all ranks."""
    total = sum(one["a"].double() @ one["b"].double().T for one in inputs)
    return [{"c": torch.as_tensor(total).to(one["a"].dtype)} for one in inputs]


def scattered(inputs: Contents) -> list[dict[str, torch.Tensor]]:
    """Each rank's rows of it."""
    return [{"c": one["c"][rank].contiguous()} for rank, one in enumerate(reduced(inputs))]
