"""Fused matmuls beside cuBLAS, cuBLAS + NCCL in sequence, PyTorch's fused ones, and our matmul alone, on GPUs of one
host; no test. Prints the median microseconds of the slowest rank, and each relative to cuBLAS alone.

torchrun --nproc-per-node 2 tests/benchmarks/bench_matmuls.py OP:M,N,K .., with OP reduce_scatter, all_gather or
all_reduce, and M, N, K of a rank's matmul: all rows; a rank's columns for all_gather, its depth for the others. Small
integers are compared bit by bit first, then random data are timed: graphs of several launches, contestants in turn.
"""

import statistics
import sys

import cuda.bindings.driver as cuda
import cutlass
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from cutlass import Int32, Int64, cute
from cutlass.cute.runtime import from_dlpack, make_ptr

from kernels.matmul.all_gather import AllGather
from kernels.matmul.matmul import Matmul
from kernels.matmul.ranks import STATE_WORDS, address, shards_last
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatter, half_tiles, inbox_bytes

ROUNDS = 9
GRAPH_US = 12_000
"""About how long a graph takes; at 550 TFLOP/s."""

PATIENCE_NS = 4_000_000_000
BF16 = torch.bfloat16


class Alone(Matmul):
    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, blocks: Int32, stream: cuda.CUstream):
        self.launch(a, b, c, blocks, stream)


class Gathering(AllGather):
    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, gathered: cute.Tensor, pointers: list[cute.Pointer],
        rank: Int32, patience: Int64, blocks: Int32, stream: cuda.CUstream,
    ):  # fmt: skip
        gathered_of, *rest = map(address, pointers)
        words = [rank, patience, *rest, address(a.iterator), gathered_of]
        self.launch_gathered(a, b, c, gathered, words, blocks, stream)


class Scattering(ReduceScatter):
    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, c: list[cute.Tensor], pointers: list[cute.Pointer],
        rank: Int32, patience: Int64, blocks: Int32, stream: cuda.CUstream,
    ):  # fmt: skip
        inbox, inboxes, *rest = map(address, pointers)
        self.launch_sharded(a, b, self.targets(c), [rank, patience, *rest, inbox, inboxes], blocks, stream)

    def targets(self, c):
        return c


class Reducing(AllReduce):
    __call__ = Scattering.__call__

    def targets(self, c):
        return [shards_last(one) for one in c]


class Bench:
    """A rank of the world."""

    def __init__(self):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", self.rank)
        self.blocks = Int32(torch.cuda.get_device_properties(self.device).multi_processor_count)
        self.stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        self.group = dist.group.WORLD.group_name
        self.held = []
        self.compiled = {}

    def symmetric(self, shape, dtype):
        """A tensor of zeros that other ranks reach, and its handle."""
        made = symmetric.empty(shape, dtype=dtype, device=self.device).zero_()
        handle = symmetric.rendezvous(made, dist.group.WORLD)
        self.held.append((made, handle))
        return made, handle

    def pointer(self, tensor):
        self.held.append(tensor)
        kind = Int64 if tensor.dtype == torch.int64 else Int32
        return make_ptr(kind, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)

    def table(self, handle):
        return self.pointer(torch.tensor(list(handle.buffer_ptrs), dtype=torch.int64, device=self.device))

    def state(self, kernel, rows, columns):
        """Pointers of status, state, flags and the table of all ranks' flags."""
        flags, handle = self.symmetric((2 * self.ranks * half_tiles(rows, columns, kernel.tuning),), torch.int32)
        words = [torch.zeros(count, dtype=torch.int32, device=self.device) for count in (16, STATE_WORDS)]
        return [*map(self.pointer, words), self.pointer(flags), self.table(handle)]

    def launch(self, kernel, *arguments):
        """What launches a kernel, which is compiled once."""
        everything = [*arguments, self.blocks, self.stream]
        if (name := type(kernel).__name__) not in self.compiled:
            self.compiled[name] = cute.compile(kernel, *everything)
        return lambda: self.compiled[name](*everything)

    def fused(self, kernel, operands, pointers):
        return self.launch(kernel, *operands, pointers, Int32(self.rank), Int64(PATIENCE_NS))

    def matrix(self, *shape):
        return torch.randint(-1, 2, shape, device=self.device).to(BF16)

    def contestants(self, op, m, n, k):
        """Launches by name; those whose bits are compared with what they leave; what is right; what to fill again."""
        rows = m // self.ranks
        a, b = self.matrix(rows if op == "all_gather" else m, k), self.matrix(n, k)
        whole = a if op != "all_gather" else torch.empty(m, k, dtype=BF16, device=self.device)
        c, part = (torch.empty(one, n, dtype=BF16, device=self.device) for one in (m, rows))
        multiply = lambda: torch.mm(whole, b.T, out=c)  # noqa: E731
        runs = {"cuBLAS": multiply, "ours alone": self.launch(Alone(cutlass.BFloat16), *map(dynamic, (whole, b, c)))}
        if op == "all_gather":
            kernel = Gathering(cutlass.BFloat16, self.ranks)
            gathered, handle = self.symmetric((2 * self.ranks, rows, k), BF16)
            own = torch.empty(self.ranks, rows, n, dtype=BF16, device=self.device)
            operands = map(dynamic, (a, b, own, gathered))
            runs["ours"] = self.fused(kernel, operands, [self.table(handle), *self.state(kernel, rows, n)])
            runs["sequence"] = lambda: (dist.all_gather_into_tensor(whole, a), multiply())
            shared = self.symmetric((rows, k), BF16)[0]
            runs["torch"] = lambda: torch.ops.symm_mem.fused_all_gather_matmul(shared, [b.T], 0, self.group)
            runs["sequence"]()
            return runs, own, c.view_as(own).clone(), (a, b, shared)
        kernel = (Reducing if op == "all_reduce" else Scattering)(cutlass.BFloat16, self.ranks)
        inbox, handle = self.symmetric((inbox_bytes(rows, n, self.ranks, kernel.tuning) // 4,), torch.int32)
        shape = (self.ranks, rows, n) if op == "all_reduce" else (rows, n)
        own, of_all = self.symmetric(shape, BF16)
        targets = [of_all.get_buffer(rank, shape, BF16) for rank in range(self.ranks)] if op == "all_reduce" else [own]
        self.held.append(targets)
        pointers = [self.pointer(inbox), self.table(handle), *self.state(kernel, rows, n)]
        operands = [dynamic(a.view(self.ranks, rows, k)), dynamic(b), list(map(dynamic, targets))]
        runs["ours"] = self.fused(kernel, operands, pointers)
        parts = torch.empty(self.ranks, rows, n, dtype=BF16, device=self.device)
        dist.all_to_all_single(parts, torch.mm(a, b.T))
        total = parts[(self.rank + 1) % self.ranks].float()
        for step in range(2, self.ranks + 1):
            total += parts[(self.rank + step) % self.ranks].float()
        right = total.to(BF16)
        if op == "all_reduce":
            runs["sequence"] = lambda: (multiply(), dist.all_reduce(c))
            dist.all_gather_into_tensor(c, right)
            return runs, own, c.view_as(own).clone(), (a, b)
        runs["sequence"] = lambda: (multiply(), dist.reduce_scatter_tensor(part, c))
        runs["torch"] = lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.T, "sum", 0, self.group)
        return runs, own, right, (a, b)

    def slowest(self, number):
        """The largest of all ranks'."""
        found = torch.tensor([number], device=self.device, dtype=torch.float64)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found.item()

    def measure(self, op, m, n, k):
        """Return the microseconds of each contestant. SystemExit if a bit of ours is wrong."""
        runs, own, right, operands = self.contestants(op, m, n, k)
        for _ in range(3):
            runs["ours"]()
        torch.cuda.synchronize()
        if wrong := self.slowest((own != right).sum().item()):
            sys.exit(f"{op} {m}x{n}x{k}: {wrong:.0f} of {own.numel()} elements are wrong")
        for one in operands:
            one.normal_()
        count = max(2, min(20, int(GRAPH_US * 550e6 / (2 * m * n * k))))
        plays = {name: self.repeated(run, count, name != "torch") for name, run in runs.items()}
        times = {name: [] for name in runs}
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(ROUNDS):
            for name, play in plays.items():
                dist.barrier()
                begin.record()
                play()
                end.record()
                end.synchronize()
                times[name] += [begin.elapsed_time(end) / count * 1e3] * (turn > 0)
        return {name: self.slowest(statistics.median(some)) for name, some in times.items()}

    def repeated(self, run, count, in_graph):
        """What launches it a number of times; PyTorch's fused ones take no graph."""
        run()
        torch.cuda.synchronize()
        if not in_graph:
            return lambda: [run() for _ in range(count)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for _ in range(count):
                run()
        return graph.replay


def dynamic(tensor):
    """A tensor whose sizes the compiled kernel learns at its launch; rows are multiples of 16 bytes."""
    last = tensor.dim() - 1
    made = from_dlpack(tensor, assumed_align=16).mark_layout_dynamic(leading_dim=last)
    return made.mark_compact_shape_dynamic(mode=last, stride_order=tuple(range(last + 1)), divisibility=8)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    torch.cuda.set_stream(torch.cuda.Stream())
    bench = Bench()
    for text in sys.argv[1:]:
        op, sizes = text.split(":")
        found = bench.measure(op, *map(int, sizes.split(",")))
        if bench.rank == 0:
            said = (f"{name} {time:.1f} ({time / found['cuBLAS']:.2f})" for name, time in found.items())
            print(f"{torch.cuda.get_device_name()} x {bench.ranks}, {op} {sizes}: {', '.join(said)}", flush=True)
        bench.held.clear()


if __name__ == "__main__":
    main()
