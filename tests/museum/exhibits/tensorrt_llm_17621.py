"""TensorRT-LLM#17621: lanes of a warp pack fields in shared memory, and one copies them out at once.

The lane that copies neither waits for the others nor do these fence: some fields that it sends are older ones. Each
lane of the mended kernel fences, then the warp meets.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="TensorRT-LLM#17621",
    thread="NVIDIA/TensorRT-LLM#17621",
    defect="one lane copies in bulk what its warp packed, with neither a fence nor a meeting",
    parameters=("u64 fields", "u64 inbox", "u64 peer_inbox", "u64 flag", "u64 peer_flag", "u64 out"),
    buffers={"fields": list(range(32)), "inbox": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: list(range(32)),
    ways=("races",),
    before=".shared .align 16 .b8 packed[128];",
    body="""
    mov.u32 %r10, packed;
    mad.lo.u32 %r11, %lane, 4, %r10;
    mad.wide.u32 %d1, %lane, 4, %fields;
    ld.global.u32 %r1, [%d1];
    st.shared.u32 [%r11], %r1;
+   fence.proxy.async.shared::cta;
+   bar.warp.sync -1;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra SENT;
    cp.async.bulk.global.shared::cta.bulk_group [%peer_inbox], [%r10], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    st.release.sys.global.u32 [%peer_flag], 1;
SENT:
    ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra SENT;
    mad.wide.u32 %d2, %lane, 4, %inbox;
    ld.global.u32 %r3, [%d2];
    mad.wide.u32 %d3, %lane, 4, %out;
    st.global.u32 [%d3], %r3;
""",
)
