"""What a custom kernel is given: every rule that the description alone can break."""

import pytest

from kernels.own.arguments import ArgumentSpec, argument_of
from memory.fabric import Argument, Launch
from runner.custom.nouns import BufferSpec, CustomSpec, Fill, Tolerance
from tests.golden import refused

INPUT = BufferSpec("input", "float32", (2, 8), fill=Fill.rank)
OWN = BufferSpec("own", "int64", (4,), symmetric=False)


def spec(*arguments):
    return CustomSpec("mine", Launch(1, 32), (INPUT, OWN), arguments)


def test_a_buffer_knows_its_size():
    assert (INPUT.numel, INPUT.size_bytes, OWN.size_bytes) == (16, 64, 32)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "two words"},
        {"name": "rank"},
        {"dtype": "float12"},
        {"shape": ()},
        {"shape": (4, 0)},
        {"shape": (1 << 20, 1 << 21)},
        {"dtype": "int32", "fill": Fill.normal},
    ],
    ids=str,
)
def test_a_buffer_that_can_not_be(values):
    with refused():
        BufferSpec(**{"name": "input", "dtype": "float32", "shape": (4,), **values})


def test_arguments_are_bound_on_each_rank():
    assert ArgumentSpec("peers", "input").bound(1, 4, 0x700) == Argument("address", 0x700)
    assert ArgumentSpec("u32", "rank").bound(3, 4) == Argument("u32", 3)
    assert ArgumentSpec("u64", "world_size").bound(3, 4) == Argument("u64", 4)
    assert argument_of("one", "patience", 4).bound(3, 4, patience=1 << 40) == Argument("u64", 1 << 40)
    assert ArgumentSpec("s32", -5).bound(3, 4) == Argument("u32", -5)
    assert ArgumentSpec("bytes", b"abcd").bound(0, 1) == Argument("bytes", b"abcd")
    assert ArgumentSpec("f32", 0.5).bound(0, 1) == Argument("f32", 0.5)


def test_a_struct_has_the_size_that_c_gives_it():
    inner = {"struct": ["input", {"u8": 1}]}
    for members, size_bytes in (([{"u8": 1}, {"u16": 1}, {"u8": 1}], 6), (["rank", inner], 24), (["rank", "rank"], 8)):
        assert argument_of("one", {"struct": members}, 2).size_bytes == size_bytes


def test_offsets_may_be_text_with_a_zero_before():
    """YAML reads 08 as text, which JSON makes of all offsets."""
    assert argument_of("one", {"struct": {0: "input", "08": "rank"}}, 2) == argument_of(
        "one", {"struct": {"0": "input", "8": "rank"}}, 2
    )


def test_an_argument_that_can_not_be():
    for kind, values in {
        "u12": [1],
        "u8": [256, -1],
        "s16": [1 << 15],
        "u32": [-1, 1 << 32, True],
        "s32": [1 << 31],
        "s64": [0.5],
        "u64": ["ranks"],
        "s8": ["patience"],
        "constexpr": ["patience"],
        "f32": ["rank", 1e60],
        "bytes": [b""],
        "address": [7, "input-1", "input+"],
        "tensor": ["input+4"],
    }.items():
        for value in values:
            with refused():
                ArgumentSpec(kind, value)


def test_a_kernel_gets_only_buffers_that_there_are_and_that_others_reach():
    spec(ArgumentSpec("address", "own"))
    for kind, buffer in (("address", "inptu"), ("address", "input+64"), ("peers", "own"), ("multicast", "own")):
        with refused():
            spec(ArgumentSpec("u32", 1), ArgumentSpec(kind, buffer))
    with refused():
        CustomSpec("mine", Launch(1, 1), (INPUT, INPUT), ())


def test_a_tolerance_is_not_negative():
    assert Tolerance().is_bitwise
    assert Tolerance(1e-6, 1e-3).formula == "1e-06 + 0.001 * |expected|"
    with refused():
        Tolerance(relative=-1)
