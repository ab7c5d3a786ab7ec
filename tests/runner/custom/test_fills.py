"""What buffers hold before a launch, and what references may give."""

import pytest
import torch

from cases.dtypes import ALL, FLOATS
from memory.fabric import Launch
from runner.custom.contents import content_of, expected_of, inputs_of
from runner.custom.nouns import BufferSpec, CustomSpec, Fill
from tests.golden import refused

LINE = r"(?<=test_fills.py:)\d+"


def spec(reference=None, fill=Fill.rank):
    buffers = (BufferSpec("input", "float32", (2, 3), fill=fill), BufferSpec("output", "int32", (4,)))
    return CustomSpec("mine", Launch(1, 1), buffers, (), reference)


@pytest.mark.parametrize(
    ("fill", "dtype"), [(fill, dtype) for fill in Fill for dtype in (FLOATS if fill is Fill.normal else ALL)]
)
def test_a_fill_is_the_same_in_every_process_and_another_on_each_rank(dtype, fill):
    buffer = BufferSpec("input", dtype, (5, 7), fill=fill)
    one, again, other = (content_of(buffer, rank, 4, 3) for rank in (1, 1, 2))
    assert (str(one.dtype), tuple(one.shape)) == (f"torch.{dtype}", (5, 7))
    bits = [content.view(torch.uint8) for content in (one, again, other)]
    assert torch.equal(bits[0], bits[1])
    assert torch.equal(bits[0], bits[2]) is (fill in (Fill.poison, Fill.zeros))


def test_fills_are_what_they_are_called():
    def of(fill, seed=0):
        return content_of(BufferSpec("input", "float32", (4096,), fill=fill), 3, 4, seed)

    assert of(Fill.zeros).abs().max() == 0
    assert bool((of(Fill.rank) == 3).all())
    assert bool(of(Fill.poison).isnan().all())
    assert 0 <= of(Fill.random).min() < of(Fill.random).max() < 1
    assert abs(of(Fill.normal).std() - 1) < 0.1
    assert not torch.equal(of(Fill.normal), of(Fill.normal, 1))


def test_a_function_fills_by_rank_and_world_size():
    found = inputs_of(spec(fill=lambda rank, world_size: torch.full((2, 3), float(10 * rank + world_size))), 2, 0)
    assert [float(contents["input"][0, 0]) for contents in found] == [2.0, 12.0]
    assert list(found[0]) == ["input"], "poison is left out"


@pytest.mark.parametrize(
    "fill",
    [
        lambda rank, world_size: 1 // 0,
        lambda rank, world_size: [1.0],
        lambda rank, world_size: torch.zeros(3, 2),
        lambda rank, world_size: torch.zeros(2, 3).to_sparse(),
    ],
    ids=["raises", "list", "shape", "sparse"],
)
def test_a_fill_that_gives_something_else(fill):
    with refused(ValueError, LINE):
        inputs_of(spec(fill=fill), 2, 0)


RIGHT = {"output": torch.zeros(4, dtype=torch.int32)}


def raises(inputs):
    raise KeyError("no\nsuch")


@pytest.mark.parametrize(
    "result",
    [
        7,
        [RIGHT],
        [RIGHT, 3],
        [RIGHT, {"outptu": torch.zeros(4)}],
        [RIGHT, {"output": torch.zeros(4)}],
        [{"output": torch.zeros(2, 2, dtype=torch.int32)}, None],
        [None, None],
        raises,
    ],
    ids=["int", "one rank", "int of a rank", "unknown buffer", "dtype", "shape", "nothing", "raises"],
)
def test_a_reference_that_gives_something_else(result):
    one = spec(result if callable(result) else lambda inputs: result)
    with refused(ValueError, LINE):
        expected_of(one, inputs_of(one, 2, 0))
