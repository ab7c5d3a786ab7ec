"""Arguments of CuTe DSL functions: what annotations ask for, and tensors as the compiler's own runtime packs them."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from cases.dtypes import DTYPES
from kernels.own.arguments import ArgumentSpec
from kernels.own.functions import Input, function_call, wanted_kinds
from runner.custom.nouns import BufferSpec


@pytest.mark.parametrize("shape", [(7,), (5, 8), (3, 4, 6), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_a_tensor_read_at_run_time_is_packed_as_cute_packs_it(shape: tuple[int, ...], dtype: str) -> None:
    """The oracle is the descriptor that CuTe DSL makes of a real tensor with a dynamic layout."""
    from cutlass.cute.runtime import from_dlpack

    tensor = torch.zeros(shape, dtype=DTYPES[dtype])
    theirs: Any = from_dlpack(tensor).mark_layout_dynamic()
    ours = Input(ArgumentSpec("address", "data"), extents=shape).content(0, 1)
    (address,) = theirs.__c_pointers__()
    found = ctypes.string_at(address, len(ours))
    assert int.from_bytes(found[:8], "little") == tensor.data_ptr()
    assert found[8 : 8 + 4 * len(shape)] == ours[8 : 8 + 4 * len(shape)]
    strides = len(ours) - 8 * (len(shape) - 1)
    assert found[strides:] == ours[strides:]


def test_annotations_say_how_arguments_are_read() -> None:
    class Fake:
        """A class with the names that matter."""

        class Tensor: ...

        class Pointer: ...

    def function(
        one: Fake.Tensor,
        two: list[Fake.Tensor],
        three: tuple[Fake.Tensor, Fake.Tensor],
        four: Fake.Pointer,
        five: cutlass.Constexpr[int],  # type: ignore[name-defined]  # noqa: F821
        six: int,
        seven,  # type: ignore[no-untyped-def]
    ) -> None: ...

    found = wanted_kinds(function, 8)
    assert found == ["tensor", "tensors", "tensors", "pointer", "constexpr", "", "", ""]
    assert wanted_kinds(len, 2) == ["", ""]


def test_inputs_are_in_the_order_of_parameters_and_constants_are_none() -> None:
    def function(
        data: list[cute.Tensor],  # type: ignore[name-defined]  # noqa: F821
        scale: cutlass.Constexpr,  # type: ignore[name-defined]  # noqa: F821
        table: cute.Pointer,  # type: ignore[name-defined]  # noqa: F821
        rank: cutlass.Int32,  # type: ignore[name-defined]  # noqa: F821
    ) -> None: ...

    buffers = {"data": BufferSpec("data", "float16", (2, 3))}
    arguments = [ArgumentSpec("tensors", "data"), ArgumentSpec("u32", 3), ArgumentSpec("peers", "data")]
    call = function_call(function, [*arguments, ArgumentSpec("u32", "rank")], buffers, 2)
    assert [one.kind for one in call.arguments] == ["tensors", "constexpr", "address", "u32"]
    members = [(one.dtype, one.shape, one.is_dynamic) for one in call.arguments[0].members]
    assert members == [("float16", (2, 3), False)] * 2
    assert (call.arguments[1].value, call.arguments[2].dtype) == (3, "int64")
    inputs = [(one.argument.kind, one.peer) for one in call.inputs]
    assert inputs == [("address", 0), ("address", 1), ("peers", None), ("u32", None)]
    assert call.inputs[3].content(1, 2) == b"\x01\0\0\0"
