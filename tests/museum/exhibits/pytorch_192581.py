"""pytorch#192581: two groups of ranks share a pad of signals, and count its slots by ranks within the group.

Rank 1 of the world and rank 2, which is rank 1 of the group {0, 2}, signal rank 0 in the same slot. Rank 0 waits for
its signal of the world and takes the group's, which came first; then it reads the world's data, which is not there.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="pytorch/pytorch#192581",
    defect="two groups signal in the same slots",
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
    bra WORLD if %rank eq 1;
    bra GROUP if %rank eq 2;
FIRST:
    atom.acquire.sys.global.cas.b32 %r1, [%d1], 1, 0;
    bra FIRST if %r1 eq 0;
    ld.global.u32 %r2, [%data_0];
    st.global.u32 [%out], %r2;
SECOND:
    atom.acquire.sys.global.cas.b32 %r1, [%d2], 1, 0;
    bra SECOND if %r1 eq 0;
    ld.global.u32 %r2, [%data_0+4];
    st.global.u32 [%out+4], %r2;
    ret;
WORLD:
    st.global.u32 [%data_0], 7;
SIGNAL_WORLD:
    atom.release.sys.global.cas.b32 %r1, [%d1], 0, 1;
    bra SIGNAL_WORLD if %r1 ne 0;
    ret;
GROUP:
    st.global.u32 [%data_0+4], 9;
SIGNAL_GROUP:
    atom.release.sys.global.cas.b32 %r1, [%d2], 0, 1;
    bra SIGNAL_GROUP if %r1 ne 0;
""",
)
