"""Which forms there are, as a table, and which a module has besides."""

from pathlib import Path

import pytest

import simulator
from simulator.forms import missing_forms
from simulator.ptx.parse import PtxSyntaxError

README = Path(simulator.__file__).parent / "README.md"

MODULE = """
.version 8.0
.target sm_90a
.address_size 64

.func unused() {
  .reg .b32 %r<2>;
  frobnicate.never.called %r1;
  ret;
}

.func called() {
  .reg .b32 %r<2>;
  frobnicate.u32 %r1, 1;
  ret;
}

.visible .entry kernel(.param .u64 out) {
  .reg .b32 %r<20>;
  .reg .b64 %rd<2>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [out];
  @%p1 frobnicate.u32 %r2, 2;
  call called;
  tcgen05.shift.cta_group::1.down [%r1];
  tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;
  fence.proxy.tensormap::generic.release.gpu;
  cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%rd1, {%r1, %r2, %r3}], [%r4];
  cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd1, {%r1, %r2, %r3}], [%r4];
  frobnicate.u32 %r3, %r4;
  ret;
}
"""


def lines_of(word):
    return tuple(number for number, line in enumerate(MODULE.splitlines(), 1) if word in line)


def test_all_that_a_module_has_besides_is_listed_by_form_with_lines():
    all_of = missing_forms(MODULE)
    found = {one.form: one for one in all_of}
    counts = [len(one.lines) for one in all_of]
    assert (counts, all_of[0].form) == (sorted(counts, reverse=True), "frobnicate.u32"), "the most frequent comes first"
    assert found["frobnicate.u32"].lines == lines_of("frobnicate.u32")
    assert len(found["frobnicate.u32"].lines) == 3
    assert "frobnicate" in found["frobnicate.u32"].reason
    assert found["tcgen05.shift.cta_group::1.down"].lines == lines_of("tcgen05.shift")
    assert {one.form for one in found.values() if one.is_planned} == {
        "tcgen05.shift.cta_group::1.down",
        "tensormap.replace.tile.rank.global.b1024.b32",
        "fence.proxy.tensormap::generic.release.gpu",
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group",
    }


def test_a_module_that_is_supported_has_none():
    assert missing_forms((README.parents[1] / "tests/symlab/sum.ptx").read_text(encoding="utf-8")) == ()


def test_text_without_structure_is_refused():
    with pytest.raises(PtxSyntaxError):
        missing_forms(".version 8.0\n.target sm_90\n.visible .entry kernel() {\n")
