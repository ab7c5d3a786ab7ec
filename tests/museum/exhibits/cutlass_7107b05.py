"""cutlass commit 7107b05: the hand-over of tiles between GPUs in CuTe DSL's GEMM + all_reduce and reduce_scatter.

A tile of the product goes to global memory by a tensor copy. The flag that tells it to all GPUs stands behind a wait
for the copy's reads of shared memory, not for its writes, and flag and poll are of .gpu scope. Read in the source and
in the PTX; whether a GPU shows it is not known.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/cutlass@7107b05",
    defect="a tile's flag of .gpu scope for other GPUs, after cp.async.bulk.wait_group.read of a tensor copy",
    buffers={"part": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 + 2 * lane for lane in range(32)],
    ways=("fair", "races"),
    before=".shared .align 128 .b8 tile[128];",
    body="""
    shared words %r10, %r11 = tile;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.shared.u32 [%r11], %r1;
    fence.proxy.async.shared::cta; bar.sync 0;
    bra READY if %lane ne 0;
    map %d1 = part;
    mov.u32 %r2, 0;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d1, {%r2}], [%r10];
    cp.async.bulk.commit_group;
-   cp.async.bulk.wait_group.read 0;
-   multimem.red.release.gpu.global.add.u32 [%multicast_flag], 1;
+   cp.async.bulk.wait_group 0;
+   multimem.red.release.sys.global.add.u32 [%multicast_flag], 1;
    fence.proxy.alias;
WAIT:
-   atom.acquire.gpu.global.cas.b32 %r3, [%flag], 2, 0;
+   atom.acquire.sys.global.cas.b32 %r3, [%flag], 2, 0;
    bra WAIT if %r3 ne 2;
READY:
    bar.sync 0;
    fence.proxy.alias;
    mad.lo.u64 %d2, %lane64, 4, %multicast_part;
    multimem.ld_reduce.weak.global.add.u32 %r4, [%d2];
    out[lane] = %r4;
""",
)
