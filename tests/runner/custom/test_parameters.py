"""The parameters of PTX entries, as their declarations say."""

from __future__ import annotations

import re

import pytest

from memory.fabric import Launch
from runner.custom.nouns import ArgumentSpec, BufferSpec, CustomSpec
from runner.custom.parameters import PtxParameter, entry_of, fits, refuses_entry, refuses_target

PTX = """
// .visible .entry commented(.param .u64 a)
.version 8.0
.target sm_90a, debug
.address_size 64
/* .entry also_commented() */
.entry none()
{ ret; }
.visible .entry many(
    .param .u64 .ptr .global .align 16 many_param_0, // a pointer, with a comma
    .param .align 8 .b8 many_param_1[248],
    .param .f32 many_param_2,
    .param .u32 many_param_3
)
.reqntid 128, 1, 1
{ ret; }
.entry bare
{ ret; }
"""


def spec(*arguments: ArgumentSpec) -> CustomSpec:
    return CustomSpec("many", Launch(1, 32), (BufferSpec("input", "float32", (4,)),), arguments)


def test_an_entrys_parameters_are_read_without_its_body() -> None:
    entry = entry_of(PTX, "many")
    assert entry.target == "sm_90a"
    assert entry.parameters == (
        PtxParameter("u64", 8),
        PtxParameter("b8", 248),
        PtxParameter("f32", 4),
        PtxParameter("u32", 4),
    )
    assert entry_of(PTX, "none").parameters == entry_of(PTX, "bare").parameters == ()


def test_an_entry_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="there is no entry commented in it: its entries are none, many, bare"):
        entry_of(PTX, "commented")
    with pytest.raises(ValueError, match="it is no PTX"):
        entry_of("int main() {}", "main")


@pytest.mark.parametrize(
    ("third", "fourth", "words"),
    [
        (ArgumentSpec("f32", 1.0), ArgumentSpec("u32", 1), ""),
        (ArgumentSpec("f32", 1.0), ArgumentSpec("s32", -1), ""),
        (ArgumentSpec("u32", 1), ArgumentSpec("u32", 1), "parameter 2 of many is .f32, and argument 2 is u32"),
        (ArgumentSpec("f32", 1.0), ArgumentSpec("f32", 1), "parameter 3 of many is .u32, and argument 3 is f32"),
        (
            ArgumentSpec("f64", 1.0),
            ArgumentSpec("u32", 1),
            "parameter 2 of many has 4 bytes, and argument 2 (f64) has 8",
        ),
    ],
)
def test_arguments_fit_an_entry_in_size_and_kind(third: ArgumentSpec, fourth: ArgumentSpec, words: str) -> None:
    given = spec(ArgumentSpec("address", "input"), ArgumentSpec("bytes", bytes(248)), third, fourth)
    assert refuses_entry(given, entry_of(PTX, "many")) == words


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        ("f32", "f32 b8", "u32 s32 b32"),
        ("f64", "f64 b8", "u64 b64"),
        ("u32", "u32 s32 b32 b8", "f32"),
        ("s32", "u32 s32 b32", "f32"),
        ("address", "u64 b64", "f64"),
        ("bytes", "b8 u32 f32 b32", ""),
    ],
)
def test_floats_are_for_floats(kind: str, taken: str, refused: str) -> None:
    assert [one for one in [*taken.split(), *refused.split()] if fits(kind, one)] == taken.split()


def test_too_few_arguments() -> None:
    words = "many has 4 parameters, and 1 arguments are given"
    assert re.fullmatch(words, refuses_entry(spec(ArgumentSpec("u64", 1)), entry_of(PTX, "many")))


@pytest.mark.parametrize(
    ("target", "arch", "runs"),
    [
        ("sm_80", "sm_90a", True),
        ("sm_90", "sm_90", True),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_90", False),
        ("sm_90a", "sm_100a", False),
        ("sm_100", "sm_90a", False),
        ("sm_100f", "sm_103a", True),
        ("sm_100f", "sm_120a", False),
    ],
)
def test_ptx_runs_on_later_architectures_unless_it_is_for_one(target: str, arch: str, runs: bool) -> None:
    assert (refuses_target(target, arch) == "") is runs
