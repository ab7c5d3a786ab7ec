"""What a simulated job needs of the host's memory: the bound holds, and what does not fit is refused in one line."""

import re
import subprocess
import sys

import numpy as np
import pytest

from cases.case import Case
from cases.record.record import load
from kernels.catalogue import find
from kernels.compile import executable
from runner.__main__ import main
from runner.case import host_memory, inputs, reference
from runner.case.host_memory import NOTHING_KEPT, Kept, check_host_memory, host_bytes_needed, lane_bytes
from runner.command import plan
from runner.request.configured import configured, plain_configuration
from runner.request.schema import HostMemory
from runner.request.validate import validate
from runner.request_error import RequestError
from simulator.run.decode import SPECIAL, decode
from tests.golden import refused, same_text
from tests.runner.conftest import asked, on_its_fabric

GIB, MIB = 1 << 30, 1 << 20
LARGE = ("world_size=72", "sizes=[1K,100M]", "fabric.heap_bytes=1G", "algorithms=[one_shot,two_shot]")


def request(*arguments):
    (found,) = asked(" ".join(("fabric=simulator", "track=none", *arguments)))
    return on_its_fabric(found)


def refusal(wanted, available_bytes):
    with pytest.raises(RequestError) as caught:
        check_host_memory(wanted, available_bytes)
    return str(caught.value)


@pytest.mark.slow
def test_what_does_not_fit_the_host_is_refused_with_what_would():
    text = refusal(request(*LARGE), 8 * GIB)
    found = re.fullmatch(
        r"simulating 100M with world_size=72 takes up to (\d+\.\d)G of host memory, and 8\.0G is available "
        r"\(sizes, world_size\), give at most (\d+) bytes or world_size=(\d+); "
        r"host_memory=ignore runs it all the same, the bound may be too high",
        text,
    )
    assert found is not None, text
    assert float(found[1]) > 40
    most_bytes, most_ranks = int(found[2]), int(found[3])
    check_host_memory(request(*LARGE, f"sizes=[1K,{most_bytes}]"), 8 * GIB)
    check_host_memory(request(*LARGE, f"world_size={most_ranks}"), 8 * GIB)
    for beyond in (f"sizes=[1K,{most_bytes + 4}]", f"world_size={most_ranks + 1}"):
        refusal(request(*LARGE, beyond), 8 * GIB)
    assert most_bytes > 1 << 20
    assert 2 <= most_ranks < 72


def test_sizes_that_fit_are_multiples_of_what_the_op_divides():
    wanted = ("op=all_to_all", "algorithms=[pull]", "world_size=9", "fabric.heap_bytes=2G")
    text = refusal(request(*wanted, "sizes=900M"), 8 * GIB)
    most_bytes = int(re.findall(r"at most (\d+) bytes", text)[0])
    assert most_bytes % 36 == 0
    check_host_memory(request(*wanted, f"sizes={most_bytes}"), 8 * GIB)


def test_ranks_below_the_root_are_not_offered():
    wanted = ("op=broadcast", "algorithms=[pull]", "world_size=8", "root=7", "sizes=16M")
    assert "or world_size=" not in refusal(request(*wanted), GIB)
    text = refusal(request(*wanted, "root=1"), GIB)
    (ranks,) = map(int, re.findall(r"or world_size=(\d+)", text))
    check_host_memory(request(*wanted, "root=1", f"world_size={ranks}"), GIB)


def test_jobs_before_it_leave_inputs_and_references():
    """A world is kept between the jobs of a sweep, and what is kept between its cases with it."""
    jobs = [request("world_size=4", "sizes=8M", "algorithms=[two_shot]", f"seed={seed}") for seed in range(3)]
    alone = host_bytes_needed(jobs[0])
    once = NOTHING_KEPT.after(jobs[0])
    assert host_bytes_needed(jobs[1], before=once) > alone + 32 * MIB, "its inputs: 4 ranks x 8 MiB"
    twice = once.after(jobs[1])
    most = host_bytes_needed(jobs[2], before=twice)
    for job in jobs:
        twice = twice.after(job)
    limits = host_memory.KEPT_INPUT_BYTES + host_memory.KEPT_REFERENCE_ELEMENTS * host_memory.KEPT_REFERENCE_BYTES
    assert most < host_bytes_needed(jobs[2], before=Kept(1 << 50, 1 << 50)) <= alone + limits * 11 // 10 + 1
    with pytest.raises(RequestError):
        check_host_memory(jobs[2], alone + MIB, kept=once)


@pytest.mark.parametrize("seeds", ["seed=0,1,2", ""], ids=["a sweep", "a job"])
def test_a_command_beyond_the_host_ends_before_it_begins(monkeypatch, capsys, tmp_path, seeds):
    """A sweep is refused where its first job alone would fit."""
    job = ("world_size=4", "sizes=8M", "algorithms=[two_shot]", "fabric=simulator", "track=none")
    alone = host_bytes_needed(request(*job))
    monkeypatch.setattr(plan, "available_bytes", lambda: alone + (MIB if seeds else -MIB))
    assert main([*job, f"records={tmp_path / 'records'}", *(["-m", seeds] if seeds else [])]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    same_text(said.err)
    assert not (tmp_path / "records").exists()


def test_where_nothing_fits_it_says_so():
    with refused(RequestError):
        check_host_memory(request("world_size=2", "sizes=1K"), MIB)


@pytest.mark.slow
def test_host_memory_ignore_lets_it_run(monkeypatch, tmp_path):
    check_host_memory(request(*LARGE, "host_memory=ignore"), MIB)
    refusal(request(*LARGE, "host_memory=check"), MIB)
    monkeypatch.setattr(plan, "available_bytes", lambda: MIB)
    small = ["sizes=[8]", "algorithms=[one_shot]", "fabric=simulator", "track=none", f"records={tmp_path / 'records'}"]
    assert main(small) == 2
    assert main([*small, "host_memory=ignore"]) == 0
    (folder,) = (tmp_path / "records").iterdir()
    (path,) = folder.glob("*-8B-*.json")
    kept = load(path).document()
    assert kept["request"]["configuration"]["host_memory"] == "ignore"


def test_a_configuration_from_before_the_key_means_check():
    """As records of earlier versions have it."""
    older = {key: value for key, value in plain_configuration(configured({})).items() if key != "host_memory"}
    assert validate(configured(older)).host_memory == HostMemory.check


@pytest.mark.parametrize("arguments", [("fabric=nvshmem",), ()], ids=["on GPUs", "unknown"])
def test_nothing_is_checked_on_gpus_or_where_the_memory_is_unknown(arguments):
    check_host_memory(request(*LARGE, *arguments), 1 << 20 if arguments else None)


@pytest.mark.slow
def test_each_part_counts():
    def needed(*arguments):
        return host_bytes_needed(request("world_size=8", "algorithms=[one_shot]", "sizes=4M", *arguments))

    base, payload = needed(), 8 * (4 << 20)
    assert needed("launches=4") - base >= 2 * payload, "an output a launch"
    assert base - needed("check=false") >= 2 * payload, "outputs and their reference"
    assert needed("inputs=edge") > base, "drawing"
    assert needed("track=mlflow") - base == host_memory.TRACKING_BYTES
    assert needed("placement=in_place", "algorithms=[two_shot]") < needed("algorithms=[two_shot]")
    assert needed("sizes=[2M,4M]") > base, "inputs and references are kept"
    assert needed("algorithms=[one_shot,ll]") == base, "beyond the largest size of ll, which is refused"
    assert needed("baselines=[nccl]") == base, "refused in the simulator"
    assert needed("algorithms=[ll]") == host_bytes_needed(request("world_size=8", "algorithms=[ll]", "sizes=8M"))


def test_limits_are_those_of_what_is_kept():
    assert host_memory.KEPT_INPUT_BYTES == inputs.KEPT_BYTES
    assert host_memory.KEPT_REFERENCE_ELEMENTS == reference.KEPT_ELEMENTS
    assert host_memory.CHUNK_ELEMENTS == inputs.CHUNK_ELEMENTS


LANES = (
    *(("all_reduce/two_shot", 8, "bfloat16"), ("all_reduce/ll", 16, "bfloat16"), ("send_recv/ll", 2, "float8_e5m2")),
    *(("all_reduce/two_shot_lamport", ranks, dtype) for ranks, dtype in ((2, "bfloat16"), (72, "float8_e5m2"))),
    *(("reduce_scatter/ll", ranks, dtype) for ranks, dtype in ((3, "bfloat16"), (72, "float8_e5m2"))),
    *((f"reduce_scatter/{name}", 72, "float8_e5m2") for name in ("push", "bulk", "push_rounds")),
    *(("all_gather/bulk", 8, "float32"), ("all_to_all/ll", 8, "bfloat16")),
)
"""The kernels with most registers, by what lane_bytes tells apart."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "world_size", "dtype"), LANES)
def test_the_bound_of_a_lane_covers_its_registers(name, world_size, dtype, tmp_path):
    """With half of the copies that spins are compared with. What would turn it red: a kernel unrolled further."""
    spec = find(name)
    reduction, accumulator = ("none", "none") if "none" in spec.reductions else ("sum", "float32")
    case = Case(spec.op, spec.algorithm, dtype, accumulator, reduction, 64 * world_size, world_size)
    compiled = executable(spec, case, "sm_90a", tmp_path)
    program = decode(compiled.ptx, compiled.entry)
    width = {slot: np.dtype(dtype).itemsize for slot, dtype in program.kept.items()}
    kept = sum(width.values()) + 4 * sum(name in SPECIAL for name in program.specials.values())
    spins = sum(8 + sum(width.get(slot, 4) for slot in slots) for slots in program.spin_headers.values())
    shared = 2 * program.kernel.shared_bytes // spec.launch(case).threads
    most = lane_bytes(spec, case)
    assert kept + shared + spins // 2 <= most
    assert most <= 2.6 * (kept + shared + spins // 2), "a bound so far above would refuse what fits"


JOBS = (
    ("world_size=8", "sizes=4M", "algorithms=[one_shot]"),
    ("world_size=8", "sizes=4M", "algorithms=[one_shot]", "launches=6", "inputs=edge"),
    ("op=all_to_all", "world_size=24", "sizes=1M", "algorithms=[pull]"),
)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", JOBS, ids=["all_reduce", "launches", "all_to_all"])
def test_a_run_stays_below_the_bound(arguments, tmp_path):
    """Peak resident memory of the command itself, compiler included."""
    command = [*arguments, "fabric=simulator", "track=none", f"records={tmp_path / 'records'}"]
    # From a small process: a child counts what its parent held when it was forked, and the tests hold gigabytes.
    program = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "runner", *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=True)
    peak, bound = int(done.stdout) * 1024, host_bytes_needed(request(*arguments))
    assert peak <= bound
    assert bound <= 2.5 * peak
