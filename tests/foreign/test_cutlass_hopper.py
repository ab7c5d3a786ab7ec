"""CuTe DSL's dense GEMMs for Hopper, unmodified: the one with a tile a block, and the persistent one with a warp that
copies.

pytest --cutlass-checkout DIR takes them from a checkout of NVIDIA/cutlass; without it they are those that lie in
FlashInfer's wheel, where `make foreign` has installed it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import symlab
from tests.foreign.cutlass_examples import example, folder_of
from tests.simulator.isa.products_oracle import summed

pytestmark = pytest.mark.slow
FOLDER = Path("examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm")
CHECKED = 60
"""Elements of a result of normal data that are computed from fractions."""


@pytest.fixture(scope="module")
def folder(request):
    return folder_of(request, FOLDER, "hopper")


@dataclass(frozen=True)
class Gemm:
    """C = A B of (rows, depth) and (columns, depth). clusters: the most of the persistent kernel, 0 of the other one.
    majors: the dimension of A and of B whose elements follow each other."""

    rows: int
    columns: int
    depth: int
    tile: tuple
    cluster: tuple = (1, 1)
    clusters: int = 0
    dtype: torch.dtype = torch.bfloat16
    majors: str = "kk"


PLAIN = [
    Gemm(128, 128, 128, (128, 128)),
    Gemm(64, 256, 192, (64, 256), dtype=torch.float16),
    Gemm(128, 128, 128, (128, 128), majors="mn"),
    Gemm(128, 256, 256, (128, 128), dtype=torch.float8_e4m3fn),
    Gemm(256, 256, 128, (128, 128), (2, 1)),
]
PERSISTENT = [
    Gemm(256, 256, 256, (128, 128), clusters=2),
    Gemm(256, 384, 192, (128, 128), (1, 1), 4),
    Gemm(256, 256, 256, (128, 128), (2, 1), 1),
    Gemm(256, 256, 256, (128, 256), clusters=1, dtype=torch.float8_e5m2),
]


@cache
def host(folder, gemm):
    """A function that launches the example's kernel for matrices as they lie in memory."""
    import cutlass
    import cutlass.cute as cute

    if gemm.clusters:
        kernel = example(folder, "dense_gemm_persistent").HopperWgmmaGemmPersistentKernel
        made, more = kernel(cutlass.Float32, gemm.tile, gemm.cluster, 1, True), (gemm.clusters,)
    else:
        made = example(folder, "dense_gemm").HopperWgmmaGemmKernel(cutlass.Float32, gemm.tile, gemm.cluster)
        more = ()

    def laid(tensor, rows, columns, major):
        strides = (columns, 1) if major == "k" else (1, rows)
        return cute.make_tensor(
            tensor.iterator, cute.make_layout((rows, columns, 1), stride=(*strides, rows * columns))
        )

    @cute.jit
    def function(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        matrices = (
            laid(a, gemm.rows, gemm.depth, gemm.majors[0]),
            laid(b, gemm.columns, gemm.depth, gemm.majors[1]),
            laid(c, gemm.rows, gemm.columns, "k"),
        )
        no_stream = []
        made(*matrices, *more, no_stream)

    return function


def ran(folder, gemm, a, b, **how):
    """C, and what the race checker found."""
    lying = [one if major == "k" else one.T.contiguous() for one, major in zip((a, b), gemm.majors, strict=True)]
    buffers = {
        "a": lying[0],
        "b": lying[1],
        "c": ((gemm.rows, gemm.columns), torch.bfloat16 if gemm.dtype.itemsize == 1 else gemm.dtype),
    }
    arguments = [("tensor", name) for name in buffers]
    done = symlab.simulate(host(folder, gemm), ranks=1, arch="sm_90a", buffers=buffers, arguments=arguments, **how)
    return done.outputs["c"][0], done.findings


def exact(gemm, seed=3):
    made = torch.Generator().manual_seed(seed)
    return [torch.randint(-4, 5, shape, generator=made).to(gemm.dtype) for shape in shapes_of(gemm)]


def normal(gemm, seed=5):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).to(gemm.dtype) for shape in shapes_of(gemm)]


def shapes_of(gemm):
    return (gemm.rows, gemm.depth), (gemm.columns, gemm.depth)


@pytest.mark.parametrize("order", [{"schedule": "fair"}, {"schedule": "random", "seeds": 2}], ids=str)
@pytest.mark.parametrize("gemm", PLAIN + PERSISTENT, ids=str)
def test_integers_give_what_torch_computes(folder, gemm, order):
    a, b = exact(gemm)
    found, _ = ran(folder, gemm, a, b, **order)
    assert torch.equal(found, (a.float() @ b.float().T).to(found.dtype))


NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


def bits_of(tensor):
    kind = torch.uint8 if tensor.dtype.itemsize == 1 else torch.uint16
    return tensor.view(kind).numpy().astype(int)


def check_bits(found, a, b, how, checked):
    """Some elements of C against one sum of each instruction's products. how: of products_oracle.summed."""
    left, right, name, step = bits_of(a), bits_of(b), NAMES[a.dtype], 32 // a.dtype.itemsize
    made = np.random.default_rng(7)
    rows, columns = (made.integers(0, size, checked) for size in found.shape)
    for row, column in zip(rows, columns, strict=True):
        code = 0
        for low in range(0, left.shape[1], step):
            pairs = zip(left[row, low : low + step].tolist(), right[column, low : low + step].tolist(), strict=True)
            code = summed(list(pairs), code, ("f32", name, name), *how)
        expected = torch.tensor([code], dtype=torch.uint32).view(torch.float32).to(found.dtype)
        assert torch.equal(expected[0], found[row, column]), (row, column)


@pytest.mark.parametrize("gemm", PLAIN + PERSISTENT, ids=str)
def test_normal_data_give_the_bits_of_one_sum_an_instruction(folder, gemm):
    a, b = normal(gemm)
    found, _ = ran(folder, gemm, a, b, schedule="fair")
    check_bits(found, a, b, (13, 13) if gemm.dtype.itemsize == 1 else (25, 23), CHECKED)


def verdict(findings):
    """Each kind of finding once: severity, what is missing, and the opcodes."""
    return {
        (
            one.severity,
            one.missing,
            *(".".join(side.text.split()[0].split(".")[:5]) for side in (one.first, one.second)),
        )
        for one in findings
    }


STORE = COPY = "cp.async.bulk.tensor.2d"
WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16"


@pytest.mark.parametrize("gemm", [PLAIN[0], PLAIN[4], PERSISTENT[0], PERSISTENT[2]], ids=str)
def test_what_the_race_checker_says(folder, gemm):
    """All lanes of a warp issue each store of C, with the same bytes: they race with each other. Of the persistent
    kernel the compiler moves the zeros of accumulators behind wgmma.fence. Copies to two blocks and the wgmma of
    the other block have a proxy in common, and not the block: known GPUs need no fence there."""
    a, b = exact(gemm)
    _, findings = ran(folder, gemm, a, b, schedule="fair", races=True)
    found = verdict(findings)
    stores = {one for one in found if one[0] == "race"}
    assert {one[2:] for one in stores} == {(STORE, STORE)}
    assert {one[1] for one in stores} <= {"a wait for the copy", "cp.async.bulk.wait_group without .read"}
    expected = {("formal", "wgmma.fence", "mov.b32", WGMMA)} if gemm.clusters else set()
    if gemm.cluster != (1, 1):
        expected.add(("formal", "fence.proxy.async", COPY, WGMMA))
        if gemm.clusters:  # whose stages come again
            expected.add(("formal", "fence.proxy.async", WGMMA, COPY))
    assert found - stores == expected
    assert all("dense_gemm" in one.second.source for one in findings)
