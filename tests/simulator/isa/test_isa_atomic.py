"""The forms of atom and red: the oracle's list against the assembler, and the simulator's table against that list."""

import numpy as np
import pytest

from tests.simulator.harness import simple

ON_A_GPU = [
    (0x00000001, 0x00000001, 0x00000000),
    (0x00000001, 0x00000000, 0x00000000),
    (0x80000001, 0x00000000, 0x00000000),
    (0x80000001, 0x80000000, 0x80000000),
    (0x00800000, 0x80400000, 0x00800000),
    (0x00800001, 0x80800000, 0x00000000),
    (0x00400000, 0x00400000, 0x00000000),
    (0x7FC00001, 0x00000000, 0x7FFFFFFF),
    (0x7F800001, 0x3F800000, 0x7FFFFFFF),
    (0xFFC12345, 0x7FC54321, 0x7FFFFFFF),
    (0x80000000, 0x80000000, 0x80000000),
]
"""Old bits, added bits, new bits of atom.global.add.f32 and red.global.add.f32 on an H100, 2026-11-22."""


@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_a_sum_of_floats_flushes_subnormals_as_a_gpu_does(opcode):
    old, added, wanted = (np.array(column, np.uint32) for column in zip(*ON_A_GPU, strict=True))
    target = "%r4, " if opcode == "atom" else ""
    body = f"""
      setp.ge.u32 %p2, %lane, {len(old)}; @%p2 ret;
      mul.wide.u32 %d1, %lane, 4; add.s64 %d2, %d1, %in0; add.s64 %d3, %d1, %in1; add.s64 %d4, %d1, %out;
      ld.global.b32 %r1, [%d2]; st.global.b32 [%d4], %r1; ld.global.b32 %r3, [%d3];
      {opcode}.global.add.f32 {target}[%d4], %r3;
    """
    found = simple(body, [old, added], 4 * len(old), 1, 32).view(np.uint32)
    assert [f"{bits:08x}" for bits in found] == [f"{bits:08x}" for bits in wanted]
