"""The digest of code: what changes it, and what does not."""

import re

import pytest

from cases.code_digest import code_digest, without_lines

PTX = """\
.version 9.4
.target sm_90a
.visible .entry k(.param .u64 p)
{
	.reg .b32 	%r<3>;
	.loc	1 59 0
	mov.u32 	%r1, %tid.x;
	.loc	2 68 23, function_name $L__info_string0, inlined_at 1 45 0
$L__BB0_1:
	add.s32 	%r2, %r1, 1;
	bra.uni 	$L__BB0_1;
}
	.file	1 "kernels/dsl/frame.py"
	.file	2 "kernels/dsl/rank_barriers.py"
"""

DEBUG = """\
	.section	.debug_abbrev
	{
.b8 1
.b8 17
	}
	.section	.debug_str
	{
$L__info_string0:
.b8 102,114,97
	}
	.section	.debug_loc	{	}
"""
"""Sections as LLVM writes them, for Triton among others."""


def test_lines_and_files_are_no_code():
    moved = PTX.replace("kernels/dsl/frame.py", "kernels/work.py").replace("1 59 0", "1 61 0")
    without = "".join(line for line in PTX.splitlines(keepends=True) if not re.match(r"\s*\.(loc|file)\s", line))
    assert code_digest(moved) == code_digest(PTX) == code_digest(without)
    assert without_lines(PTX) == without
    assert re.fullmatch("sha256:[0-9a-f]{64}", code_digest(PTX))


def test_debug_sections_and_their_labels_are_no_code():
    labelled = PTX.replace("\tadd.s32", "$L__tmp0:\n\tadd.s32").replace("\t.reg", "$L__func_begin0:\n\t.reg")
    assert code_digest(labelled + DEBUG) == code_digest(PTX)
    assert without_lines(labelled + DEBUG) == without_lines(PTX)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add.s32", "sub.s32"),
        ("%r1, 1;", "%r1, 2;"),
        ("bra.uni 	$L__BB0_1", "bra.uni 	$L__BB0_2"),
        ("%r<3>", "%r<4>"),
        ("sm_90a", "sm_100a"),
        (".param .u64 p", ".param .u32 p"),
        ("$L__BB0_1:\n", ""),
    ],
)
def test_instructions_registers_labels_and_parameters_are_code(old, new):
    assert old in PTX
    assert code_digest(PTX.replace(old, new)) != code_digest(PTX)


def test_a_label_that_an_instruction_names_is_code():
    """Another compiler may call the labels of its branches so."""
    branching = PTX.replace("$L__BB0_1", "$L__tmp1")
    moved = branching.replace("$L__tmp1:\n\tadd.s32 	%r2, %r1, 1;\n", "\tadd.s32 	%r2, %r1, 1;\n$L__tmp1:\n")
    assert moved != branching
    assert code_digest(moved) != code_digest(branching)
