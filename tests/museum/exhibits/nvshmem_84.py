"""nvshmem#84: all chunks of a message add to one counter, and each waits for as many as there are up to its own.

Block k of the sender stores chunk k and adds 1; block k of the receiver waits for k + 1 and reads chunk k. If a later
chunk is sooner, its addition ends the wait for an earlier one. Each chunk of the mended kernel has a counter.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/nvshmem#84",
    defect="chunks add to one counter, so that a later one ends the wait for an earlier one",
    buffers={"data": [0, 0], "count": [0, 0], "out": [0, 0]},
    expected=lambda rank: [500, 501] if rank == 1 else [0, 0],
    grid=2,
    block=1,
    ways=("priority",),
    body="""
    mul.wide.u32 %d1, %block, 4;
    add.u64 %d2, %data_1, %d1;
    mov.u64 %d3, %count_1;
    add.u32 %r1, %block, 1;
+   add.u64 %d3, %count_1, %d1;
+   mov.u32 %r1, 1;
    bra WAIT if %rank eq 1;
    add.u32 %r2, %block, 500;
    st.global.u32 [%d2], %r2;
    red.release.sys.global.add.u32 [%d3], 1;
    ret;
WAIT:
    ld.acquire.sys.global.u32 %r3, [%d3];
    bra WAIT if %r3 lt %r1;
    ld.global.u32 %r4, [%d2];
    out[%d1] = %r4;
""",
)
