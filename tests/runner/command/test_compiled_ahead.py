"""Kernels of a command are compiled ahead of its cases, and nothing is left of that however the command ends."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.catalogue import find
from memory.fabric import Traits
from reports.record.bundle import read
from runner.command import ahead
from runner.command.ahead import CompiledAhead
from runner.command.plan import prepare
from runner.request.compose import compose_jobs, hydra_over
from runner.world.fabrics import FabricName
from tests import processes
from tests.patience import until
from tests.runner.conftest import is_running

MANY = ("-m", "algorithms=all", "dtype=float32,bfloat16", "sizes=[96]", "world_size=2", "track=none")
"""Kernels that take longer to compile than processes to start."""

KERNEL = """
from dataclasses import replace
from kernels.catalogue import find
SPEC = replace(find("all_reduce/one_shot"), algorithm="own")
"""


class Recording:
    """kernels.ahead.Compiler that begins nothing, and has something to wait for."""

    def __init__(self, cache_dir, processes, least_s):
        self.cache_dir = cache_dir
        self.begun = []
        self.waited = 0
        self.count = 3

    def begin(self, cases, arch):
        self.begun += [(case.name, arch, case.world_size) for case in cases]

    def wait_for_all(self):
        self.waited += 1


def command(*arguments, multirun=False):
    with hydra_over():
        return prepare((), compose_jobs(arguments, multirun))


def begun(monkeypatch, command, said):
    """What is compiled ahead of a command, with all that it says meanwhile."""
    monkeypatch.setattr(ahead, "Compiler", Recording)

    made = CompiledAhead(command.jobs, said.append)
    compiler = made._compiler
    return made, compiler


def test_in_the_simulator_kernels_of_all_jobs_begin_at_once(monkeypatch):
    asked = command("algorithms=[one_shot,two_shot,multimem_one_shot]", "fabric.multicast=false", "sizes=[8,1K]")
    made, compiler = begun(monkeypatch, asked, said := [])
    assert {name for name, _, _ in compiler.begun} == {"all_reduce/one_shot", "all_reduce/two_shot"}, "one is refused"
    assert {arch for _, arch, _ in compiler.begun} == {"sm_90a"}
    made.prepare(Traits("simulator", "sm_90a", 8, 1 << 28, False, simulated=True))
    assert (compiler.waited, said) == (0, [])
    swept = command("algorithms=one_shot", "sizes=[8]", "world_size=2,3", "fabric.arch=sm_90a,sm_100a", multirun=True)
    _, compiler = begun(monkeypatch, swept, said)
    assert compiler.begun == [("all_reduce/one_shot", arch, size) for size in (2, 3) for arch in ("sm_90a", "sm_100a")]


def test_on_gpus_they_begin_once_these_are_known_and_cases_wait_for_all(monkeypatch):
    asked = command("algorithms=one_shot", "sizes=[8]", "world_size=2,4", multirun=True)
    jobs = []
    for job in asked.jobs:
        fabric = replace(job.request.fabric, name=FabricName.nvshmem)
        jobs.append(replace(job, request=replace(job.request, fabric=fabric)))
    made, compiler = begun(monkeypatch, replace(asked, jobs=tuple(jobs)), said := [])
    assert compiler.begun == []
    for _ in range(2):
        made.prepare(Traits("nvshmem", "sm_100a", 2, 1 << 33, False, "switched off"))
    assert compiler.begun == [("all_reduce/one_shot", "sm_100a", size) for size in (2, 4)]
    assert (compiler.waited, said) == (2, ["compiling 3 kernels of this command"] * 2)
    compiler.count = 0
    made.prepare(Traits("nvshmem", "sm_100a", 2, 1 << 33, False, "switched off"))
    assert compiler.waited == 2
    monkeypatch.setattr("kernels.compile.executable", lambda *given: given)
    spec, case = find("all_reduce/one_shot"), jobs[0].cases[0]
    given = (spec, case, "sm_100a", compiler.cache_dir)
    assert made.compiled(*given) == given, "a case begins no compilation, which its timing would have beside it"


def test_a_users_kernel_is_compiled_here(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    asked = command("algorithms=[own.py:SPEC,two_shot]", "sizes=[8]", "world_size=2")
    _, compiler = begun(monkeypatch, asked, [])
    assert [name for name, _, _ in compiler.begun] == ["all_reduce/two_shot"]


def symlab(folder, *arguments):
    """`symlab run` with all it keeps below a folder, and an empty cache there. A closed terminal ends it, even
    if the tests were started under nohup."""
    (folder / "tmp").mkdir()
    given = (*MANY, f"records={folder}/records", f"cache_dir={folder}/cache", *arguments)
    hangs_up = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
    return processes.begun("-m", "runner", *given, cwd=folder, env={"TMPDIR": str(folder / "tmp")}, **hangs_up)


def children(process):
    """The processes that a process started from its main thread."""
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core compiles in one process")


@pytest.mark.slow
@needs_two_cores
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupt_ends_the_processes_and_leaves_nothing(tmp_path, number):
    running = symlab(tmp_path)
    try:
        until(lambda: list((tmp_path / "tmp").glob("symlab-ahead-*/symlab-compile-*")), "a process at work")
        started = children(running.pid)
        assert len(started) >= 2
        running.send_signal(number)
        said, _ = running.communicate()
        assert running.returncode == (-number if number == signal.SIGKILL else 128 + number), said
        until(lambda: not [one for one in started if is_running(one)], "the end of the processes")
        if number != signal.SIGKILL:
            assert list((tmp_path / "tmp").glob("symlab-*")) == []
            assert [path.name for path in (tmp_path / "cache").glob("*") if path.suffix != ".json"] == []
    finally:
        running.kill()
        running.wait()


@pytest.mark.slow
@needs_two_cores
def test_records_are_those_of_kernels_that_are_compiled_in_the_process(tmp_path):
    found = []
    cores = os.sched_getaffinity(0)
    for name, usable in (("ahead", cores), ("here", {min(cores)})):
        folder = tmp_path / name
        folder.mkdir()
        os.sched_setaffinity(0, usable)
        try:
            running = symlab(folder)
        finally:
            os.sched_setaffinity(0, cores)
        said, _ = running.communicate()
        assert running.returncode == 0, said
        records = read([folder / "records"])
        found.append([(one.id, one.status, one.kernel, one.counters, one.check) for one in records])
        assert list((folder / "tmp").glob("symlab-*")) == []
    assert found[0] == found[1]
    assert len(found[0]) > 10
