"""Variables of a module that are set before a launch, and pointers to structs as arguments."""

import struct

import pytest
import torch

import symlab
from tests.golden import refused

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .const .align 8 .b8 table[24];
.visible .global .align 4 .u32 counter = 40;
.visible .entry tell(.param .u64 out, .param .u64 given) {
  .reg .b32 %r<4>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [given];
  ld.const.b64 %d3, [table]; ld.const.b32 %r1, [table+8]; ld.const.b64 %d4, [table+16];
  st.global.b64 [%d1], %d3; st.global.b32 [%d1+8], %r1; st.global.b64 [%d1+16], %d4;
  ld.global.b32 %r2, [counter]; st.global.b32 [%d1+12], %r2; add.u32 %r2, %r2, 1; st.global.b32 [counter], %r2;
  ld.global.nc.b32 %r3, [%d2]; st.global.b32 [%d1+24], %r3; ld.global.b64 %d5, [%d2+8]; st.global.b64 [%d1+32], %d5;
  ret; }
"""
GIVEN = ("pointer", [("u32", 5), ("u64", 6)])


def told(variables, given=GIVEN, ranks=2, **more):
    buffers = {"out": (40, "uint8", 0), "data": (8, "float32", 0)}
    how = {"ranks": ranks, "grid": 1, "block": 1, "schedule": "fair", "variables": variables, **more}
    return symlab.simulate(KERNEL, buffers=buffers, arguments=["out", given], **how)


def fields(done):
    return [struct.unpack("<QIIQIxxxxQ", out.numpy().tobytes()) for out in done.outputs["out"]]


def test_what_is_not_given_keeps_its_first_value():
    assert fields(told(None)) == [(0, 0, 40, 0, 5, 6)] * 2
    assert fields(told({"counter": ("u32", 9)})) == [(0, 0, 9, 0, 5, 6)] * 2


def test_bytes_arguments_and_parts_at_offsets():
    assert fields(told({"table": struct.pack("<QI", 7, 8)})) == [(7, 8, 40, 0, 5, 6)] * 2
    assert fields(told({"table": {8: ("u32", "rank"), 16: ("u64", 3)}, "counter": b"\1\0\0\0"})) == [
        (0, rank, 1, 3, 5, 6) for rank in range(2)
    ]
    whole = ("struct", [("u64", 1), ("s32", -1), ("u64", 2)])
    assert fields(told({"table": whole})) == [(1, (1 << 32) - 1, 40, 2, 5, 6)] * 2


def test_addresses_of_buffers_and_of_peers():
    found = fields(told({"table": {0: "data", 16: ("peer", "data", 1)}}))
    distance = found[0][3] - found[0][0]
    assert distance > 0, "rank 1 as rank 0 sees it"
    assert found[1][0] == found[1][3]


def test_a_function_gives_each_rank_its_own():
    by_rank = lambda rank: {"table": ("u64", 10 * rank)}  # noqa: E731
    assert [one[0] for one in fields(told(by_rank, ranks=3))] == [0, 10, 20]


def test_a_pointer_leads_to_a_struct_of_this_rank():
    found = fields(told(None, ("pointer", [("u32", "rank"), ("u64", "world_size")])))
    assert [one[4:] for one in found] == [(0, 2), (1, 2)]
    nested = ("pointer", [("u32", 1), GIVEN])
    assert fields(told(None, nested))[0][4] == 1


def test_a_world_sets_variables_of_each_launch():
    with symlab.world(ranks=2) as world:
        how = {"grid": 1, "block": 1, "buffers": {"out": (40, torch.uint8, 0)}, "arguments": ["out", GIVEN]}
        first = world.launch(KERNEL, **how, variables={"counter": ("u32", 7)})
        second = world.launch(KERNEL, **how)
        third = world.launch(KERNEL, **how, variables={"counter": ("u32", 1)})
    seen = [int(one.outputs["out"][1][12]) for one in (first, second, third)]
    assert seen == [7, 8, 1], "the module stays loaded between launches"


@pytest.mark.parametrize(
    "variables",
    [
        {"tabel": b"1"},
        {"table": bytes(25)},
        {"table": {20: ("u64", 1)}},
        {"table": {-8: ("u64", 1)}},
        {"table": 5},
        {"table": "dota"},
        {"table": {4: "launch"}},
        {"table": ("struct", [("peer", "data", 2)])},
        [("table", b"1")],
        lambda rank: {"table": bytes(rank + 1)},
    ],
)
def test_variables_that_do_not_fit_are_one_line(variables):
    with refused(ValueError, r"(?<=ValueError: )(rank \d: )?"):
        told(variables)


@pytest.mark.parametrize("given", [("pointer", []), ("pointer", "data"), ("pointer", 5), ("struct", "data")])
def test_a_pointer_needs_members(given):
    with refused():
        told(None, given)


def test_a_variable_takes_no_tensor_of_a_function():
    with refused():
        told({"table": ("struct", [("tensor", "data")])})
