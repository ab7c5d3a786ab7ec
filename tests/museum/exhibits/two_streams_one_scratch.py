"""Two launches of one kernel are on two streams, and both keep their parts of a sum in one scratch buffer.

Launches of one stream follow each other, and so the buffer was enough. On two streams nothing keeps the second launch
from storing while the first one still adds. In the mended one the second stream waits for an event of the first.
"""

from tests.museum.exhibit import Exhibit, Stage


def _host(stage: Stage) -> None:
    stage.launch(stream=1, launch=0)
    if stage.is_mended:
        stage.fabric.wait_stream(2, 1)
    stage.launch(stream=2, launch=1)


EXHIBIT = Exhibit(
    name="two streams, one scratch",
    thread="",
    defect="launches on two streams use one scratch buffer, with no event between them (host)",
    parameters=("u64 scratch", "u64 out", "u32 launch"),
    buffers={"scratch": [0] * 64, "out": [0, 0]},
    expected=lambda rank: [64 * 63 // 2, 64 * 63 // 2 + 64 * 1000],
    host=_host,
    block=64,
    ways=("races", "random", "adversarial", "weak"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    add.u64 %d1, %scratch, %d0;
    mad.lo.u32 %r1, %launch, 1000, %lane;
    st.global.u32 [%d1], %r1;
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
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 64;
    @%p2 bra ADD;
    mul.wide.u32 %d3, %launch, 4;
    add.u64 %d3, %out, %d3;
    st.global.u32 [%d3], %r3;
""",
)
