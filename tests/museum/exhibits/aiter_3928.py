"""aiter#3928: the colour of a round comes from the host, a captured graph repeats it, and the wait is for equality.

A rank stores its word to the peer and then the colour as its flag; the reader waits until the flag is the colour. The
second replay finds the first one's flag, and does not wait. The stages alternate, so that the stage of the round before
is free. In fair order all ranks have stored before anyone looks. The mended kernel counts its rounds in memory.
"""

from tests.museum.exhibit import Exhibit


def replay(stage):
    """Three replays of one captured launch, with a barrier of the hosts after each, so that stages are free."""
    for _ in range(3):
        stage.launch(colour=1)
        stage.barrier()


EXHIBIT = Exhibit(
    thread="ROCm/aiter#3928",
    defect="replays of a graph wait for a flag of the same value",
    buffers={"counter": [0], "inbox": [0] * 2, "flag": [0], "out": [0] * 3},
    expected=lambda rank: [10, 20, 30],
    block=1,
    host=replay,
    ways=("races", "random", "priority"),
    body="""
    ld.global.u32 %r1, [%counter];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%counter], %r2;
    and.b32 %r3, %r1, 1;
    mul.wide.u32 %d1, %r3, 4;
    mul.lo.u32 %r4, %r2, 10;
    peer_inbox[%d1] = %r4;
-   mov.u32 %r5, %colour;
+   mov.u32 %r5, %r2;
    st.release.sys.global.u32 [%peer_flag], %r5;
WAIT:
    ld.acquire.sys.global.u32 %r6, [%flag];
    bra WAIT if %r6 ne %r5;
    %r7 = inbox[%d1];
    out[%r1] = %r7;
""",
)
