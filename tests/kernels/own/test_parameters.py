"""The parameters of PTX entries, as their declarations say."""

import pytest

from kernels.own.arguments import ArgumentSpec
from kernels.own.parameters import fits, parameters_of, refuses_entry, refuses_target
from memory.fabric import Launch
from runner.custom.nouns import BufferSpec, CustomSpec
from tests.golden import refused, same_text

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


def spec(*arguments):
    return CustomSpec("many", Launch(1, 32), (BufferSpec("input", "float32", (4,)),), arguments)


def test_an_entrys_parameters_are_read_without_its_body():
    found = [(one.type, one.size_bytes) for one in parameters_of(PTX, "many")]
    assert found == [("u64", 8), ("b8", 248), ("f32", 4), ("u32", 4)]
    assert parameters_of(PTX, "none") == parameters_of(PTX, "bare") == ()


def test_an_entry_that_is_not_there():
    for ptx, name in ((PTX, "commented"), ("int main() {}", "main")):
        with refused():
            parameters_of(ptx, name)


@pytest.mark.parametrize(
    ("kinds", "is_right"), [("f32 u32", 1), ("f32 s32", 1), ("u32 u32", 0), ("f32 f32", 0), ("f64 u32", 0)]
)
def test_arguments_fit_an_entry_in_size_and_kind(kinds, is_right):
    third, fourth = (ArgumentSpec(kind, 1) for kind in kinds.split())
    given = spec(ArgumentSpec("address", "input"), ArgumentSpec("bytes", bytes(248)), third, fourth)
    words = refuses_entry(given.name, given.arguments, parameters_of(PTX, "many"))
    assert (words == "") == is_right
    same_text(words)


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
def test_floats_are_for_floats(kind, taken, refused):
    assert [one for one in [*taken.split(), *refused.split()] if fits(kind, one)] == taken.split()


def test_too_few_arguments():
    same_text(refuses_entry("many", [ArgumentSpec("u64", 1)], parameters_of(PTX, "many")))


RUNS = "sm_80 sm_90a, sm_90 sm_90, sm_90a sm_90a, sm_100f sm_103a"
REFUSED = "sm_90a sm_90, sm_90a sm_100a, sm_100 sm_90a, sm_100f sm_120a"


def test_ptx_runs_on_later_architectures_unless_it_is_for_one():
    for pairs, runs in ((RUNS, True), (REFUSED, False)):
        for pair in pairs.split(", "):
            target, arch = pair.split()
            assert (refuses_target(target, arch) == "") is runs, pair
