"""CuTe DSL's GEMMs for Blackwell, unmodified: dense ones, and those with a collective over ranks.

pytest --cutlass-checkout DIR takes them from a checkout of NVIDIA/cutlass; without it the dense ones are those that lie
in FlashInfer's wheel, and the others are skipped. Nothing here has been held against a GPU.
"""

import re

import numpy as np
import pytest
import torch

import symlab
from tests.foreign import blackwell_gemms
from tests.foreign.blackwell_gemms import (
    ALL_REDUCE,
    LAMPORT,
    LOADS,
    REDUCE_SCATTER,
    SCALED,
    Gemm,
    ScaledGemm,
    changed,
    compiled,
    dense,
    gated,
    grouped,
    integers,
    ran,
    ran_grouped,
    scaled_integers,
)
from tests.foreign.cutlass_examples import folder_of
from tests.foreign.test_cutlass_hopper import check_bits, normal, verdict

pytestmark = pytest.mark.slow
CHECKED = 40


@pytest.fixture(scope="module")
def checkout(request):
    found = blackwell_gemms.checkout_of(request)
    if found is None:
        pytest.skip("--cutlass-checkout DIR, a checkout of NVIDIA/cutlass")
    return found


@pytest.fixture(scope="module")
def folder(request):
    return folder_of(request, blackwell_gemms.DENSE, "blackwell")


FLOAT8 = torch.float8_e4m3fn
GEMMS = [
    Gemm(128, 128, 128, (128, 128)),
    Gemm(128, 64, 128, (64, 64)),
    Gemm(256, 128, 128, (128, 64), dtype=FLOAT8),
    Gemm(256, 128, 128, (256, 128), (2, 1), True),
    Gemm(256, 128, 128, (128, 64), (2, 1), True),
    Gemm(512, 256, 128, (256, 128), (4, 2), True, dtype=FLOAT8),
    Gemm(256, 256, 128, (256, 128), (2, 1), True, clusters=1),
]


def product(folder, gemm, a, b, **how):
    buffers = {"a": a, "b": b, "c": ((gemm.rows, gemm.columns), torch.float32)}
    arguments = [("tensor", name) for name in buffers]
    done = symlab.simulate(dense(folder, gemm), ranks=1, arch="sm_100a", buffers=buffers, arguments=arguments, **how)
    return done.outputs["c"][0], done.findings


@pytest.mark.parametrize("order", [{"schedule": "fair"}, {"schedule": "random", "seeds": 2}], ids=str)
@pytest.mark.parametrize("gemm", GEMMS, ids=str)
def test_integers_give_what_torch_computes(folder, gemm, order):
    (a,), (b,) = integers(gemm)
    found, _ = product(folder, gemm, a, b, **order)
    assert torch.equal(found, a.float() @ b.float().T)


def test_a_gemm_that_asks_for_the_work_of_other_clusters(checkout):
    gemm = Gemm(256, 256, 128, (128, 128), clusters=-1)
    (a,), (b,) = integers(gemm)
    for order in ({"schedule": "fair"}, {"schedule": "random", "seeds": 2}):
        found, _ = product(checkout / blackwell_gemms.DENSE, gemm, a, b, **order)
        assert torch.equal(found, a.float() @ b.float().T)


@pytest.mark.parametrize("gemm", [GEMMS[0], GEMMS[2], GEMMS[3], GEMMS[4]], ids=str)
def test_normal_data_give_the_bits_of_one_sum_an_instruction(folder, gemm):
    a, b = normal(gemm)
    found, _ = product(folder, gemm, a, b, schedule="fair")
    check_bits(found, a, b, (25, 23), CHECKED)


STORE = "cp.async.bulk.tensor.2d.global"


@pytest.mark.parametrize("gemm", [GEMMS[1], GEMMS[3], GEMMS[6]], ids=str)
def test_the_race_checker_finds_the_stores_of_all_lanes_alone(folder, gemm):
    """As in those for Hopper: each lane of a warp issues the stores of C, with the same bytes. CuTe DSL
    has no tcgen05.fence and no wait for loads."""
    (a,), (b,) = integers(gemm)
    _, findings = product(folder, gemm, a, b, schedule="fair", races=True)
    assert {one[:2] for one in verdict(findings) if one[0] != "race"} == {
        ("formal", "tcgen05.wait::ld"),
        ("formal", "tcgen05.fence::after_thread_sync"),
    }
    sides = [side for one in findings if one.severity == "race" for side in (one.first, one.second)]
    assert {side.text.split(".shared")[0] for side in sides} <= {STORE}


# With a collective


TWO = Gemm(512, 256, 128, (256, 128), (2, 1), True, clusters=1)
ONE = Gemm(256, 128, 128, (128, 128), (1, 1), False, clusters=2)
RANKS = 2
READ = r"wait_group\.read\s+0;"
WRITTEN = (READ, "wait_group 0;")
"""What the stores of a tile's C need before its flag."""
BY_FLAG = (REDUCE_SCATTER, ALL_REDUCE, LOADS)
ORDERS = [{"schedule": "fair"}, {"schedule": "random", "seed": 1}, {"schedule": "random", "seed": 2}]


def expected(a, b, exchange):
    total = sum(one.float() @ other.float().T for one, other in zip(a, b, strict=True)).to(a[0].dtype)
    return total.chunk(RANKS) if exchange is REDUCE_SCATTER else [total] * RANKS


POISON = re.compile(r"tensor 'c' of \d+ bytes\): never written \(poison\)")


def is_right(kernels, exchange, gemm, **order):
    """Whether all ranks have the exact sums. A rank that reads a part of C before it is written has not."""
    a, b = integers(gemm, RANKS)
    try:
        found, _ = ran(kernels, exchange, gemm, a, b, **order)
    except symlab.WorldFailure as failure:
        if not POISON.search(failure.message):
            raise
        return False
    return all(torch.equal(*pair) for pair in zip(found, expected(a, b, exchange), strict=True))


@pytest.mark.parametrize("gemm", [TWO, ONE], ids=str)
@pytest.mark.parametrize("exchange", BY_FLAG, ids=lambda one: one.kernel)
def test_a_rank_reads_what_another_has_not_yet_written(checkout, exchange, gemm):
    """NVIDIA's kernels as they are: behind cp.async.bulk.wait_group.read a tile may be on its way when its flag is set.
    With a wait for the writes all orders give the exact sums."""
    kernels = compiled(checkout, exchange, gemm, RANKS)
    more = [{"schedule": "random", "seed": seed} for seed in range(3, 12)]
    assert not all(is_right(kernels, exchange, gemm, **order) for order in (*ORDERS, *more))
    mended = changed(kernels, WRITTEN)
    assert all(is_right(mended, exchange, gemm, **order) for order in ORDERS)


GROUPS = [(128, 128, 64), (256, 128, 128), (64, 256, 192)]


@pytest.mark.parametrize("in_shared", [True, False], ids=["shared", "global"])
def test_a_grouped_gemm_changes_its_maps_from_group_to_group(checkout, in_shared):
    """It changes a map while its own copies by it may be under way: PTX does not say that they have read it."""
    a, b = zip(*(next(zip(*integers(Gemm(*one, (128, 128))), strict=True)) for one in GROUPS), strict=True)
    kernel = grouped(checkout, GROUPS, 2, in_shared)
    for order in ORDERS:
        found, _ = ran_grouped(kernel, GROUPS, a, b, 2, **order)
        assert all(torch.equal(one, x.float() @ y.float().T) for one, x, y in zip(found, a, b, strict=True))
    _, findings = ran_grouped(kernel, GROUPS, a, b, 2, schedule="fair", races=True)
    changes = "tensormap.cp_fenceproxy" if in_shared else "tensormap.replace"
    told = {(one.severity, one.missing) for one in findings if changes in one.first.text + one.second.text}
    assert told == {("race", "a wait for the copy")}


NV4 = {"tile": (128, 128), "clusters": 2}
PAIRED = {"tile": (256, 128), "cluster": (2, 1), "pair": True, "clusters": 1}
E8M0 = {"scale": "Float8E8M0FNU", "vector": 32}
SCALED_GEMMS = [
    ScaledGemm(256, 128, 256, **NV4),
    ScaledGemm(512, 128, 256, **PAIRED),
    ScaledGemm(256, 128, 256, **PAIRED, **E8M0),
    ScaledGemm(256, 256, 256, (128, 256), clusters=2, **E8M0),
    ScaledGemm(256, 128, 256, **NV4, **E8M0, element="Float8E4M3FN", bits=8),
    ScaledGemm(256, 256, 256, (256, 256), (2, 1), True, 1, **E8M0, element="Float8E5M2", bits=8),
]


@pytest.mark.parametrize("gemm", SCALED_GEMMS, ids=str)
def test_scale_factors_are_those_of_their_blocks(checkout, gemm):
    """GEMM + all_reduce with block scales, exact in float32 and bfloat16. As it is it hands on too early, too."""
    kernels, made = compiled(checkout, SCALED, gemm, RANKS), np.random.default_rng(3)
    a, b = ([scaled_integers(gemm, rows, made) for _ in range(RANKS)] for rows in (gemm.rows, gemm.columns))
    total = sum(one[2] @ other[2].T for one, other in zip(a, b, strict=True))
    assert total.abs().max() <= 256
    matrices, scales = ([[one[at] for one in some] for some in (a, b)] for at in (0, 1))

    def is_exact(kernels, **order):
        try:
            found, _ = ran(kernels, SCALED, gemm, *matrices, scales, **order)
        except symlab.WorldFailure as failure:
            if not POISON.search(failure.message):
                raise
            return False
        return all(torch.equal(one.double(), total) for one in found)

    assert all(is_exact(changed(kernels, WRITTEN), **order) for order in ORDERS)
    if gemm == SCALED_GEMMS[0]:
        assert not all(is_exact(kernels, schedule="random", seed=seed) for seed in range(10))


def test_the_values_of_lamport_are_flags_if_loads_of_16_bytes_are_whole(checkout):
    """It looks at the last 4 bytes of 16. PTX does not promise that the others came with them."""
    kernels = compiled(checkout, LAMPORT, TWO, RANKS)
    assert all(is_right(kernels, LAMPORT, TWO, granularity="block", **order) for order in ORDERS)
    assert not is_right(kernels, LAMPORT, TWO, schedule="random", seed=1)


FLAG = {REDUCE_SCATTER: "red.release.gpu", ALL_REDUCE: "multimem.red.release.gpu", LOADS: "multimem.red.release.gpu"}


@pytest.mark.parametrize("exchange", BY_FLAG, ids=lambda one: one.kernel)
def test_what_the_race_checker_says_of_the_hand_over(checkout, exchange):
    """With the wait for the writes, so that it runs to its end: the flag is released in the scope of one GPU, and GPUs
    that read the tile are others."""
    kernels = changed(compiled(checkout, exchange, ONE, RANKS), WRITTEN)
    a, b = integers(ONE, RANKS)
    _, findings = ran(kernels, exchange, ONE, a, b, schedule="fair", races=True)
    narrow = [one for one in findings if one.missing == "a wider scope"]
    assert any(side.text.startswith(FLAG[exchange]) for one in narrow for side in (one.first, one.second))
    assert any(one.first.text.startswith(STORE) and one.first.rank != one.second.rank for one in findings)


@pytest.mark.parametrize("flag", [0, 1])
def test_a_gemm_waits_for_the_flag_of_gathered_rows(checkout, flag):
    """Its host copies rows and sets a flag behind them: here both are there, or the flag never comes."""
    (a,), (b,) = integers(TWO)
    buffers = {"a": a, "b": b, "c": ((TWO.rows, TWO.columns), torch.float32)}
    buffers["flags"] = torch.tensor([0, flag, 0, 0], dtype=torch.int32)
    how = {"ranks": 1, "arch": "sm_100a", "buffers": buffers, "arguments": [("tensor", one) for one in buffers]}
    if not flag:
        with pytest.raises(symlab.WorldFailure, match="deadlock in function"):
            symlab.simulate(gated(checkout, TWO), schedule="fair", **how)
        return
    found = symlab.simulate(gated(checkout, TWO), seeds=2, **how).outputs["c"][0]
    assert torch.equal(found, a.float() @ b.float().T)
