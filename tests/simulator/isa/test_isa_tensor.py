"""Tensor copies against an oracle that moves one element after the other, and what is wrong with some."""

import multiprocessing
import time
from functools import partial

import pytest
import torch

from memory.driver import CudaDriver
from memory.fabric import Argument, Launch
from simulator.memory.tensor_map import decoded
from tests.golden import refused
from tests.simulator.harness import executable
from tests.simulator.isa import vectors_tensor as vectors
from tests.simulator.isa.tensor_maps import Map, case_of, encoded, narrow_cases, swizzled


@pytest.mark.parametrize("made", vectors.cases(), ids=str)
def test_a_box_is_loaded_and_stored(made):
    vectors.check_load(*made)
    if min(made[1]) >= 0:
        vectors.check_store(*made)


@pytest.mark.parametrize("made", list(narrow_cases()), ids=str)
def test_a_box_of_4_or_6_bits_is_loaded(made):
    vectors.check_load(*made)


BEYOND = {"element": "bf16", "swizzle": 128, "row": "whole", "corner": "beyond", "nan": True, "step": 1, "shared": 640}


@pytest.mark.parametrize("rank", range(1, 6))
def test_every_form_of_a_load(rank):
    made = case_of(rank, **BEYOND)
    vectors.check_load(*made, "shared::cluster")
    vectors.check_load(*made, "shared::cluster", 2)
    for group in vectors.GROUPS[1:]:
        vectors.check_load(*made, group=group)
        vectors.check_load(*made, "shared::cluster", 1, group=group)
        vectors.check_load(*made, "shared::cluster", 2, group=group)


@pytest.mark.parametrize(("made", "word"), list(vectors.reductions()), ids=str)
def test_a_box_is_combined(made, word):
    vectors.check_store(made, vectors.first_unit(made), 0, word)


@pytest.mark.parametrize(("made", "word"), vectors.refused_reductions(), ids=str)
def test_a_reduction_of_another_type_is_refused(made, word):
    vectors.check_refused(made, word)


def test_a_swizzle_is_a_permutation_of_its_pattern():
    for swizzle in (32, 64, 128):
        assert sorted(swizzled(one, swizzle) for one in range(swizzle * 8)) == list(range(swizzle * 8))
    assert [swizzled(128 * row, 128) // 16 % 8 for row in range(9)] == [*range(8), 0]
    assert [swizzled(128 * row, 64) // 16 % 8 for row in range(5)] == [0, 1, 2, 3, 0]


def test_a_map_by_the_driver_says_the_same():
    """CUDA's driver 580 for an H100 leaves the lowest bits 0 where CuTe DSL's host code sets 2; zeros are no map."""
    driver_s = bytes.fromhex("00000000000100009060040012000000" + "00" * 16 + "820000000a000000")  # of an H100, so far
    made = Map("u16", (131, 11), (288,), (64, 4), (1, 1), 128)
    by_host = by_host_code(made, 1 << 40)
    assert of_kind_0(by_host)[: len(driver_s)] == driver_s
    assert decoded(of_kind_0(by_host)) == decoded(by_host)
    with refused(ValueError):
        decoded(bytes(64))


def test_a_map_in_constant_memory_is_prefetched():
    def run(ptx, *rest):
        ptx = ptx.replace(
            "mov.b64 %m, kernel_map;", "mov.b64 %m, unused; prefetch.const.tensormap [%m]; mov.b64 %m, kernel_map;"
        )
        return vectors.simulated(ptx.replace(".visible", ".const .align 64 .b8 unused[128];\n.visible", 1), *rest)

    vectors.check_load(*case_of(2, **BEYOND), run=run)


def on_a_gpu(ptx, made, tensor, corner, shared, out, blocks, mapped):
    """As vectors.simulated. mapped: makes the map of a tensor at an address."""
    given, box = (torch.from_numpy(one).to("cuda:0") for one in (tensor, out))
    kinds = ("bytes", "address", *["u32"] * (2 + len(corner)))
    values = vectors.values_of(made, given.data_ptr(), corner, shared, box.data_ptr())
    values = (mapped(made, given.data_ptr()), *values[1:])
    driver = CudaDriver(0, 0)
    launch = Launch(blocks, vectors.BLOCK, cluster=blocks)
    driver.launch(executable(ptx), launch, tuple(map(Argument, kinds, values)))
    driver.wait(time.monotonic() + 10)
    return [one.cpu().numpy().tobytes() for one in (given, box)]


def on_gpus():
    """Each check of a GPU with its case, and who encodes the map."""
    checks = [(vectors.check_load, made) for made in vectors.cases()]
    checks += [(vectors.check_store, made) for made in vectors.cases() if min(made[1]) >= 0]
    for rank in range(1, 6):
        beyond = case_of(rank, **BEYOND)
        checks += [(vectors.check_load, (*beyond, "shared::cluster", blocks)) for blocks in (1, 2)]
        yield vectors.check_load, beyond, by_host_code
    checks += [(vectors.check_store, (made, vectors.first_unit(made), 0, word)) for made, word in vectors.reductions()]
    checks += [(vectors.check_refused, one) for one in vectors.refused_reductions()]
    yield from ((*one, encoded_by_the_driver) for one in checks)


NAMES = {"u": "UINT", "s": "INT", "f": "FLOAT"}


def encoded_by_the_driver(made, address):
    """A map by CUDA's driver, which reads no stride of one dimension but wants some."""
    from cuda.bindings import driver

    name = NAMES[made.element[0]] + made.element[-2:].lstrip("us") if made.element[0] != "b" else "BFLOAT16"
    kind = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    sizes, strides = ([driver.cuuint64_t(one) for one in values] for values in (made.sizes, made.strides or (16,)))
    box, steps = ([driver.cuuint32_t(one) for one in values] for values in (made.box, made.steps))
    modes = [
        driver.CUtensorMapInterleave(0),
        driver.CUtensorMapSwizzle((0, 32, 64, 128).index(made.swizzle)),
        driver.CUtensorMapL2promotion(2),
        driver.CUtensorMapFloatOOBfill(int(made.nan)),
    ]
    error, found = driver.cuTensorMapEncodeTiled(kind, len(sizes), address, sizes, strides, box, steps, *modes)
    assert not error, f"the driver says {error.name}"
    return b"".join(int(one).to_bytes(8, "little") for one in found.opaque)


def of_kind_0(half):
    """A half of a map with the lowest bits of its modes as the driver leaves them."""
    return half[:8] + bytes([half[8] & 0xF0]) + half[9:]


def by_host_code(made, address):
    """A map as CuTe DSL's host code encodes it, and zeros behind."""
    return encoded(made, address)[:64] + bytes(64)


def wrong_on_a_gpu(number):
    """What is wrong with a check, "" if nothing. In a process of its own: an error ends what a process has of a GPU."""
    check, case, mapped = list(on_gpus())[number]
    try:
        torch.zeros(1, device="cuda:0")
        found, expected = (one(case[0], 1 << 40)[:64] for one in (encoded_by_the_driver, by_host_code))
        expected = of_kind_0(expected)
        assert found == expected, f"the driver encodes {found.hex()}, not {expected.hex()}"
        check(*case, run=partial(on_a_gpu, mapped=mapped))
    except Exception as error:
        return f"{check.__name__} {mapped.__name__} {case}: {type(error).__name__}: {str(error)[:400]}"
    return ""


def has_tensor_copies(_):
    return torch.cuda.is_available() and torch.cuda.get_device_capability(0)[0] == 9


@pytest.mark.gpu
def test_a_gpu_leaves_what_the_oracle_says():
    numbers = range(len(list(on_gpus())))
    with multiprocessing.get_context("fork").Pool(12, maxtasksperchild=1) as pool:  # this process leaves CUDA alone
        if not pool.map(has_tensor_copies, [0])[0]:
            pytest.skip("there is no GPU of sm_90")
        wrong = [one for one in pool.map(wrong_on_a_gpu, numbers, chunksize=1) if one]
    assert wrong == [], "\n".join([f"{len(wrong)} of {len(numbers)}", *wrong])
