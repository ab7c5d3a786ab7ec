"""What CUDA kernels print, how their assertions fail, and what README tells of FlashInfer's kernels."""

import pytest
import torch

import symlab
from tests.foreign.cuda_cases import of_cuda
from tests.foreign.environment import SOURCES, absent
from tests.foreign.feature_cases import SOURCE, functions, whole_grid
from tests.foreign.flashinfer_cases import one_shot

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(bool(absent(needs_host_compiler=True)), reason=absent(needs_host_compiler=True) or "-"),
]


def test_printf_names_rank_block_and_thread(capfd):
    case = functions(2)
    symlab.simulate(case.module.ptx, ranks=2, entry=case.module.facts["entry"], schedule="fair", **case.launch)
    printed = sorted(capfd.readouterr().err.splitlines())
    assert printed == [
        f"rank {rank}, block 0, thread 3: thread 3 of functions: 2.75 and -1099511627776" for rank in range(2)
    ]


def test_a_failed_assertion_names_its_text_its_line_and_its_thread():
    module = of_cuda(SOURCE, "asserts")
    line = next(
        number
        for number, text in enumerate((SOURCES / SOURCE).read_text(encoding="utf-8").splitlines(), 1)
        if "void asserts" in text
    )
    symlab.simulate(module.ptx, ranks=2, entry="asserts", grid=1, block=8, buffers={}, arguments=[("s32", 8)], seeds=2)
    with pytest.raises(symlab.WorldFailure) as failure:
        symlab.simulate(
            module.ptx, ranks=2, entry="asserts", grid=1, block=8, buffers={}, arguments=[("s32", 7)], seeds=2
        )
    assert "(int)threadIdx.x < limit" in str(failure.value)
    assert f"{SOURCE}:{line}" in str(failure.value)
    assert failure.value.thread == 7


@pytest.mark.parametrize("pushes", [False, True])
def test_tensorrt_llms_one_shot_gives_all_ranks_the_same_bits_only_with_copies(pushes):
    case = one_shot(pushes, torch.float16, 4)
    done = case.simulated(4, schedule="fair")
    first, *others = done.outputs["output"]
    assert all(torch.equal(one, first) for one in others) is not pushes
    assert all(torch.allclose(one, first, rtol=0, atol=0.01) for one in others)


def test_a_barrier_of_the_grid_stops_a_kernel_that_is_not_launched_cooperatively():
    case = whole_grid(2)
    launch = {**case.launch, "cooperative": False}
    with pytest.raises(symlab.WorldFailure, match="trap: the kernel stopped itself"):
        symlab.simulate(case.module.ptx, entry="whole_grid", ranks=2, schedule="fair", **launch)
