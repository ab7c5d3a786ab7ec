"""pytorch#192581: two groups of ranks share a pad of signals, and count its slots by ranks within the group.

Rank 1 of the world and rank 2, which is rank 1 of the group {0, 2}, signal rank 0 in the same slot. Rank 0 waits for
its signal of the world and takes the group's, which came first; then it reads the world's data, which is not there.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="pytorch#192581",
    thread="pytorch/pytorch#192581",
    defect="two groups signal in the same slots",
    parameters=("u64 data_0", "u64 pad_0", "u64 out", "u32 rank"),
    buffers={"data": [0, 0], "pad": [0] * 8, "out": [0, 0]},
    expected=lambda rank: [7, 9] if rank == 0 else [0, 0],
    ranks=3,
    block=1,
    ways=("adversarial", "priority"),
    body="""
    // The slot of rank 1 of the world, and of rank 1 of the group {0, 2}.
    add.u64 %d1, %pad_0, 4;
-   add.u64 %d2, %pad_0, 4;
+   add.u64 %d2, %pad_0, 20;
    setp.eq.u32 %p1, %rank, 1;
    @%p1 bra WORLD;
    setp.eq.u32 %p1, %rank, 2;
    @%p1 bra GROUP;
FIRST:
    atom.acquire.sys.global.cas.b32 %r1, [%d1], 1, 0;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra FIRST;
    ld.global.u32 %r2, [%data_0];
    st.global.u32 [%out], %r2;
SECOND:
    atom.acquire.sys.global.cas.b32 %r1, [%d2], 1, 0;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra SECOND;
    ld.global.u32 %r2, [%data_0+4];
    st.global.u32 [%out+4], %r2;
    ret;
WORLD:
    st.global.u32 [%data_0], 7;
SIGNAL_WORLD:
    atom.release.sys.global.cas.b32 %r1, [%d1], 0, 1;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra SIGNAL_WORLD;
    ret;
GROUP:
    st.global.u32 [%data_0+4], 9;
SIGNAL_GROUP:
    atom.release.sys.global.cas.b32 %r1, [%d2], 0, 1;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra SIGNAL_GROUP;
""",
)
