"""Two launches of one kernel are on two streams, and both keep their parts of a sum in one scratch buffer.

Launches of one stream follow each other, and so the buffer was enough. On two streams nothing keeps the second launch
from storing while the first one still adds. In the mended one the second stream waits for an event of the first.
"""

from tests.museum.exhibit import Exhibit


def _host(stage):
    stage.launch(stream=1, launch=0)
    if stage.is_mended:
        stage.fabric.wait_stream(2, 1)
    stage.launch(stream=2, launch=1)


EXHIBIT = Exhibit(
    title="two streams, one scratch",
    defect="launches on two streams use one scratch buffer, with no event between them (host)",
    buffers={"scratch": [0] * 64, "out": [0, 0]},
    expected=lambda rank: [64 * 63 // 2, 64 * 63 // 2 + 64 * 1000],
    host=_host,
    block=64,
    ways=("races", "random", "adversarial", "weak"),
    body="""
    mad.lo.u32 %r1, %launch, 1000, %lane;
    scratch[lane] = %r1;
    bar.sync 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 ret;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
    mov.u64 %d2, %scratch;
ADD:
    ld.global.u32 %r4, [%d2];
    add.u32 %r3, %r3, %r4;
    add.u64 %d2, %d2, 4;
    bra ADD if ++%r2 lt 64;
    out[%launch] = %r3;
""",
)
