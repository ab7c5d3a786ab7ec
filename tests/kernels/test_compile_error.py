"""What fails while a kernel is compiled: one line, with the line of the user's file and none of the project's own."""

from __future__ import annotations

from pathlib import Path

import pytest

import symlab
from cases.case import Case
from kernels.brought import function_at, spec_at
from kernels.compile import executable
from kernels.compile_error import CompilationError, reason_of
from kernels.functions import CallArgument, compiled_callable
from runner.world.world import described
from tests.golden import refused
from tests.kernels.own_kernel import RING, write_ring

CASE = Case("send_recv", "ring", "uint8", "none", "none", 1 << 20, 2)

FUNCTIONS = """
import cutlass.cute as cute

@cute.kernel
def device(data: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    data[thread] = data[thread].nothing

@cute.jit
def wrong(data: cute.Tensor):
    device(data).launch(grid=(1, 1, 1), block=(32, 1, 1))

@cute.kernel
def branches(data: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        late = 1
    data[thread] = late

@cute.jit
def staged(data: cute.Tensor):
    branches(data).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    frame.arrive()\n", "    frame.arive()\n"),
        ('frame.address("input")', 'frame.address("data")'),
        ("frame.size, push", "{}['size'], push"),
    ],
)
def test_an_error_in_a_body_names_the_line_of_its_file(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in RING
    file = write_ring(tmp_path)
    file.write_text(RING.replace(right, wrong))
    with refused(CompilationError) as caught:
        executable(spec_at(f"{file}:SPEC"), CASE, "sm_90a", tmp_path / "cache")
    assert described(caught.value) == str(caught.value), "no line of the project's own after it"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("wrong", 1, "'Float32' object has no attribute 'nothing' (functions.py:7)"),
        ("staged", 1, "functions.py:18"),
        ("wrong", 0, "Required argument `data` is missing in the call to `wrong`"),
    ],
)
def test_an_error_of_a_function_is_one_line_without_lines_of_the_project(
    tmp_path: Path, name: str, arguments: int, words: str
) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    function = function_at(f"{tmp_path / 'functions.py'}:{name}").call
    with pytest.raises(ValueError, match="for sm_90a failed") as caught:
        compiled_callable(function, name, [CallArgument("tensor", "float32", (32,))] * arguments, "sm_90a")
    message = str(caught.value)
    assert words in message
    assert not [one for one in ("\n", "\x1b", "compile.py", "cute.compile[") if one in message]


def test_an_error_without_a_place_of_a_user_has_none() -> None:
    assert reason_of(RuntimeError("\x1b[91merror:\x1b[0m one\n  two")) == "error: one two"


ENDING = """
import ctypes, os
import cutlass.cute as cute

@cute.kernel
def device(data: cute.Tensor):
    END

@cute.jit
def call(data: cute.Tensor):
    device(data).launch(grid=(1, 1, 1), block=(32, 1, 1))

def made():
    @cute.jit
    def inner(data: cute.Tensor):
        device(data).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return inner
"""


@pytest.mark.parametrize("end", ["ctypes.string_at(0)", "os._exit(0)"])
@pytest.mark.parametrize("is_closure", [False, True])
def test_a_function_that_ends_its_process_is_a_message(tmp_path: Path, end: str, is_closure: bool) -> None:
    (tmp_path / "ending.py").write_text(ENDING.replace("END", end, 1))
    found = function_at(f"{tmp_path / 'ending.py'}:{'made' if is_closure else 'call'}").call
    function = found() if is_closure else found
    buffers = {"data": (32, "float32", 0)}
    with refused():
        symlab.simulate(function, ranks=1, buffers=buffers, arguments=[("tensor", "data")], seeds=1)


def test_a_brought_kernel_that_ends_its_process_is_a_message_and_others_still_compile(tmp_path: Path) -> None:
    file = write_ring(tmp_path)
    file.write_text("import ctypes\n" + RING.replace("    frame.arrive()\n", "    ctypes.string_at(0)\n"))
    with pytest.raises(CompilationError, match=r"SIGSEGV in string_at, .*ring\.py:13"):
        executable(spec_at(f"{file}:SPEC"), CASE, "sm_90a", tmp_path / "cache")
    again = write_ring(tmp_path / "again")
    assert executable(spec_at(f"{again}:SPEC"), CASE, "sm_90a", tmp_path / "cache").ptx
