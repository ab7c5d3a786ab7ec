"""mscclpp#502: the number of the launch is an argument from the host, and a captured graph repeats it.

The LL protocol stores each word beside the number of the launch, and its reader waits for that number. A graph that was
captured once replays the kernel with the same arguments, so the second replay finds the first one's words beside the
number that it waits for, and takes them. The mended kernel counts in memory.
"""

from tests.museum.exhibit import Exhibit


def replay(stage):
    """Three replays of one captured launch: the arguments are those of the capture."""
    for _ in range(3):
        stage.launch(epoch=1)


EXHIBIT = Exhibit(
    thread="microsoft/mscclpp#502",
    defect="the launch's number comes from the host, and a graph freezes it",
    buffers={"counter": [0], "inbox": [0] * 4, "out": [0] * 3},
    expected=lambda rank: [1000 * launch + 100 * (1 - rank) for launch in (1, 2, 3)],
    block=1,
    host=replay,
    ways=("random", "priority"),
    body="""
    ld.global.u32 %r1, [%counter];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%counter], %r1;
-   mov.u32 %r2, %epoch;
+   mov.u32 %r2, %r1;
    // Launches take two slots in turn.
    and.b32 %r3, %r2, 1;
    mul.wide.u32 %d1, %r3, 8;
    add.u64 %d2, %peer_inbox, %d1;
    mul.lo.u32 %r4, %rank, 100;
    mad.lo.u32 %r4, %r1, 1000, %r4;
    mov.b64 %d3, {%r4, %r2};
    st.relaxed.sys.global.b64 [%d2], %d3;
    add.u64 %d4, %inbox, %d1;
WAIT:
    ld.relaxed.sys.global.b64 %d5, [%d4];
    mov.b64 {%r5, %r6}, %d5;
    bra WAIT if %r6 ne %r2;
    sub.u32 %r7, %r1, 1;
    out[%r7] = %r5;
""",
)
