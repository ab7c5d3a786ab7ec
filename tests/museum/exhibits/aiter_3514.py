"""aiter#3514: the one-stage all-reduce has no barrier at its end.

A rank that has read its peer's input may end and go on, and its next kernel writes its own input again while the peer
still reads it. The peer sums values of two steps. The barrier at the entry cannot help: the writer passes it one
launch later, after its writes.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    thread="ROCm/aiter#3514",
    defect="no barrier at the end: the next launch overwrites what a peer still reads",
    buffers={"input": [0] * 32, "flag": [0], "out": [0] * 96},
    expected=lambda rank: [1000 * launch + 100 * (1 - rank) + lane for launch in range(3) for lane in range(32)],
    host=launches(3),
    ways=("races", "random"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    // The caller's next step: an input of this launch.
    mad.lo.u32 %r1, %rank, 100, %lane;
    mad.lo.u32 %r1, %launch, 1000, %r1;
    input[lane] = %r1;
    bar.sync 0;
-   add.u32 %r2, %launch, 1;
+   mad.lo.u32 %r2, %launch, 2, 1;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra READY;
    red.release.sys.global.add.u32 [%peer_flag], 1;
ENTRY:
    ld.acquire.sys.global.u32 %r3, [%flag];
    bra ENTRY if %r3 lt %r2;
READY:
    bar.sync 0;
    %r4 = peer_input[lane];
    mad.wide.u32 %d3, %launch, 128, %d0;
    out[%d3] = %r4;
+   bar.sync 0;
+   @%p1 ret;
+   red.release.sys.global.add.u32 [%peer_flag], 1;
+EXIT:
+   ld.acquire.sys.global.u32 %r3, [%flag];
+   bra EXIT if %r3 le %r2;
""",
)
