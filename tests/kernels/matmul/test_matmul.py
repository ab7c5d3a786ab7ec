"""The matmul of kernels/matmul in the simulator: exact integers at odd shapes, normal data against an oracle of wgmma,
other orders of threads, races."""

import cutlass
import numpy as np
import pytest
import torch

import symlab
from kernels.catalogue import MATMUL_FILES, find
from kernels.dsl import bulk
from kernels.fused import tuning_of
from kernels.matmul.matmul import Matmul
from kernels.matmul.tuning import Tuning
from tests.simulator.isa.products_oracle import summed

ALONE, TWO = Tuning(cluster=1), Tuning(cluster=2, panel=1)
KINDS = {torch.bfloat16: (cutlass.BFloat16, "bf16"), torch.float16: (cutlass.Float16, "f16")}
CHECKED = 30
"""Elements of a result of normal data that are computed from fractions."""


def ran(tuning, a, b, blocks=4, kind="tensor", **how):
    """C, and what the race checker found."""
    made = Matmul(KINDS[a.dtype][0], tuning)
    buffers = {"a": a, "b": b, "c": ((len(a), len(b)), a.dtype)}
    arguments = [*((kind, name) for name in buffers), ("u32", blocks)]
    done = symlab.simulate(made, ranks=1, arch="sm_90a", buffers=buffers, arguments=arguments, **how)
    return done.outputs["c"][0], done.findings


def integers(rows, columns, depth, dtype=torch.bfloat16):
    made = torch.Generator().manual_seed(rows * columns + depth)
    return [torch.randint(-4, 5, shape, generator=made).to(dtype) for shape in ((rows, depth), (columns, depth))]


def rounded(a, b):
    return (a.float() @ b.float().T).to(a.dtype)


@pytest.mark.parametrize(
    ("tuning", "shape"),
    [
        (ALONE, (128, 256, 64)),
        (ALONE, (200, 328, 200)),
        (TWO, (600, 520, 264)),
        (TWO, (8, 8, 8)),
        (Tuning(columns=128, stages=6, cluster=2, along="n", panel=2), (300, 400, 136)),
        (Tuning(columns=64, stages=2, chunks=1, cluster=2, panel=3), (1100, 200, 72)),
        (Tuning(columns=192, stages=3, chunks=1, cluster=2), (130, 392, 320)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
def test_integers_give_what_torch_computes(tuning, shape, dtype):
    a, b = integers(*shape, dtype)
    found, _ = ran(tuning, a, b, schedule="fair")
    assert torch.equal(found, rounded(a, b))


@pytest.mark.parametrize("tuning", [ALONE, TWO], ids=str)
def test_shapes_may_be_known_at_run_time_only_and_threads_come_in_any_order(tuning):
    a, b = integers(300, 264, 200)
    found, _ = ran(tuning, a, b, kind="dynamic_tensor", schedule="random", seeds=2)
    assert torch.equal(found, rounded(a, b))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 6, 132])
def test_any_number_of_blocks_computes_all_tiles(blocks):
    a, b = integers(1300, 264, 64)
    found, _ = ran(TWO, a, b, blocks, schedule="fair")
    assert torch.equal(found, rounded(a, b))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_normal_data_give_the_bits_of_one_sum_an_instruction(dtype):
    made = torch.Generator().manual_seed(5)
    a, b = (torch.randn(shape, generator=made).to(dtype) for shape in ((150, 96), (264, 96)))
    found, _ = ran(TWO, a, b, schedule="fair")
    kind = KINDS[dtype][1]
    left, right = (one.view(torch.uint16).numpy().astype(int) for one in (a, b))
    drawn = np.random.default_rng(7)
    for row, column in zip(drawn.integers(0, 150, CHECKED), drawn.integers(0, 264, CHECKED), strict=True):
        code = 0
        for low in range(0, 96, 16):
            pairs = zip(left[row, low : low + 16].tolist(), right[column, low : low + 16].tolist(), strict=True)
            code = summed(list(pairs), code, ("f32", kind, kind), 25, 23)
        expected = torch.tensor([code], dtype=torch.uint32).view(torch.float32).to(dtype)
        assert torch.equal(expected[0], found[row, column]), (row, column)


@pytest.mark.parametrize("tuning", [ALONE, TWO], ids=str)
def test_there_are_no_races(tuning):
    """Copies to two blocks and the wgmma of the other block have a proxy in common, and not the block: known GPUs need
    no fence there."""
    a, b = integers(300, 264, 392)
    found, findings = ran(tuning, a, b, schedule="fair", races=True)
    assert torch.equal(found, rounded(a, b))
    told = {(one.severity, one.missing) for one in findings}
    assert told == ({("formal", "fence.proxy.async")} if tuning.cluster > 1 else set())


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "chunks"), [(64, 1), (192, 1), (192, 3), (256, 2)])
def test_a_chunk_is_filled_again_when_it_was_read(columns, chunks, monkeypatch):
    tuning, (a, b) = Tuning(columns=columns, chunks=chunks, stages=3), integers(300, 264, 72)
    found, findings = ran(tuning, a, b, 2, schedule="fair", races=True)
    assert torch.equal(found, rounded(a, b))
    assert not findings
    monkeypatch.setattr(bulk, "await_read", lambda *_: None)
    assert ran(tuning, a, b, 2, schedule="fair", races=True)[1]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"columns": 96}, "64, 128, 192 or 256"),
        ({"stages": 5}, "give fewer"),
        ({"stages": 1}, "give fewer"),
        ({"cluster": 4}, "cluster is 1 or 2"),
        ({"chunks": 3}, "chunks divide"),
        ({"in_flight": 0}, "in_flight is 1"),
    ],
    ids=str,
)
def test_a_tuning_that_can_not_be_is_refused(values, text):
    with pytest.raises(ValueError, match=text):
        Tuning(**values)


MEASURED_US = {
    (4096, 5120, 8192): (504.6, 540.4, 522.5),
    (16384, 2560, 8192): (1029.2, 1097.6, 1063.2),
    (4096, 2560, 8192): (292.4, 298.1, 247.7),
    (512, 5120, 8192): (86.2, 67.2, 94.0),
    (512, 2560, 8192): (77.2, 60.7, 42.5),
    (4096, 8192, 4096): (415.4, 435.0, 431.4),
    (4096, 4096, 7168): (358.6, 413.6, 371.7),
    (16384, 8192, 2048): (853.4, 837.6, 855.9),
    (512, 8192, 2048): (28.7, 42.6, 30.2),
    (512, 8192, 7168): (93.2, 142.2, 97.5),
    (4096, 8192, 2048): (213.6, 222.4, 221.6),
    (4096, 7168, 4096): (363.8, 400.3, 377.9),
    (16384, 7168, 4096): (1485.8, 1487.0, 1500.4),
    (4096, 8192, 7168): (727.7, 764.8, 753.8),
    (8192, 8192, 8192): (1656.3, 1657.5, 1713.1),
}
"""M, N, K: an H200's time (us) by tiles of 256, 192 and 128 columns, 28 November 2026."""


@pytest.mark.parametrize("shape", MEASURED_US)
def test_tiles_have_the_columns_that_were_measured_fastest(shape):
    times = dict(zip((256, 192, 128), MEASURED_US[shape], strict=True))
    chosen = tuning_of(symlab.case("matmul/tiles", gemm=shape)).columns
    assert times[chosen] <= 1.02 * min(times.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", MATMUL_FILES)
def test_every_tuning_that_may_be_chosen_compiles(name):
    spec, chosen = find(name), set()
    for shape in ((512, 2560, 64), (512, 5120, 64), (4096, 8192, 64)):
        case = symlab.case(name, gemm=shape)
        launch = spec.made(case, "sm_90a").host.launch
        assert launch.grid == spec.launch(case).grid
        chosen.add(tuning_of(case).columns)
    assert chosen == {128, 192, 256}
