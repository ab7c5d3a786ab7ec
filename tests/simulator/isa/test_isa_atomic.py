"""The forms of atom and red: the oracle's list against the assembler, and the simulator's table against that list."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from simulator_defined_atomics import DEFINED, RETURNING, forms
from simulator_harness import simple

from simulator.isa import TABLE

SUFFIXES = (
    *("b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"),
    *("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"),
)
REGISTERS = {8: "%x", 16: "%x", 32: "%y", 64: "%z", 128: "%q"}
ASSEMBLER = shutil.which("ptxas")

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


def bits_of(kind: str) -> int:
    return 32 if kind.endswith("x2") else int(kind.lstrip("abcdefghijklmnopqrstuvwxyz"))


def instruction(opcode: str, word: str, kind: str) -> str:
    register = REGISTERS[bits_of(kind)]
    operands = [*([f"{register}1"] if opcode == "atom" else []), "[%p1]", f"{register}2"]
    operands += [f"{register}3"] if word == "cas" else []
    flush = ".noftz" if word == "add" and kind.removesuffix("x2") in ("f16", "bf16") else ""
    return f"{opcode}.global.{word}{flush}.{kind} {', '.join(operands)};"


def assembles(text: str, folder: Path) -> bool:
    """Return whether ptxas takes one instruction."""
    registers = ".reg .b16 %x<4>; .reg .b32 %y<4>; .reg .b64 %z<4>; .reg .b128 %q<4>; .reg .b64 %p<2>;"
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry kernel(.param .u64 place)\n"
    path = folder / "one.ptx"
    path.write_text(f"{head}{{ {registers} ld.param.u64 %p1, [place]; {text} ret; }}\n")
    command = [str(ASSEMBLER), "-arch=sm_90a", str(path), "-o", str(folder / "one.cubin")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(ASSEMBLER is None, reason="ptxas is not installed")
@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_the_assembler_takes_the_defined_forms_and_no_others(opcode: str, tmp_path: Path) -> None:
    taken = {
        word: tuple(kind for kind in SUFFIXES if assembles(instruction(opcode, word, kind), tmp_path))
        for word in DEFINED
    }
    wanted = {
        word: tuple(kind for kind in SUFFIXES if kind in kinds and (opcode == "atom" or word not in RETURNING))
        for word, kinds in DEFINED.items()
    }
    assert taken == wanted


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("space", [[], ["global"]], ids=["generic", "global"])
def test_the_simulator_has_the_defined_forms_and_no_others(opcode: str, space: list[str]) -> None:
    wanted = {f"{word}.{kind}" for word, kinds in forms(opcode).items() for kind in kinds}
    found = set()
    for key in TABLE:
        first, *words = key.split(".")
        spaces = [word for word in words if word.startswith(("global", "shared"))]
        if first == opcode and spaces == space and not {"v2", "v4", "v8", "async"} & set(words):
            found.add(".".join(word for word in words if word not in (*spaces, "noftz")))
    assert found == wanted


@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_a_sum_of_floats_flushes_subnormals_as_a_gpu_does(opcode: str) -> None:
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
