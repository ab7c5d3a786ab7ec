"""ao#4278: the fence for bulk copies stands behind the block's barrier, where it is too late for others' stores.

All threads store to shared memory, and thread 0 copies it out in bulk. Each thread has to fence what it stored before
it meets the others: a proxy fence takes effect within a single thread, so that thread 0's own fence says nothing of
what the others did.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="pytorch/ao#4278",
    defect="fence.proxy.async stands after bar.sync, in place of before",
    buffers={"out": [0] * 64},
    expected=lambda rank: list(range(100, 164)),
    ranks=1,
    block=64,
    ways=("races",),
    before=".shared .align 16 .b8 stage[256];",
    body="""
    shared words %r10, %r11 = stage;
    add.u32 %r1, %lane, 100;
    st.shared.u32 [%r11], %r1;
+   fence.proxy.async.shared::cta;
    bar.sync 0;
-   fence.proxy.async.shared::cta;
    bra END if %lane ne 0;
    bulk store [%out], [%r10], 256;
END:
""",
)
