"""The registers of a wgmma are read before its group was waited for: until then they have anything."""

from tests.museum.exhibit import Exhibit
from tests.museum.exhibits.wgmma_no_fence import ONES

EXHIBIT = Exhibit(
    title="wgmma, used before its wait",
    defect="the results of a wgmma are read before wgmma.wait_group",
    buffers={"out": [0] * 128},
    expected=lambda rank: [16] * 128,
    ranks=1,
    block=128,
    ways=("fair", "races"),
    before=".shared .align 128 .b8 matrices[2304];",
    body=ONES
    + """
    fence.proxy.async.shared::cta;
    bar.sync 0;
    zero accumulators;
    wgmma %r10;
-   cvt.rzi.u32.f32 %r2, %r24;
    wgmma.wait_group.sync.aligned 0;
+   cvt.rzi.u32.f32 %r2, %r24;
    out[lane] = %r2;
""",
)
