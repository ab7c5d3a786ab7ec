"""SGLang's all_reduce kernels, compiled from the wheel's CUDA sources: calls in a row, as a model makes them.

Sizes alternate, so that each bank of inboxes and each flag serves both. Nothing but the stream lies between the calls.
"""

from functools import partial

import torch

from tests.foreign.cases import Foreign, exact
from tests.foreign.cuda_cases import of_cuda
from tests.foreign.flashinfer_cases import in_float32, inputs

MAX_RANKS = 8
BANKS = 2
SIZES = (1024, 264, 1024, 1024, 264)
"""Elements of each call, multiples of a thread's eight."""
STARTS = tuple(sum(SIZES[:call]) for call in range(len(SIZES)))
GRID = 2
SEMAPHORE_BYTES = 128
TYPES = {torch.bfloat16: "bf16_t", torch.float16: "fp16_t"}


def called(kernel, dtype, ranks, buffers, steps):
    """The calls, after which `data`, or `output` where there is one, holds the sums in rank order."""
    defined = {"RANKS": ranks, "TYPE": TYPES[dtype], "SGL_CUDA_ARCH": 900, **({"PUSH": 1} if "push" in kernel else {})}
    module = of_cuda("sglang.cu", kernel, **defined)
    data = inputs(ranks, sum(SIZES), dtype)
    result = "output" if "output" in buffers else "data"
    local = [name for name in ("output", "epochs") if name in buffers] + (["data"] if "push" in kernel else [])
    launch = {"grid": GRID, "block": 32 * max(ranks, 4), "buffers": {"data": data, **buffers}, "local": local}
    how = {"steps": [{"arguments": one} for one in steps], "dependent": True, **launch}
    return exact(module, ranks, lambda rank: {result: in_float32(data)}, **how)


def push(dtype, ranks):
    """In place. An inbox has room for the largest call; +0 in it says that nothing has come."""
    inbox_bytes = max(SIZES) * dtype.itemsize
    fields = {88: ("u32", inbox_bytes), 92: ("u32", ranks * inbox_bytes)}
    steps = []
    for size, start in zip(SIZES, STARTS, strict=True):
        place = f"data+{start * dtype.itemsize}"
        fields = {**fields, 0: ("addresses", "inboxes", MAX_RANKS), 64: place, 72: place, 80: "rank", 84: ("u32", size)}
        steps.append([("struct", fields), ("struct", ["epochs"])])
    buffers = {"inboxes": (BANKS * ranks * max(SIZES), dtype, 0), "epochs": (GRID, torch.uint32, 0)}
    return called("all_reduce_one_shot_push", dtype, ranks, buffers, steps)


def pull(shots, dtype, ranks):
    """As in a graph: inputs are read where they are. Two shots write the sums there, too."""
    steps = []
    for size, start in zip(SIZES, STARTS, strict=True):
        offset = f"+{start * dtype.itemsize}"
        output = f"output{offset}" if shots == 1 else ("u64", 0)
        flags = ("struct", [("addresses", "flags", MAX_RANKS)])
        steps.append([("peers", f"data{offset}"), ("struct", [output, "rank", ("u32", size)]), flags])
    buffers = {"flags": (GRID * SEMAPHORE_BYTES // 4, torch.uint32, 0)}
    buffers |= {"output": (sum(SIZES), dtype)} if shots == 1 else {}
    return called(f"all_reduce_{'one' if shots == 1 else 'two'}_shot_kernel", dtype, ranks, buffers, steps)


_CASES = {
    "push, bfloat16": (partial(push, torch.bfloat16), {"assumption": "kernel_end"}),
    "pull, one shot, float16": (partial(pull, 1, torch.float16), {"assumption": "gpu_atomics"}),
    "pull, two shots, bfloat16": (partial(pull, 2, torch.bfloat16), {"assumption": "gpu_atomics"}),
}
KERNELS = tuple(
    Foreign(f"SGLang's all_reduce, {name}", "sglang", case, **known, needs_host_compiler=True)
    for name, (case, known) in _CASES.items()
)
