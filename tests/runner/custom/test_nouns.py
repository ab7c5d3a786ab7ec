"""What a custom kernel is given: every rule that the description alone can break."""

from __future__ import annotations

import re

import pytest

from memory.fabric import Argument, Launch
from runner.custom.nouns import ArgumentSpec, BufferSpec, CustomSpec, Fill, Tolerance, refuses_parameters

INPUT = BufferSpec("input", "float32", (2, 8), fill=Fill.rank)
OWN = BufferSpec("own", "int64", (4,), symmetric=False)


def spec(*arguments: ArgumentSpec) -> CustomSpec:
    return CustomSpec("mine", Launch(1, 32), (INPUT, OWN), arguments)


def test_a_buffer_knows_its_size() -> None:
    assert (INPUT.numel, INPUT.size_bytes, OWN.size_bytes) == (16, 64, 32)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "two words"}, "letters, digits"),
        ({"dtype": "float12"}, "unknown dtype 'float12', give one of float64"),
        ({"shape": ()}, "shape is []"),
        ({"shape": (4, 0)}, "shape is [4, 0], give whole numbers from 1"),
        ({"shape": (1 << 20, 1 << 21)}, "give at most"),
        ({"dtype": "int32", "fill": Fill.normal}, "give random"),
    ],
)
def test_a_buffer_that_can_not_be(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        BufferSpec(**{"name": "input", "dtype": "float32", "shape": (4,), **values})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_arguments_are_bound_on_each_rank() -> None:
    assert ArgumentSpec("peers", "input").bound(1, 4, 0x700) == Argument("address", 0x700)
    assert ArgumentSpec("u32", "rank").bound(3, 4) == Argument("u32", 3)
    assert ArgumentSpec("u64", "world_size").bound(3, 4) == Argument("u64", 4)
    assert ArgumentSpec("s32", -5).bound(3, 4) == Argument("u32", -5)
    assert ArgumentSpec("bytes", b"abcd").bound(0, 1) == Argument("bytes", b"abcd")
    assert ArgumentSpec("f32", 0.5).bound(0, 1) == Argument("f32", 0.5)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("u16", 1, "unknown kind 'u16'"),
        ("u32", -1, "give 0 to 2^32 - 1"),
        ("u32", 1 << 32, "give -2^31 to 2^32 - 1"),
        ("s32", 1 << 31, "give -2^31 to 2^31 - 1"),
        ("s64", 0.5, "give -2^63 to 2^63 - 1"),
        ("u64", "ranks", "give a number or rank or world_size"),
        ("f32", "rank", "give a number"),
        ("f32", 1e60, "float32"),
        ("u32", True, "give a number"),
        ("bytes", b"", "give at least one byte"),
        ("address", 7, "give the name of a buffer"),
    ],
)
def test_an_argument_that_can_not_be(kind: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ArgumentSpec(kind, value)  # type: ignore[arg-type]


def test_a_kernel_gets_only_buffers_that_there_are() -> None:
    with pytest.raises(ValueError, match="argument 1: there is no buffer 'inptu': the buffers are input, own"):
        spec(ArgumentSpec("u32", 1), ArgumentSpec("address", "inptu"))


@pytest.mark.parametrize("kind", ["peers", "multicast"])
def test_others_do_not_reach_a_local_buffer(kind: str) -> None:
    assert spec(ArgumentSpec("address", "own")).tables == ()
    with pytest.raises(ValueError, match=f"argument 0: {kind} of own, which is local"):
        spec(ArgumentSpec(kind, "own"))  # type: ignore[arg-type]


def test_two_buffers_of_one_name() -> None:
    with pytest.raises(ValueError, match="two buffers are called input"):
        CustomSpec("mine", Launch(1, 1), (INPUT, INPUT), ())


def test_arguments_fit_the_parameters() -> None:
    both = spec(ArgumentSpec("peers", "input"), ArgumentSpec("u32", "rank"))
    assert refuses_parameters(both, [8, 4]) == ""
    assert refuses_parameters(both, [8]) == "mine has 1 parameters, and 2 arguments are given"
    assert refuses_parameters(both, [8, 8]) == "parameter 1 of mine has 8 bytes, and argument 1 (u32) has 4"


def test_a_tolerance_is_not_negative() -> None:
    assert Tolerance().is_bitwise
    assert Tolerance(1e-6, 1e-3).formula == "1e-06 + 0.001 * |expected|"
    with pytest.raises(ValueError, match="tolerance.relative is -1"):
        Tolerance(relative=-1)
