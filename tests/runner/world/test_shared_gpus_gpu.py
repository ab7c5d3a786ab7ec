"""More ranks than GPUs, on GPUs: every case passes or is refused for multicast, and no record has a time."""

import pytest

import symlab
from cases.record.record import Status
from runner.world.fabrics import look
from symlab.command import main

pytestmark = pytest.mark.gpu

MATMUL = ("matmul_reduce_scatter", "all")
SHARED = ("fabric=nvshmem", "fabric.share_gpus=true", "timing.mode=none", "track=none")


@pytest.mark.parametrize("each", [1, 2], ids=["one more rank than GPUs", "two ranks a GPU"])
@pytest.mark.parametrize(("op", "algorithms"), [("all_reduce", "auto"), ("all_to_all", "all"), MATMUL])
def test_ranks_that_share_gpus_get_the_op_right(op, algorithms, each, tmp_path):
    machine = look()
    if machine.driver_problem or not machine.gpu_count or not machine.gpu_extra:
        pytest.skip(f"needs a GPU and the gpu extra; found {machine}")
    ranks = machine.gpu_count * each + (each == 1)
    # A rank's chunk is 1 KiB, whatever their number: all_to_all/bulk refuses chunks that are no multiple of 16 bytes.
    size = [f"sizes=[{ranks}K]"] if op != MATMUL[0] else [f"m={ranks * 200}", "n=520", "k=264"]
    asked = [f"op={op}", f"algorithms={algorithms}", f"world_size={ranks}", *size, f"records={tmp_path}"]
    assert main(["run", *asked, *SHARED]) == 0
    found = symlab.records(tmp_path)
    passed = [one for one in found if one.status is Status.PASSED]
    assert passed
    for one in found:
        assert one.status in (Status.PASSED, Status.REFUSED), one.reason
        assert one.status is Status.PASSED or "multicast" in one.reason
        assert one.timing is None
    for one in passed:
        assert one.fabric.settings["share_gpus"] is True
