"""Which forms there are, as a table, and which a module has besides."""

from pathlib import Path

import pytest

import simulator
from simulator.ptx.parse import PtxSyntaxError
from symlab.checks.forms import missing_forms
from tests.simulator.harness import module

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
  tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 1;
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
    assert set(found) == {
        "frobnicate.u32",
        "tcgen05.shift.cta_group::1.down",
        "tensormap.replace.tile.swizzle_mode.global.b1024.b32",
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group",
    }


def test_a_module_that_is_supported_has_none():
    assert missing_forms((README.parents[1] / "tests/symlab/sum.ptx").read_text(encoding="utf-8")) == ()


TENSOR_CORES = {
    "sm_90a": """
wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5};
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];
setmaxnreg.inc.sync.aligned.u32 232; setmaxnreg.dec.sync.aligned.u32 40; prefetch.tensormap [%d1];
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%d1, {%r2, %r3}], [%r4], %d2;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r1], [%d1, {%r2, %r3}], [%r4], %h1, %d2;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%d1, {%r2, %r3}], [%r1], %d2;
""",
    "sm_100a": """
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 512; tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 512;
tcgen05.mma.cta_group::2.kind::f16.collector::a::discard [%r1], %d1, %d2, %r2, %p1;
tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.collector::a::discard [%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;
tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;
tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16.collector::a::discard [%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %h1;
tcgen05.cp.cta_group::2.32x128b.warpx4 [%r1], %d1;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2]; tcgen05.wait::ld.sync.aligned;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r1], [%d1, {%r2, %r3}], [%r4];
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %d1; fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
""",
}
"""What CuTe DSL's GEMMs for Hopper and Blackwell use that other kernels do not, as its compiler writes it. wgmma's products
have vectors of their own (test_isa_wgmma.py)."""


@pytest.mark.parametrize("target", TENSOR_CORES)
def test_what_cutlass_gemms_use_is_supported(target):
    ptx = module(TENSOR_CORES[target], [], target=target).replace(".version 8.0", ".version 8.8")
    assert missing_forms(ptx) == ()


def test_text_without_structure_is_refused():
    with pytest.raises(PtxSyntaxError):
        missing_forms(".version 8.0\n.target sm_90\n.visible .entry kernel() {\n")
