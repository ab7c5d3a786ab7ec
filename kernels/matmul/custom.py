"""Fused matmuls of two ranks as op: custom runs them, and what must come out: conf/exp has an experiment for each.

A kernel for other ranks, types or tiles is one line in a file of one's own, as below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cutlass
import torch

from kernels.matmul.all_gather import AllGather
from kernels.matmul.matmul import Tuning
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatter, ReduceScatterByAdding

_OF_TWO = (cutlass.BFloat16, 2, Tuning(128, cluster=1, reason="small enough for the simulator"))

all_gather_matmul = AllGather(*_OF_TWO)
matmul_reduce_scatter = ReduceScatter(*_OF_TWO)
matmul_reduce_scatter_by_adding = ReduceScatterByAdding(*_OF_TWO)
matmul_all_reduce = AllReduce(*_OF_TWO)

Contents = Sequence[Mapping[str, torch.Tensor]]


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
