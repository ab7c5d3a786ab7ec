"""What buffers hold before a launch, and what references may give."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from kernels.numeric.dtypes import ALL, FLOATS
from memory.fabric import Launch
from runner.custom.contents import content_of, expected_of, inputs_of
from runner.custom.nouns import BufferSpec, CustomSpec, Fill


def spec(reference: Any = None, fill: Any = Fill.rank) -> CustomSpec:
    buffers = (BufferSpec("input", "float32", (2, 3), fill=fill), BufferSpec("output", "int32", (4,)))
    return CustomSpec("mine", Launch(1, 1), buffers, (), reference)


@pytest.mark.parametrize(
    ("fill", "dtype"), [(fill, dtype) for fill in Fill for dtype in (FLOATS if fill is Fill.normal else ALL)]
)
def test_a_fill_is_the_same_in_every_process_and_another_on_each_rank(dtype: str, fill: Fill) -> None:
    buffer = BufferSpec("input", dtype, (5, 7), fill=fill)
    one, again, other = (content_of(buffer, rank, 4, 3) for rank in (1, 1, 2))
    assert (str(one.dtype), tuple(one.shape)) == (f"torch.{dtype}", (5, 7))
    bits = [content.view(torch.uint8) for content in (one, again, other)]
    assert torch.equal(bits[0], bits[1])
    assert torch.equal(bits[0], bits[2]) is (fill in (Fill.poison, Fill.zeros))


def test_fills_are_what_they_are_called() -> None:
    def of(fill: Fill) -> torch.Tensor:
        return content_of(BufferSpec("input", "float32", (4096,), fill=fill), 3, 4, 0)

    assert of(Fill.zeros).abs().max() == 0
    assert bool((of(Fill.rank) == 3).all())
    assert bool(of(Fill.poison).isnan().all())
    assert 0 <= of(Fill.random).min() < of(Fill.random).max() < 1
    assert abs(of(Fill.normal).std() - 1) < 0.1


def test_another_seed_gives_other_data() -> None:
    buffer = BufferSpec("input", "float32", (8,), fill=Fill.normal)
    assert not torch.equal(content_of(buffer, 0, 2, 0), content_of(buffer, 0, 2, 1))


def test_a_function_fills_by_rank_and_world_size() -> None:
    found = inputs_of(spec(fill=lambda rank, world_size: torch.full((2, 3), float(10 * rank + world_size))), 2, 0)
    assert [float(contents["input"][0, 0]) for contents in found] == [2.0, 12.0]
    assert list(found[0]) == ["input"], "poison is left out"


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (lambda rank, world_size: 1 // 0, "the fill of buffer input for rank 0 raises ZeroDivisionError"),
        (lambda rank, world_size: [1.0], "is a list, give a tensor of torch.float32, shape [2, 3]"),
        (lambda rank, world_size: torch.zeros(3, 2), "is torch.float32, shape [3, 2], give a tensor"),
    ],
)
def test_a_fill_that_gives_something_else(fill: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        inputs_of(spec(fill=fill), 2, 0)


RIGHT = {"output": torch.zeros(4, dtype=torch.int32)}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (7, "the reference gives a int, give a list of one result for each of 2 ranks"),
        ([RIGHT], "the reference gives 1 results, give a list"),
        ([RIGHT, 3], "the reference's result of rank 1 is a int, give a dict of tensors by buffer name, or None"),
        ([RIGHT, {"outptu": torch.zeros(4)}], "rank 1 has a buffer 'outptu': the buffers are input, output"),
        (
            [RIGHT, {"output": torch.zeros(4)}],
            "output of rank 1 is torch.float32, shape [4], give a tensor of torch.int32",
        ),
        (
            [{"output": torch.zeros(2, 2, dtype=torch.int32)}, None],
            "shape [2, 2], give a tensor of torch.int32, shape [4]",
        ),
        ([None, None], "gives no buffer of any rank, so nothing would be compared"),
    ],
)
def test_a_reference_that_gives_something_else(result: Any, words: str) -> None:
    one = spec(lambda inputs: result)
    with pytest.raises(ValueError, match=re.escape(words)):
        expected_of(one, inputs_of(one, 2, 0))


def test_a_reference_that_raises_is_told_in_one_line() -> None:
    def reference(inputs: Any) -> Any:
        raise KeyError("no\nsuch")

    with pytest.raises(ValueError, match="the reference raises KeyError: ") as caught:
        expected_of(spec(reference), inputs_of(spec(), 2, 0))
    assert "\n" not in str(caught.value)


def test_a_reference_can_not_change_the_inputs() -> None:
    def reference(inputs: Any) -> Any:
        inputs[0]["input"].zero_()
        return [RIGHT, None]

    one = spec(reference)
    inputs = inputs_of(one, 2, 0)
    before = inputs[0]["input"].clone()
    assert expected_of(one, inputs)[1] == {}
    assert torch.equal(inputs[0]["input"], before)


def test_a_fill_and_a_reference_may_use_one_tensor_again() -> None:
    scratch, result = torch.zeros(2, 3), torch.zeros(4, dtype=torch.int32)

    def fill(rank: int, world_size: int) -> torch.Tensor:
        return scratch.fill_(rank)

    one = spec(lambda inputs: [{"output": result} for _ in inputs], fill)
    inputs = inputs_of(one, 3, 0)
    assert [float(contents["input"][1, 2]) for contents in inputs] == [0.0, 1.0, 2.0], "each rank's own"
    expected = expected_of(one, inputs)
    result.fill_(7)
    assert [int(contents["output"].sum()) for contents in expected] == [0, 0, 0]


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"for rank 0 is sparse \(torch.sparse_coo\), give a dense tensor"):
        inputs_of(spec(fill=lambda rank, world_size: torch.zeros(2, 3).to_sparse()), 2, 0)
