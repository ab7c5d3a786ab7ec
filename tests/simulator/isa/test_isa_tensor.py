"""Tensor copies against an oracle that moves one element after the other, and what is wrong with some."""

import pytest
import torch

from memory.driver import CudaDriver
from memory.fabric import Argument, Launch
from tests.simulator.harness import executable
from tests.simulator.isa import vectors_tensor as vectors
from tests.simulator.isa.tensor_maps import case_of, swizzled


@pytest.mark.parametrize("made", vectors.cases(), ids=str)
def test_a_box_is_loaded_and_stored(made):
    vectors.check_load(*made)
    vectors.check_store(*made)


BEYOND = {"element": "bf16", "swizzle": 128, "row": "whole", "corner": "beyond", "nan": True, "step": 1, "shared": 640}


@pytest.mark.parametrize("rank", range(1, 6))
def test_every_form_of_a_load(rank):
    made = case_of(rank, **BEYOND)
    vectors.check_load(*made, "shared::cluster")
    vectors.check_load(*made, "shared::cluster", 2)


@pytest.mark.parametrize(("made", "word"), list(vectors.reductions()), ids=str)
def test_a_box_is_combined(made, word):
    vectors.check_store(made, (1,) * len(made.box), 0, word)


def test_a_swizzle_is_a_permutation_of_its_pattern():
    for swizzle in (32, 64, 128):
        assert sorted(swizzled(one, swizzle) for one in range(swizzle * 8)) == list(range(swizzle * 8))
    assert [swizzled(128 * row, 128) // 16 % 8 for row in range(9)] == [*range(8), 0]
    assert [swizzled(128 * row, 64) // 16 % 8 for row in range(5)] == [0, 1, 2, 3, 0]


def on_a_gpu(ptx, made, tensor, corner, shared, out, blocks):
    """As vectors.simulated."""
    given, box = (torch.from_numpy(one).to("cuda:0") for one in (tensor, out))
    kinds = ("bytes", "address", *["u32"] * (2 + len(corner)))
    values = vectors.values_of(made, given.data_ptr(), corner, shared, box.data_ptr())
    driver = CudaDriver(0, 0)
    launch = Launch(blocks, vectors.BLOCK, cluster=blocks)
    driver.launch(executable(ptx), launch, tuple(map(Argument, kinds, values)))
    driver.wait(None)
    return [one.cpu().numpy().tobytes() for one in (given, box)]


@pytest.mark.gpu
def test_a_gpu_leaves_what_the_oracle_says():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(0)[0] != 9:
        pytest.skip("there is no GPU of sm_90")
    checks = [(vectors.check_load, made) for made in vectors.cases()]
    checks += [(vectors.check_store, made) for made in vectors.cases()]
    for rank in range(1, 6):
        made = case_of(rank, **BEYOND)
        checks += [(vectors.check_load, (*made, "shared::cluster", blocks)) for blocks in (1, 2)]
    checks += [(vectors.check_store, (made, (1,) * len(made.box), 0, word)) for made, word in vectors.reductions()]
    wrong = []
    for check, case in checks:
        try:
            check(*case, run=on_a_gpu)
        except AssertionError:
            wrong.append(f"{check.__name__} {case}")
    assert wrong == [], f"{len(wrong)} of {len(checks)}"
