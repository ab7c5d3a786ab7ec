"""Triton: the kernels of sources/triton_kernels.py and triton_matmul.py."""

import numpy as np
import torch

from tests.foreign.cases import Case, Foreign, exact, random_rows
from tests.foreign.environment import compiled

ROWS, COLUMNS, BLOCK = 6, 200, 256
SCRATCH = [("u64", 0), ("u64", 0)]
"""The two parameters for scratch memory that Triton adds."""
UNIT = 2.0**-24
"""Largest relative error of one rounding to float32."""
APPROXIMATION_UNITS = 4
"""Largest error of ex2.approx.f32, and of div.full.f32: 2 ulp by the PTX ISA."""
SOFTMAX_UNITS = (BLOCK - 1) + 3 * APPROXIMATION_UNITS


def of_triton(function, types, warps=4, source="triton_kernels.py", arch=90, **constants):
    request = {"source": source, "function": function, "types": types, "constants": constants, "warps": warps}
    request |= {"arch": arch} if arch != 90 else {}  # what is compiled already has no arch
    return compiled("triton_to_ptx.py", request, [source])


def launch(module, grid, buffers, **more):
    return {"grid": grid, "block": 128, "shared_bytes": module.facts["shared_bytes"], "buffers": buffers, **more}


def softmax(ranks):
    """Each element is exp(-d) / sum(exp(-d)), d the distance to the row's maximum.

    Its relative error, to first order: d is rounded once and scaled by log2(e), a rounded constant, with one more
    rounding, which moves exp(-d) by 3 d units; ex2.approx adds its own error. The sum of positive terms has at most the
    largest error of a term, and one rounding for each addition, whatever their order. The division adds its own.
    """
    x = [torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
    module = of_triton("softmax", {"x": "*fp32", "y": "*fp32", "columns": "i32"}, BLOCK=BLOCK)

    def check(outputs):
        for rank, found in enumerate(outputs["y"]):
            right = torch.softmax(x[rank].double(), 1)
            extent = (x[rank].amax(1, keepdim=True) - x[rank].amin(1, keepdim=True)).double()
            bound = (SOFTMAX_UNITS + 6 * extent) * UNIT
            worst = ((found.double() - right).abs() / right / bound).max()
            assert worst <= 1, f"y on rank {rank} has {worst:.2f} times the error of the bound"

    buffers = {"x": x, "y": ((ROWS, COLUMNS), torch.float32)}
    arguments = ["x", "y", ("s32", COLUMNS), *SCRATCH]
    return Case(module, launch(module, ROWS, buffers, arguments=arguments, local=["x", "y"]), check)


def reductions(ranks):
    """Sums of integers are exact in any order; of equal maxima argmax gives the first."""
    x = random_rows(ranks, (ROWS, COLUMNS), torch.float32, -9, 10)
    types = {"x": "*fp32", "total": "*fp32", "largest": "*fp32", "where": "*i32", "columns": "i32"}
    module = of_triton("reductions", types, BLOCK=BLOCK)

    def expected(rank):
        first = np.argmax(x[rank].numpy(), axis=1).astype(np.int32)
        return {"total": x[rank].sum(1), "largest": x[rank].amax(1), "where": torch.from_numpy(first)}

    buffers = {"x": x, "total": (ROWS, torch.float32), "largest": (ROWS, torch.float32), "where": (ROWS, torch.int32)}
    return exact(module, ranks, expected, [("s32", COLUMNS), *SCRATCH], **launch(module, ROWS, buffers))


def scans(ranks):
    x = random_rows(ranks, (ROWS, COLUMNS), torch.int32, -1000, 1000)
    types = {"x": "*i32", "sums": "*i32", "highest": "*i32", "columns": "i32"}
    module = of_triton("scans", types, BLOCK=BLOCK)

    def expected(rank):
        return {"sums": x[rank].cumsum(1, dtype=torch.int32), "highest": x[rank].cummax(1).values}

    shape = (ROWS, COLUMNS)
    buffers = {"x": x, "sums": (shape, torch.int32), "highest": (shape, torch.int32)}
    return exact(module, ranks, expected, [("s32", COLUMNS), *SCRATCH], **launch(module, ROWS, buffers))


def all_reduce(ranks):
    """It adds in rank order in float32 and rounds once, so torch gets the same bits that way."""
    blocks, size = 3, 256
    made = torch.Generator().manual_seed(5)
    x = [torch.randn(blocks * size, generator=made).to(torch.bfloat16) for _ in range(ranks)]
    total = torch.zeros(blocks * size)
    for one in x:
        total = total + one.float()
    types = {"peers": "*i64", "flags": "*i64", "y": "*bf16", "rank": "i32"}
    module = of_triton("all_reduce", types, RANKS=ranks, BLOCK=size)

    buffers = {"x": x, "flags": ((blocks, ranks), torch.int32, 0), "y": (blocks * size, torch.bfloat16)}
    arguments = [("peers", "x"), ("peers", "flags"), "y", ("s32", "rank"), *SCRATCH]
    how = launch(module, blocks, buffers, arguments=arguments, local=["y"])
    return exact(module, ranks, lambda rank: {"y": total.to(torch.bfloat16)}, **how)


def matmul(ranks, kind, dtype, arch):
    """Sums of small integers are exact, however they are cut."""
    rows, columns, depth = 128, 128, 96
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32", "columns": "i32", "depth": "i32"}
    tile = {"ROWS": 64, "COLUMNS": 64, "DEPTH": 32}
    module = of_triton("matmul", types, 4, "triton_matmul.py", arch, **tile)
    a, b = (random_rows(ranks, shape, dtype, -3, 4) for shape in ((rows, depth), (depth, columns)))
    buffers = {"a": a, "b": b, "c": ((rows, columns), torch.float32)}
    how = launch(module, (2, 2, 1), buffers, arch=f"sm_{arch}" + "a" * (arch == 90))
    more = [("s32", columns), ("s32", depth), *SCRATCH]
    return exact(module, ranks, lambda rank: {"c": a[rank].float() @ b[rank].float()}, more, **how)


def of_matrices(name, *how):
    return Foreign(f"Triton: matrix product, {name}", "triton", lambda ranks: matmul(ranks, *how), ranks=(2,))


KERNELS = (
    Foreign(
        "Triton: softmax",
        "triton",
        softmax,
        f"relative error within ({SOFTMAX_UNITS} + 6 d) 2^-24, d the extent of a row",
    ),
    Foreign("Triton: sum, max and argmax", "triton", reductions),
    Foreign("Triton: scans (sum, maximum)", "triton", scans),
    Foreign("Triton: all_reduce through peers' pointers", "triton", all_reduce),
    of_matrices("bfloat16, wgmma", "bf16", torch.bfloat16, 90),
    of_matrices("float8_e5m2, wgmma", "fp8e5", torch.float8_e5m2, 90),
    of_matrices("float32 as tf32, mma.sync", "fp32", torch.float32, 80),
)
