"""What fails while a kernel is compiled: one line, with the line of the user's file and none of the project's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.brought import function_at, spec_at
from kernels.compile import CallArgument, compiled_callable, executable
from kernels.compile_error import CompilationError, reason_of
from kernels.spec import Case
from runner.world.world import described
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
    ("right", "wrong", "words"),
    [
        ("    frame.arrive()\n", "    frame.arive()\n", "'Frame' object has no attribute 'arive' (ring.py:12)"),
        (
            'frame.address("input")',
            'frame.address("data")',
            "there is no buffer 'data' as address, the spec's buffers declare address('input'), peers('output'), "
            "peers('signals'), address('signals'), address('epochs'), address('status') (ring.py:13)",
        ),
        ("frame.size, push", "{}['size'], push", "KeyError: 'size' (ring.py:15)"),
    ],
)
def test_an_error_in_a_body_names_the_line_of_its_file(tmp_path: Path, right: str, wrong: str, words: str) -> None:
    assert right in RING
    file = write_ring(tmp_path)
    file.write_text(RING.replace(right, wrong))
    with pytest.raises(CompilationError) as caught:
        executable(spec_at(f"{file}:SPEC"), CASE, "sm_90a", tmp_path / "cache")
    message = str(caught.value)
    assert message.endswith(f"for sm_90a failed: {words}")
    assert described(caught.value) == message, "no line of the project's own after it"


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
