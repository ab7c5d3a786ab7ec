"""Matmuls fused with collectives on small matrices: what they get, and what every launch has to leave."""

from dataclasses import dataclass

import cutlass
import torch

import symlab
from kernels.matmul import ranks
from kernels.matmul.all_gather import AllGather
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatterByAdding, half_tiles, inbox_bytes
from kernels.matmul.tuning import Tuning

SMALL = Tuning(columns=64, chunks=1)


@dataclass(frozen=True)
class Fused:
    """A kernel on some ranks. rows: of a shard. exact: small integers, whose sums all orders and bf16 keep."""

    kind: type
    world_size: int
    rows: int
    columns: int
    depth: int
    tuning: Tuning = SMALL
    exact: bool = True
    blocks: int = 4

    def __str__(self):
        words = (self.kind.__name__, self.world_size, self.rows, self.columns, self.depth, self.tuning.columns)
        return "-".join(map(str, (*words, self.tuning.cluster)))

    def matrix(self, made, *shape):
        drawn = torch.randint(-1, 2, shape, generator=made) if self.exact else torch.randn(shape, generator=made)
        return drawn.to(torch.bfloat16)

    def operands(self):
        """A and B of each rank: A (ranks, rows, depth), but for all_gather, (rows, depth)."""
        made = torch.Generator().manual_seed(self.rows * self.columns + self.depth)
        shape = (self.rows, self.depth) if issubclass(self.kind, AllGather) else ()
        shape = shape or (self.world_size, self.rows, self.depth)
        count = range(self.world_size)
        a = [self.matrix(made, *shape) for _ in count]
        return a, [self.matrix(made, self.columns, self.depth) for _ in count]

    def ran(self, launches=3, patience=0, **how):
        """C of each rank, what it has to be, and what the race checker told."""
        (a, b), size = self.operands(), self.world_size
        flags = 2 * size * half_tiles(self.rows, self.columns, self.tuning)
        words = {"state": (ranks.STATE_WORDS, "int32", "zeros"), "status": (16, "int32", "zeros")}
        buffers = {"a": a, "b": b, "flags": (flags, "int32", "zeros"), **words}
        shape, c = (self.rows, self.columns), "c"
        more = []
        if issubclass(self.kind, AllGather):
            buffers["gathered"] = ((2 * size, self.rows, self.depth), torch.bfloat16)
            shape, more = (size, *shape), ["gathered", ("peers", "gathered")]
        elif issubclass(self.kind, ReduceScatterByAdding):
            c = ("tensors", "c")
        else:
            buffers["inbox"] = (inbox_bytes(self.rows, self.columns, size, self.tuning), "uint8")
            more = ["inbox", ("peers", "inbox")]
            if issubclass(self.kind, AllReduce):
                shape, c = (size, *shape), ("tensors", "c")
        buffers["c"] = (shape, torch.bfloat16)
        last = [
            "flags",
            ("peers", "flags"),
            "state",
            "status",
            ("u32", "rank"),
            ("u64", patience),
            ("u32", self.blocks),
        ]
        how = {"schedule": "fair", **how}
        kernel, arguments = self.kind(cutlass.BFloat16, size, self.tuning), ["a", "b", c, *more, *last]
        how = {"ranks": size, "arch": "sm_90a", "launches": launches, **how}
        done = symlab.simulate(kernel, buffers=buffers, arguments=arguments, **how)
        return done.outputs["c"], self.expected(a, b), done.findings

    def expected(self, a, b):
        """From float64; what inboxes fold is rounded before."""
        size = self.world_size
        if issubclass(self.kind, AllGather):
            return [torch.stack([product(one, b[rank]) for one in a]).bfloat16() for rank in range(size)]
        parts = [[product(a[rank][owner], b[rank]).bfloat16() for rank in range(size)] for owner in range(size)]
        sums = [folded([*part[owner + 1 :], *part[: owner + 1]]) for owner, part in enumerate(parts)]
        return [torch.stack(sums)] * size if issubclass(self.kind, AllReduce) else sums


def product(a, b):
    return a.double() @ b.double().T


def folded(parts):
    total = parts[0].float()
    for one in parts[1:]:
        total = total + one.float()
    return total.bfloat16()
