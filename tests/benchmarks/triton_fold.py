"""The rival's kernel: one rank's share of a one-shot all-reduce, the fold of all ranks' buffers in float32."""

import triton
import triton.language as tl


@triton.jit
def fold(inputs, output, numel, ranks: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """output[i] = sum over ranks of inputs[rank * numel + i], in rank order."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    mask = at < numel
    total = tl.load(inputs + at, mask=mask).to(tl.float32)
    for rank in range(1, ranks):
        total += tl.load(inputs + rank * numel + at, mask=mask).to(tl.float32)
    tl.store(output + at, total.to(tl.bfloat16), mask=mask)
