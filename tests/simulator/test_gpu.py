"""How many blocks fit on a GPU at once: against what the CUDA driver answered, and against cases worked out by hand."""

from dataclasses import replace

import pytest

from runner.gpu.names import gpu_names
from runner.request.gpu_types import GpuAsked
from simulator.gpu import Need, block_shared_bytes, check_fit, fit, limited
from tests.golden import refused


def known(name):
    return GpuAsked(name).type().limits


DYNAMIC_BYTES = (0, 1000, 7168, 20_000, 49_000, 100_000, 115_712, 227_328)
MEASURED = {
    (8, 0, 32): (32, 32, 28, 11, 4, 2, 2, 1),
    (8, 0, 96): (21, 21, 21, 11, 4, 2, 2, 1),
    (8, 0, 160): (12, 12, 12, 11, 4, 2, 2, 1),
    (8, 0, 1024): (2, 2, 2, 2, 2, 2, 2, 1),
    (32, 0, 384): (5, 5, 5, 5, 4, 2, 2, 1),
    (48, 0, 32): (32, 32, 28, 11, 4, 2, 2, 1),
    (48, 0, 160): (8, 8, 8, 8, 4, 2, 2, 1),
    (48, 0, 1024): (1, 1, 1, 1, 1, 1, 1, 1),
    (72, 1000, 1): (28, 28, 25, 10, 4, 2, 1, 1),
    (72, 1000, 96): (9, 9, 9, 9, 4, 2, 1, 1),
    (72, 1000, 160): (5, 5, 5, 5, 4, 2, 1, 1),
    (72, 1000, 1024): (0, 0, 0, 0, 0, 0, 0, 0),
    (96, 0, 32): (20, 20, 20, 11, 4, 2, 2, 1),
    (96, 0, 160): (4, 4, 4, 4, 4, 2, 2, 1),
    (96, 0, 768): (0, 0, 0, 0, 0, 0, 0, 0),
    (128, 5000, 32): (16, 16, 16, 8, 4, 2, 1, 1),
    (128, 5000, 160): (3, 3, 3, 3, 3, 2, 1, 1),
    (168, 0, 96): (4, 4, 4, 4, 4, 2, 2, 1),
    (168, 0, 160): (2, 2, 2, 2, 2, 2, 2, 1),
    (254, 0, 32): (8, 8, 8, 8, 4, 2, 2, 1),
    (254, 0, 96): (2, 2, 2, 2, 2, 2, 2, 1),
    (254, 0, 160): (1, 1, 1, 1, 1, 1, 1, 1),
}
"""cuOccupancyMaxActiveBlocksPerMultiprocessor on an NVIDIA H100 80GB HBM3, driver 580: by registers of a thread, bytes of
static shared memory and threads, for each of DYNAMIC_BYTES. The kernel with 1,000 static bytes declares no more."""


@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: f"{shape[0]}registers-{shape[1]}bytes-{shape[2]}threads")
def test_an_h100_holds_what_its_driver_says(shape):
    registers, static_bytes, threads = shape
    for dynamic, count in zip(DYNAMIC_BYTES, MEASURED[shape], strict=True):
        if static_bytes + dynamic <= 232_448:
            found = fit(known("h100"), Need(threads, static_bytes + dynamic, registers))
            assert found.per_multiprocessor == count, dynamic


def test_the_blocks_that_ran_on_an_h200_at_once():
    """Each block counted itself and spun for 50 ms: so many had begun when the first gave up."""
    h200 = known("h200")
    assert fit(h200, Need(1024, 0)).blocks == 264
    assert fit(h200, Need(512, 0)).blocks == 528
    assert fit(h200, Need(64, 40_000)).blocks == 660


@pytest.mark.parametrize(("barriers", "blocks"), [(1, 32), (2, 32), (4, 16), (16, 4)])
def test_numbered_barriers_as_an_h200_has_them(barriers, blocks):
    assert fit(known("h200"), Need(32, 0, 8, barriers)).per_multiprocessor == blocks


def test_cases_worked_out_by_hand():
    """A B200: 148 x 2 blocks of 1,024 threads. An A100 has 164 KiB of shared memory: of 80 KiB + 1 KiB two blocks fit, of
    82 KiB + 1 KiB one. 40 registers of 32 threads are 1,280, five units of 256: a partition's 16,384 registers hold 12
    such warps, four partitions 48, and so 6 blocks of 8 warps."""
    assert fit(known("b200"), Need(1024, 0)).blocks == 296
    assert fit(known("gb200"), Need(1024, 0)).blocks == 304
    assert fit(known("a100"), Need(128, 80 << 10)).per_multiprocessor == 2
    assert fit(known("a100"), Need(128, 82 << 10)).per_multiprocessor == 1
    assert fit(known("a100"), Need(256, 0, 40)).per_multiprocessor == 6
    assert fit(known("a100"), Need(256, 0, 41)).per_multiprocessor == 5  # six units: 10 warps a partition


def test_a_block_is_refused_as_if_it_had_a_multiple_of_four_warps():
    """cuda_occupancy.h calls it the hardware's check. 5 warps of 200 registers take 32,000; as 8 warps they take 51,200."""
    half = replace(known("h100"), registers_per_block=32_768)
    assert fit(half, Need(160, 0, 200)).per_multiprocessor == 0
    assert fit(half, Need(128, 0, 200)).per_multiprocessor == 2
    assert fit(known("h100"), Need(160, 0, 200)).per_multiprocessor == 1


def test_unknown_registers_limit_nothing_and_known_ones_do():
    assert fit(known("h100"), Need(1024, 0, None)).limits == ("threads",)
    assert fit(known("h100"), Need(1024, 0, 64)).limits == ("registers",)


def test_clusters_fit_whole():
    """Of 2 x 5 places three clusters of 3 blocks take nine; the tenth stays empty."""
    small = replace(known("h100"), multiprocessors=5)
    assert fit(small, Need(1024, 0), (3, 1, 1)).blocks == 9
    assert fit(small, Need(1024, 0), (1, 2, 2)).blocks == 8
    assert fit(replace(small, multiprocessors=1), Need(1024, 0), (3, 1, 1)).blocks == 0


def test_clusters_are_counted_as_if_they_fitted_anywhere():
    """What cuOccupancyMaxActiveClusters says of an H100 80GB HBM3 is less from clusters of 4 on: groups of
    multiprocessors have sizes of their own. simulator/README.md says so."""
    measured = {1: 264, 2: 132, 4: 62, 8: 30}
    counted = {size: fit(known("h100"), Need(1024, 0), (size, 1, 1)).blocks // size for size in measured}
    assert counted == {1: 264, 2: 132, 4: 66, 8: 33}
    assert all(counted[size] >= measured[size] for size in measured)


SMALL = {"threads_per_block": 512, "barriers_per_multiprocessor": 8}


@pytest.mark.parametrize(
    ("name", "change", "need", "blocks", "cluster"),
    [
        ("h100", {}, Need(1024, 0, 80), 64, 1),
        ("a100", {}, Need(128, 200_000), 64, 1),
        ("a100", {}, Need(128, 0), 64, 2),
        ("h100", {}, Need(128, 0), 64, 32),
        ("h100", SMALL, Need(1024, 0), 1, 1),
        ("h100", SMALL, Need(64, 0, 8, 16), 1, 1),
        ("h100", {"multiprocessors": 2}, Need(1024, 0), 8, 8),
    ],
)
def test_what_never_fits_is_refused(name, change, need, blocks, cluster):
    with refused() as caught:
        check_fit("mine", replace(known(name), **change), need, blocks, (cluster, 1, 1), is_cooperative=False)
    assert "\n" not in str(caught.value)


def test_a_cooperative_launch_is_refused_from_one_block_too_many():
    how = ("mine", known("h100"), Need(1024, 0))
    assert check_fit(*how, 264, (1, 1, 1), is_cooperative=True).blocks == 264
    assert check_fit(*how, 265, (1, 1, 1), is_cooperative=False).blocks == 264
    with refused():
        check_fit(*how, 265, (1, 1, 1), is_cooperative=True)


@pytest.mark.parametrize("name", gpu_names())
def test_the_shared_memory_of_an_architecture_is_that_of_its_gpus(name):
    gpu = known(name)
    assert block_shared_bytes(gpu.arch, None) == block_shared_bytes(gpu.arch, gpu) == gpu.shared_bytes_per_block


def test_a_named_gpu_decides_on_the_shared_memory_of_a_block():
    small = replace(known("h100"), shared_bytes_per_block=1000)
    assert [block_shared_bytes(arch, None) for arch in ("sm_90a", "sm_120a", "sm_89")] == [232448, 101376, 101376]
    assert block_shared_bytes("sm_90a", small) == 1000


@pytest.mark.parametrize("name", gpu_names())
def test_every_described_gpu_is_one(name):
    """What a block can have, a multiprocessor has: with what is reserved, and in whole units."""
    gpu = known(name)
    assert gpu.name == name
    assert gpu.shared_bytes_per_block + gpu.reserved_shared_bytes_per_block <= gpu.shared_bytes_per_multiprocessor
    assert gpu.shared_bytes_per_multiprocessor % gpu.shared_unit_bytes == 0
    assert gpu.registers_per_multiprocessor % (gpu.partitions * gpu.register_unit) == 0
    assert gpu.threads_per_block <= gpu.threads_per_multiprocessor
    assert limited(gpu, fit(gpu, Need(1024, 0))) == f"{gpu.multiprocessors} multiprocessors x 2, limited by threads"
