"""The fault list on hardware: whatever happens to a rank on its GPU, the job ends with a report, and nothing is left.

Each test begins with a healthy job in a world that is new after the test before: the next job passes. Starting a world
takes seconds, so each fault has one.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from kernels.sources import ROOT
from runner.case import program
from runner.case.program import Plan, run_case
from runner.command.case_programs import read_traits
from runner.world.fabrics import NvshmemOpener, look
from runner.world.processes import ProcessWorld
from runner.world.world import WorldFailure
from tests import patience
from tests.patience import within
from tests.runner import gpu_programs
from tests.runner.conftest import is_running
from tests.runner.gpu_programs import FAULTY_RANK, Damage

pytestmark = pytest.mark.gpu

WORLD_SIZE = 2
HEAP_BYTES = 4 << 30
KERNEL_PATIENCE_S = 2.0
SLACK_MIB = 64
"""What the driver itself may keep or give back between two looks at a GPU's memory."""


def used_mib():
    """Memory in use, by GPU, as the driver has it: no context of this process."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        pytest.skip("no nvidia-smi to ask for the GPUs' memory")
    out = subprocess.run(
        [tool, "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
    ).stdout
    return [int(line) for line in out.split()]


def litter():
    """What NVSHMEM and torch could leave behind on the machine."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    return found | {f"/tmp/{name}" for name in os.listdir("/tmp") if re.search("nvshmem|nccl|^torch_", name)}


class Bench:
    """The world of these tests, kept as long as it is whole, and what the machine was like before the first."""

    def __init__(self, cache_dir):
        self.cache_dir = cache_dir
        self.used_before, self.litter_before = used_mib(), litter()
        self.kept = None
        self.arch = ""

    def world(self):
        if self.kept is None or not self.kept.healthy:
            self.close()
            self.kept = ProcessWorld(WORLD_SIZE, NvshmemOpener(HEAP_BYTES))
            self.arch = self.kept.run(read_traits, None, patience.PATIENCE_S)[0].arch
        return self.kept

    def close(self):
        if self.kept is not None:
            self.kept.close()
            self.kept = None

    def plan(self, size_bytes=4096, algorithm="one_shot", launches=2):
        self.world()
        case = Case("all_reduce", algorithm, "float32", "float32", "sum", size_bytes, WORLD_SIZE)
        spec = catalogue.find(case.name)
        code = executable(spec, case, self.arch, self.cache_dir)
        return Plan(case, spec, code, launches=launches, patience_s=KERNEL_PATIENCE_S)

    def passes(self, plan):
        """A job in the world that there is now, or in a new one."""
        for outcome in self.world().run(run_case, plan, patience.PATIENCE_S):
            assert outcome.check.wrong == 0
            assert outcome.check.guard_faults == ()

    def fails(self, damage, deadline_s=patience.NEVER_S):
        """A job that is damaged: its failure, after which nothing of its world is left."""
        world = self.world()
        ranks = world.processes
        with within(), pytest.raises(WorldFailure) as caught:
            world.run(gpu_programs.damaged, damage, deadline_s)
        assert not world.healthy
        assert not any(is_running(one) for one in ranks)
        self.check_nothing_is_left()
        return caught.value

    def check_nothing_is_left(self):
        patience.until(
            lambda: all(now <= then + SLACK_MIB for now, then in zip(used_mib(), self.used_before, strict=True)),
            f"a return to {self.used_before} MiB of memory in use",
        )
        assert litter() - self.litter_before == set()


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    machine = look()
    if machine.driver_problem or machine.gpu_count < WORLD_SIZE or not machine.gpu_extra:
        pytest.skip(f"needs {WORLD_SIZE} GPUs and the gpu extra; found {machine}")
    one = Bench(tmp_path_factory.mktemp("kernels"))
    yield one
    one.close()


def test_200_experiments_leave_heap_and_memory_where_they_began(bench):
    plans = [
        bench.plan(size_bytes, algorithm)
        for size_bytes in (4, 1 << 10, 100_000, 4 << 20, 64 << 20)
        for algorithm in ("one_shot", "two_shot")
    ]
    for plan in plans:  # the heap grows once to the largest, code is loaded once
        bench.passes(plan)

    def memory():
        # Inputs and references are kept between cases.
        bench.world().run(program.forget, None, patience.PATIENCE_S)
        return bench.world().run(gpu_programs.memory, None, patience.PATIENCE_S)

    before = memory()
    for turn in range(200):
        bench.passes(plans[turn * 7 % len(plans)])
    assert memory() == before
    assert all(held == live == 0 for held, _, live in before)


def test_jobs_run_in_the_processes_of_the_kept_world(bench):
    world = bench.world()
    ranks = world.processes
    for _ in range(100):
        world.run(gpu_programs.nothing, None, patience.PATIENCE_S)
    assert bench.world() is world
    assert world.processes == ranks


def test_a_world_that_ends_in_good_order_leaves_nothing(bench):
    bench.passes(bench.plan())
    ranks = bench.world().processes
    with within():
        bench.close()
    assert not any(is_running(one) for one in ranks)
    bench.check_nothing_is_left()


@pytest.mark.parametrize("method", ["allocate", "launch"])
def test_an_exception_at_the_first_and_the_last_allocation_and_launch(bench, method):
    """Those between are tests/memory/test_pool.py's, in a world that is kept: each of these costs a world."""
    plan = bench.plan()
    calls = bench.world().run(gpu_programs.damaged, Damage(plan, "", method), patience.PATIENCE_S)[FAULTY_RANK]
    assert calls >= 2
    for at_call in (1, calls):
        bench.passes(plan)
        failure = bench.fails(Damage(plan, "raise", method, at_call))
        assert (failure.status, failure.rank) == ("FAILED", FAULTY_RANK)
        assert failure.message.startswith(f"rank 1: KeyError: 'injected at {method} {at_call}' (tests/runner/gpu_pro")
    bench.passes(plan)


def test_a_kernel_whose_peer_never_comes_says_what_it_waits_for(bench):
    bench.passes(bench.plan())
    failure = bench.fails(Damage(bench.plan(), "skip"))
    assert (failure.status, failure.rank) == ("DEADLOCK", 0)
    report = r"rank 0, block \d+: entry barrier: waited 2\.\d s for rank 1: expected epoch \d+, saw \d+"
    assert re.search(report, failure.message), failure.message


def test_no_room_for_symmetric_memory_on_one_rank(bench):
    bench.passes(bench.plan())
    # Two buffers of 2 GiB less the guards: beyond what the heap has mapped by now, within what it may hold.
    plan = bench.plan((2 << 30) - (1 << 20), launches=1)
    failure = bench.fails(Damage(plan, "exhaust", "allocate", 2))
    assert failure.status == "FAILED"
    assert type(failure.errors[0]).__name__ == "HeapFull", failure.errors
    assert "rank 1: output needs" in failure.message
    bench.world().run(gpu_programs.big_tensor, 2 << 30, patience.PATIENCE_S)


def test_sigterm_ends_a_command_and_keeps_what_is_done(bench, tmp_path):
    bench.close()
    bench.check_nothing_is_left()
    asked = command(bench, "timing.mode=none", "track=none", "sizes=[1K,4M,8M,16M]", "launches=1000")
    process = subprocess.Popen(cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **asked)
    out = "".join(until(process.stdout.readline, "PASSED"))
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=patience.PATIENCE_S)
    assert process.returncode == 143, out + rest
    assert "interrupted" in rest
    assert list(tmp_path.glob("records/*/*.json"))
    bench.check_nothing_is_left()


def test_the_same_command_inside_torchrun(bench, tmp_path):
    bench.close()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD_SIZE}"]
    asked = command(bench, "timing.mode=none", "track=none", "sizes=[1K,1M]", launcher=launcher)
    run = subprocess.run(cwd=tmp_path, capture_output=True, check=False, timeout=patience.PATIENCE_S, **asked)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("4 cases: 4 passed") == 1, "rank 0 alone speaks"
    bench.check_nothing_is_left()


def until(line, text):
    """Lines up to the one that has the text."""
    while (read := line()) and text not in read:
        yield read
    assert text in read, "it never came"
    yield read


@pytest.mark.parametrize(
    ("damage", "status", "report"),
    [
        (["kill"], "FAILED", r"^rank 1: its process ended by SIGKILL"),
        (["misdirect"], "FAILED", "DeviceFault"),
        (["overdraw"], "FAILED", "OutOfMemoryError"),
        (["spin", "allocate"], "TIMEOUT", r"^rank 1: still running after 2\.0 s, at tests/runner/gpu_pro.* in _spin"),
    ],
    ids=["killed", "wrong address", "no room for torch", "spins in Python"],
)
def test_a_fault_of_one_rank_is_its(bench, damage, status, report):
    bench.passes(bench.plan())
    deadline_s = 2.0 if status == "TIMEOUT" else patience.NEVER_S
    failure = bench.fails(Damage(bench.plan(), *damage), deadline_s)
    assert (failure.status, failure.rank) == (status, FAULTY_RANK)
    said = type(failure.errors[FAULTY_RANK]).__name__ if report == "DeviceFault" else failure.message
    assert re.search(report, said), failure.errors


def command(bench, *words, launcher=()):
    """What Popen and run take for a command on GPUs that is checked and not timed."""
    common = ["fabric=nvshmem", f"world_size={WORLD_SIZE}", "algorithms=[one_shot,two_shot]", "baselines=none"]
    return {
        "args": [sys.executable, *launcher, "-m", "runner", *common, f"cache_dir={bench.cache_dir}", *words],
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        "text": True,
    }
