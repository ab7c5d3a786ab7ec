"""Compiling a module of flashinfer's: who does it, how long it may take, what is left of it, and what is told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.case import library_modules
from runner.case.library_modules import Brought, bring_module, first_error, run_builder
from runner.request.experiments import CONF
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.golden import same_text
from tests.patience import NEVER_S, PATIENCE_S, until


def builder(code):
    return [sys.executable, "-c", code]


def test_the_last_line_says_what_compiled_it_and_the_compilers_first_error_why_it_failed():
    code = "print('ninja: no work to do'); print('{\"compiled_with\": \"PyTorch 2.11.0, nvcc 13.0\"}')"
    assert run_builder(builder(code), "vllm_comm", 30) == Brought("", "PyTorch 2.11.0, nvcc 13.0")
    code = (
        "import sys; print('[1/2] nvcc -c a.cu'); print('a.cu(3): error: no such type', file=sys.stderr); sys.exit(1)"
    )
    failed = Brought("vllm_comm did not compile: a.cu(3): error: no such type")
    assert run_builder(builder(code), "vllm_comm", 30) == failed


@pytest.mark.parametrize(
    "output",
    [
        "",
        "all is well\n\n",
        "[1/2] nvcc -DX -c not found " + "x" * 600 + "\n/usr/bin/ld: cannot find -lcuda\nninja: stopped",
        "Traceback\nModuleNotFoundError: No module named 'tvm_ffi'",
        "nvcc fatal   : Unsupported gpu architecture 'compute_90a'\nsh: error",
    ],
    ids=["nothing", "no error", "a long line", "Python's", "nvcc's"],
)
def test_the_line_that_names_the_error_is_found(output):
    same_text(first_error(output))


def gone(process):
    """Whether a process has ended."""
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


CHILD = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '3600']); open(sys.argv[1], 'w').write(str(child.pid))"
)


def child_of(place):
    until(lambda: place.exists() and place.read_text(), "the child's start")
    return int(place.read_text())


@pytest.mark.slow
def test_a_compiler_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    place = tmp_path / "child"
    code = f"{CHILD}; child.wait()"
    found = run_builder([*builder(code), str(place)], "trtllm_comm", 1.5)
    assert found == Brought("compiling trtllm_comm took longer than 1.5 s")
    until(lambda: gone(child_of(place)), "the child's end")


def test_the_builder_ends_with_whoever_waits_for_it(tmp_path):
    """A rank that is killed runs no code of its own: its end of the builder's standard input closes."""
    place = tmp_path / "child"
    code = f"""
import threading
from runner.case.library_modules import end_with_input
threading.Thread(target=end_with_input, daemon=True).start()
{CHILD}
child.wait()
"""
    process = subprocess.Popen(
        [*builder(code), str(place)], stdin=subprocess.PIPE, cwd=CONF.parent, start_new_session=True
    )
    child = child_of(place)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    until(lambda: gone(child), "the child's end")


def test_an_interrupt_ends_the_compiler_too(tmp_path, monkeypatch):
    place = tmp_path / "child"

    def interrupted(process, limit_s):
        child_of(place)
        raise KeyboardInterrupt

    monkeypatch.setattr(library_modules, "_all_it_says", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_builder([*builder(f"{CHILD}; child.wait()"), str(place)], "vllm_comm", 60)
    until(lambda: gone(child_of(place)), "the child's end")


def brought(monkeypatch, hosts, compiled, load):
    """What bring_module gives each of four ranks on these hosts, one letter a rank."""
    monkeypatch.setattr(library_modules, "compiled", compiled)
    monkeypatch.setattr(library_modules, "load", load)

    class OnAHost:
        def __init__(self, fabric):
            self.fabric, self.rank, self.told = fabric, fabric.rank, 0

        def exchange(self, note):
            self.told += 1
            found = self.fabric.exchange(hosts[self.rank] if self.told == 1 else note)
            return tuple(found)

    def program(fabric, module):
        return bring_module(OnAHost(fabric), module)

    world = ThreadWorld(len(hosts), SimulatorOptions(heap_bytes=1 << 20))
    return world.run(program, "vllm_comm", NEVER_S)


def test_the_first_rank_of_each_host_compiles(monkeypatch):
    compiled = []
    loaded = []

    def compile_it(module):
        compiled.append(module)
        return Brought("", "PyTorch 2.11.0, nvcc 13.0")

    found = brought(monkeypatch, "abab", compile_it, loaded.append)
    assert found == [Brought("", "PyTorch 2.11.0, nvcc 13.0")] * 4
    assert compiled == ["vllm_comm"] * 2
    assert loaded == ["vllm_comm"] * 4


def test_what_one_host_can_not_compile_no_rank_loads(monkeypatch):
    problems = iter(["", "vllm_comm did not compile: error"])
    loaded = []
    found = brought(monkeypatch, "aabb", lambda module: Brought(next(problems)), loaded.append)
    assert [one.problem for one in found] == ["vllm_comm did not compile: error"] * 4
    assert loaded == []


def test_what_one_rank_can_not_load_is_told_by_all(monkeypatch):
    ranks = iter(range(4))

    def load(module):
        if next(ranks) == 2:
            raise OSError("libcudart.so.13: cannot open shared object file")

    problems = {one.problem for one in brought(monkeypatch, "aaaa", lambda module: Brought("", "it"), load)}
    assert len(problems) == 1
    same_text(problems.pop())


def test_a_module_is_compiled_once_a_process_by_a_builder(monkeypatch):
    commands = []

    def run(command, module, limit_s):
        commands.append(command)
        return Brought("")

    monkeypatch.setattr(library_modules, "run_builder", run)
    library_modules.compiled.cache_clear()
    try:
        assert library_modules.compiled("vllm_comm") is library_modules.compiled("vllm_comm")
    finally:
        library_modules.compiled.cache_clear()
    assert commands == [[sys.executable, "-m", "runner.case.library_modules", "vllm_comm"]]


FAKE = """
import os
from types import SimpleNamespace
class Spec:
    is_aot = {aot}
    def build_and_load(self):
        assert os.path.isdir({place!r})
        print("nvcc says something")
gen_vllm_comm_module = Spec
gen_trtllm_comm_module = None
"""


@pytest.mark.parametrize(("aot", "said"), [(True, "module brought compiled"), (False, "nvcc 13.0")])
def test_the_builder_asks_flashinfer_and_says_what_it_used(aot, said, tmp_path, monkeypatch):
    jit = tmp_path / "flashinfer" / "jit"
    jit.mkdir(parents=True)
    (tmp_path / "flashinfer" / "__init__.py").touch()
    (jit / "__init__.py").touch()
    (jit / "comm.py").write_text(FAKE.format(aot=aot, place=str(jit)))
    (jit / "cpp_ext.py").write_text("def get_cuda_version(): return '13.0'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = run_builder([sys.executable, "-m", "runner.case.library_modules", "vllm_comm"], "vllm_comm", 60)
    assert found.problem == ""
    assert found.compiled_with.endswith(f", {said}")
    assert found.compiled_with.startswith("PyTorch 2")
    assert os.path.isdir(jit)
