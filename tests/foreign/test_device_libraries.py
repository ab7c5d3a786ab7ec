"""NVSHMEM's and NCCL's device functions, used wrongly: what the simulator says of it."""

import pytest
import torch

import symlab
from simulator.run.nvshmem import version_of
from tests.foreign import nccl_cases
from tests.foreign.environment import absent
from tests.foreign.nvshmem_cases import BLOCKS, THREADS, of_nvshmem

pytestmark = [pytest.mark.foreign, pytest.mark.skipif(bool(absent()), reason=absent())]


def test_a_signal_that_no_pe_gives_is_a_deadlock_that_names_it():
    kernel = of_nvshmem("wait_alone").ptx
    with pytest.raises(symlab.WorldFailure) as caught:
        symlab.simulate(kernel, ranks=2, grid=1, block=1, buffers={"signal": (1, "uint64", 0)}, arguments=["signal"])
    assert caught.value.status == "DEADLOCK"
    assert "rank 1, block 0, thread 0 spins: sees 0" in caught.value.message
    assert "tensor 'signal'" in caught.value.message


def test_a_put_beyond_a_tensor_names_the_tensor_of_the_pe_that_gets_it():
    buffers = {"source": torch.ones(4 * 250), "target": (2 * 250, "float32")}
    how = {"grid": BLOCKS, "block": THREADS, "buffers": buffers}
    with pytest.raises(symlab.WorldFailure, match="store of .* past the end of tensor 'target' of 2000 bytes"):
        symlab.simulate(of_nvshmem("put_block").ptx, ranks=2, arguments=["source", "target", ("s32", 250)], **how)


def test_code_for_networks_faults_where_a_pe_is_not_reached_by_loads_and_stores():
    """The table of heaps is replaced by one in which all are null, as on GPUs for PEs of another node."""
    unreached = {"nvshmemi_device_state_d": {56: ("pointer", [("u64", 0)] * 2)}}
    buffers = {"source": torch.ones(BLOCKS * THREADS), "target": (BLOCKS * THREADS, "float32")}
    how = {"grid": BLOCKS, "block": THREADS, "buffers": buffers, "arguments": ["source", "target"]}
    with pytest.raises(symlab.WorldFailure, match="null pointer"):
        symlab.simulate(of_nvshmem("p").ptx, ranks=2, **how, variables=unreached)


def test_a_barrier_of_the_device_ends_on_all_ranks():
    kernel = of_nvshmem("barrier_all").ptx
    done = symlab.simulate(kernel, ranks=5, grid=1, block=THREADS, buffers={}, arguments=[], races=True)
    assert done.findings == ()


def test_the_bitcode_tells_its_version():
    found = version_of(of_nvshmem("p").ptx)
    assert found[:2] == (3, 8)


def test_an_arrival_that_nccl_waits_for_in_vain_ends_at_the_step_budget():
    """Its wait counts its rounds, to look for an abort now and then: something changes all the time, which is no
    deadlock here. Rank 1 says that it is rank 0, so that what it sends goes to another inbox."""
    case = nccl_cases.barrier(2)
    (kind, members), *others = case.launch["arguments"]
    wrong = [("s32", 0) if number == 5 else one for number, one in enumerate(members)]

    def arguments(rank):
        return [(kind, wrong if rank == 1 else members), *others]

    with pytest.raises(symlab.WorldFailure) as caught:
        symlab.simulate(
            case.module.ptx, ranks=2, schedule="fair", step_budget=5000, **{**case.launch, "arguments": arguments}
        )
    assert caught.value.status == "TIMEOUT"
    assert "on rank 0, block 0, thread 0 runs at PTX line" in caught.value.message
