"""What audits know of PTX is what the kernels' rule says."""

from __future__ import annotations

import dataclasses

import pytest

from kernels import code
from reports.audit.ptx import StoredCode, code_digest
from tests.reports.audit.complete_set import PTX, kernel

DEBUG = """.file 1 "a.py"
.visible .entry entry_0(
)
{
$L__func_begin0:
\t.loc\t1 3 0
$L__tmp1:
\tadd.s32 %r1, %r2, %r3;
$L__tmp12:
\tbra $L__tmp12;
\tbra $L__BB0_1;
$L__BB0_1:
\tret;
$L__func_end0:
}
.section .debug_abbrev
{
.b8 1
.b64 $L__tmp1
}
"""


@pytest.mark.parametrize("text", ["", PTX, DEBUG, DEBUG.replace(".debug_", ".other_"), DEBUG.replace("tmp12", "tmp1")])
def test_the_digest_is_that_of_the_kernels(text: str) -> None:
    assert code_digest(text) == code.code_digest(text)


def test_what_the_file_contradicts_is_told() -> None:
    recorded, stored = kernel(), StoredCode(PTX.encode())
    assert list(stored.contradicted(recorded)) == []
    assert list(stored.contradicted(dataclasses.replace(recorded, code_digest=code.code_digest(PTX)))) == []
    changes = {"code_digest": "sha256:0", "entry": "entry_9", "multimem": ("multimem.red",)}
    assert len(list(stored.contradicted(dataclasses.replace(recorded, **changes)))) == 3
