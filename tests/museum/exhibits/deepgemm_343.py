"""DeepGEMM#343: a tensor map in global memory is edited for the next group while a copy still reads it.

A kernel has one map, which it rewrites where the next group begins. The copies that it issued before may read the map
late, and those after it need a fence of the map's own proxy. The mend there waits for the former and fences; the
simulator has no such fence, so that the mended kernel here has a map of each group.
"""

import numpy as np
import torch

from tests.museum.exhibit import Exhibit


def host(stage):
    """The map is at first that of the first group."""
    made = np.frombuffer(stage.value("map_first"), np.uint8).copy()
    stage.fabric.write(stage.regions["place"], 0, torch.from_numpy(made))
    stage.launch()


EXHIBIT = Exhibit(
    thread="deepseek-ai/DeepGEMM#343",
    defect="a tensor map is edited while a copy may read it",
    buffers={"first": list(range(32)), "second": list(range(32, 64)), "place": [0] * 32, "out": [0] * 64},
    expected=lambda rank: list(range(64)),
    ranks=1,
    ways=("races",),
    host=host,
    before=".shared .align 128 .b8 tiles[256];\n.shared .align 8 .b64 full;",
    body="""
    mov.u32 %r10, tiles; mov.u32 %r12, full; mov.u32 %r1, 0;
    add.u32 %r11, %r10, 128;
-   mov.b64 %d1, %place; mov.b64 %d2, %place;
+   map %d1 = first;
+   map %d2 = second;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra FIRST;
    mbarrier.init.shared.b64 [%r12], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r12], 256;
    cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%d1, {%r1}], [%r12];
FIRST:
    bar.warp.sync -1;
-   bra EDITED if %lane gt 7;
-   mul.wide.u32 %d3, %lane, 16;
-   mov.b64 %d4, kernel_map_second; add.u64 %d4, %d4, %d3;
-   ld.param.v4.u32 {%r4, %r5, %r6, %r7}, [%d4];
-   add.u64 %d3, %d3, %place;
-   st.global.v4.u32 [%d3], {%r4, %r5, %r6, %r7};
-EDITED:
-   bar.warp.sync -1;
    @%p1 bra SECOND;
    cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r11], [%d2, {%r1}], [%r12];
SECOND:
    phase %r12, %r1;
    mad.lo.u32 %r2, %lane, 4, %r10;
    ld.shared.u32 %r3, [%r2];
    out[lane] = %r3;
    ld.shared.u32 %r3, [%r2+128];
    add.u32 %r4, %lane, 32;
    out[%r4] = %r3;
""",
)
