"""More ranks than GPUs, on GPUs: every case passes or is refused for multicast, and no record has a time."""

import pytest

import symlab
from cases.record.record import Status
from runner.world.fabrics import look
from symlab.command import main

pytestmark = pytest.mark.gpu

SHARED = ("fabric=nvshmem", "fabric.share_gpus=true", "timing.mode=none", "track=none")


@pytest.mark.parametrize("each", [1, 2], ids=["one more rank than GPUs", "two ranks a GPU"])
@pytest.mark.parametrize("words", ["op=all_reduce", "op=all_to_all algorithms=all", "op=matmul_all_reduce"])
def test_ranks_that_share_gpus_get_the_op_right(words, each, tmp_path):
    machine = look()
    if machine.driver_problem or not machine.gpu_count or not machine.gpu_extra:
        pytest.skip(f"needs a GPU and the gpu extra; found {machine}")
    ranks = machine.gpu_count * each + (each == 1)
    # A rank's chunk is 1 KiB, whatever their number: all_to_all/bulk refuses chunks that are no multiple of 16 bytes.
    size = [f"sizes=[{ranks}K]"] if "matmul" not in words else [f"m={ranks * 200}", "n=520", "k=264"]
    assert main(["run", *words.split(), f"world_size={ranks}", *size, f"records={tmp_path}", *SHARED]) == 0
    found = symlab.records(tmp_path)
    passed = [one for one in found if one.status is Status.PASSED]
    assert passed
    for one in found:
        assert one.status in (Status.PASSED, Status.REFUSED), one.reason
        assert one.status is Status.PASSED or "multicast" in one.reason
        assert one.timing is None
    for one in passed:
        assert one.fabric.settings["share_gpus"] is True
