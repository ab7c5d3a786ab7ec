"""The sum of all ranks' tensors, which each rank computes for itself, by a CuTe DSL function with cute.Tensors."""

import cutlass
import cutlass.cute as cute


@cute.kernel
def added(inputs: list[cute.Tensor], output: cute.Tensor, threads: cutlass.Constexpr):
    index = cute.arch.block_idx()[0] * threads + cute.arch.thread_idx()[0]
    if index < cute.size(output):
        total = cutlass.Float32(0)
        for rank in cutlass.range_constexpr(len(inputs)):
            total = total + inputs[rank][index]
        output[index] = total


@cute.jit
def add_tensors(inputs: list[cute.Tensor], output: cute.Tensor, threads: cutlass.Constexpr):
    blocks = cute.ceil_div(cute.size(output), threads)
    added(inputs, output, threads).launch(grid=[blocks, 1, 1], block=[threads, 1, 1])
