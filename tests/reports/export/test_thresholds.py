"""Dictionaries of vLLM and SGLang: what these programs then take at every size, and which records entitle to what."""

from dataclasses import replace

import pytest

from cases.record.nccl_settings import NcclAlgorithm, NcclSettings
from reports.export.thresholds import VLLM_ONE_SHOT, VLLM_TWO_SHOT, sglang_sizes, vllm_kernel, vllm_sizes
from reports.record.bundle import digest
from tests.golden import refused
from tests.reports.export.serving import (
    dictionaries,
    serving,
    sglang_takes_symmetric,
    us,
    vllm_takes_own,
    vllm_takes_symmetric,
)
from tests.reports.export.sweeps import SIZES, timed
from tests.reports.synthetic import KIB, MIB, with_case, with_environment

FLASHINFER = ("flashinfer/vllm_one_shot", "flashinfer/vllm_two_shot")

EXACT = (8 * 1e3) / (1 / 260.0 - 1 / 320.0)
"""Bytes at which the invented times of multimem and of NCCL are equal."""


@pytest.mark.parametrize("size", [*SIZES, 10 * MIB, 12 * MIB])
def test_vllm_takes_the_faster_of_symmetric_memory_and_nccl(size):
    text = vllm_sizes(serving())
    is_faster = us("torch/multimem_staged", size) < us("nccl", size)
    assert vllm_takes_symmetric(text, "9.0", 4, size) == is_faster
    assert not vllm_takes_symmetric(text, "9.0", 8, size)
    assert not vllm_takes_symmetric(text, "10.0", 4, size)


def test_the_numbers_are_where_the_times_are_equal():
    """vLLM takes sizes up to its number for symmetric memory, and below it for its own kernels; SGLang below it."""
    vllm, sglang = dictionaries(vllm_sizes(serving())), dictionaries(sglang_sizes(serving()))
    most = vllm["SYMM_MEM_ALL_REDUCE_MAX_SIZES"]["9.0"][4]
    assert most == pytest.approx(EXACT, abs=2)
    assert sglang["TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES"][9][4] == (most // 4 + 1) * 4
    own = vllm["CUSTOM_ALL_REDUCE_MAX_SIZES"]["9.0"][4]
    assert own % 16 == 0
    assert set(vllm) == {"SYMM_MEM_ALL_REDUCE_MAX_SIZES", "CUSTOM_ALL_REDUCE_MAX_SIZES"}


@pytest.mark.parametrize("size", SIZES)
def test_sglang_takes_the_faster_of_symmetric_memory_and_nccl(size):
    is_faster = us("torch/multimem_staged", size) < us("nccl", size)
    assert sglang_takes_symmetric(sglang_sizes(serving()), 9, 4, size) == is_faster


@pytest.mark.parametrize("size", [size for size in SIZES if size <= 4 * MIB])
def test_vllm_takes_its_own_kernels_where_they_are_faster_than_what_comes_after(size):
    text = vllm_sizes(serving())
    after = min(us("torch/multimem_staged", size), us("nccl", size))
    assert vllm_takes_own(text, "9.0", 4, size) == (us(vllm_kernel(size, 4), size) < after)


def test_where_all_measured_sizes_win_the_largest_is_the_last():
    sizes = SIZES[:6]
    text, other = vllm_sizes(serving(sizes=sizes)), sglang_sizes(serving(sizes=sizes))
    assert vllm_takes_symmetric(text, "9.0", 4, sizes[-1])
    assert not vllm_takes_symmetric(text, "9.0", 4, sizes[-1] + 4)
    assert sglang_takes_symmetric(other, 9, 4, sizes[-1])
    assert not sglang_takes_symmetric(other, 9, 4, sizes[-1] + 4)


def test_the_kernel_is_the_one_that_the_program_takes_on_so_many_ranks():
    """Two ranks of capability 9.0 are not in the list of multimem of either program."""
    two = serving(world_size=2)
    most = dictionaries(vllm_sizes(two))["SYMM_MEM_ALL_REDUCE_MAX_SIZES"]["9.0"][2]
    assert most == pytest.approx((7 * 1e3) / (1 / 240.0 - 1 / 320.0), abs=2)
    assert [vllm_kernel(size, 4) for size in (512 * KIB - 16, 512 * KIB)] == [VLLM_ONE_SHOT, VLLM_TWO_SHOT]
    assert [vllm_kernel(size, 8) for size in (256 * KIB - 16, 256 * KIB)] == [VLLM_ONE_SHOT, VLLM_TWO_SHOT]
    assert vllm_kernel(MIB, 2) == VLLM_ONE_SHOT


def test_the_files_say_what_they_were_made_of_and_what_they_lack():
    found = serving(*FLASHINFER)
    for text in (vllm_sizes(found), sglang_sizes(found)):
        assert f"records {digest(found)}" in text
        assert "# 4 x Invented GPU (sm_90a), bfloat16, graph, window kernel, L2 rotate" in text
        assert "regret on sizes left out: " in text
        assert "up to 256 MiB measured" in text
    assert vllm_sizes(serving()).count("regret on sizes left out: ") == 2
    assert "no CUSTOM_ALL_REDUCE_MAX_SIZES: no record of vLLM's own kernels; run" in vllm_sizes(found)
    assert "no thresholds of custom_all_reduce_v2" in sglang_sizes(found)


def under_settings(one):
    return replace(one, library=NcclSettings(NcclAlgorithm.Ring).named("NCCL 0.0.0"))


def simulated(one):
    return replace(one, timing=None, library="", fabric=replace(one.fabric, simulated=True))


def eager(one):
    return replace(one, timing=replace(one.timing, mode="eager"))


def told(one):
    return with_environment(one, variables={"allowed": {"NCCL_TUNER_CONFIG_FILE": "x.csv"}})


STAGED = ("torch/multimem_staged", "torch/two_shot_staged")


@pytest.mark.parametrize(
    "found",
    [
        [],
        serving(multicast=False),
        [simulated(one) for one in serving()],
        [eager(one) for one in serving()],
        [with_case(one, dtype="float32") for one in serving()],
        serving(*STAGED),
        serving("nccl"),
        [under_settings(one) if one.case.algorithm == "nccl" else one for one in serving()],
        [told(one) for one in serving()],
        serving(world_size=3),
        serving(sizes=SIZES[:3]),
        [*serving(), *serving(world_size=2)],
        [with_case(one, algorithm=one.case.algorithm.removesuffix("_staged")) for one in serving(*FLASHINFER)],
        [timed(one, 1e6) if one.case.algorithm == "torch/multimem_staged" else one for one in serving()],
    ],
)
def test_records_that_do_not_entitle_are_refused_in_one_line(found):
    """The last two lack the copies that both programs make, and never win."""
    for write in (vllm_sizes, sglang_sizes):
        with refused() as caught:
            write(found)
        assert "\n" not in str(caught.value)


def test_a_size_that_vllms_rule_needs_is_missed():
    lacking = [one for one in serving() if (one.case.algorithm, one.case.size_bytes) != (VLLM_TWO_SHOT, MIB)]
    with refused():
        vllm_sizes(lacking)
