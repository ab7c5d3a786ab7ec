"""aiter#3928: the colour of a round comes from the host, a captured graph repeats it, and the wait is for equality.

A rank stores its word to the peer and then the colour as its flag; the reader waits until the flag is the colour. The
second replay finds the first one's flag, and does not wait. The stages alternate, so that the stage of the round before
is free. In fair order all ranks have stored before anyone looks. The mended kernel counts its rounds in memory.
"""

from tests.museum.exhibit import Exhibit, Stage


def replay(stage: Stage) -> None:
    """Three replays of one captured launch, with a barrier of the hosts after each, so that stages are free."""
    for _ in range(3):
        stage.launch(colour=1)
        stage.barrier()


EXHIBIT = Exhibit(
    name="aiter#3928",
    thread="ROCm/aiter#3928",
    defect="replays of a graph wait for a flag of the same value",
    parameters=("u64 counter", "u64 inbox", "u64 peer_inbox", "u64 flag", "u64 peer_flag", "u64 out", "u32 colour"),
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
    add.u64 %d2, %peer_inbox, %d1;
    st.global.u32 [%d2], %r4;
-   mov.u32 %r5, %colour;
+   mov.u32 %r5, %r2;
    st.release.sys.global.u32 [%peer_flag], %r5;
WAIT:
    ld.acquire.sys.global.u32 %r6, [%flag];
    setp.ne.u32 %p1, %r6, %r5;
    @%p1 bra WAIT;
    add.u64 %d3, %inbox, %d1;
    ld.global.u32 %r7, [%d3];
    mul.wide.u32 %d4, %r1, 4;
    add.u64 %d4, %out, %d4;
    st.global.u32 [%d4], %r7;
""",
)
