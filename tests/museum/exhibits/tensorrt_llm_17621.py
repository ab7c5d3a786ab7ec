"""TensorRT-LLM#17621: lanes of a warp pack fields in shared memory, and one copies them out at once.

The lane that copies neither waits for the others nor do these fence: some fields that it sends are older ones. Each
lane of the mended kernel fences, then the warp meets.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/TensorRT-LLM#17621",
    defect="one lane copies in bulk what its warp packed, with neither a fence nor a meeting",
    buffers={"fields": list(range(32)), "inbox": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: list(range(32)),
    ways=("races",),
    before=".shared .align 16 .b8 packed[128];",
    body="""
    shared words %r10, %r11 = packed;
    %r1 = fields[lane];
    st.shared.u32 [%r11], %r1;
+   fence.proxy.async.shared::cta;
+   bar.warp.sync -1;
    bra SENT if %lane ne 0;
    bulk store [%peer_inbox], [%r10], 128;
    st.release.sys.global.u32 [%peer_flag], 1;
SENT:
    spin acquire.sys [%flag];
    %r3 = inbox[lane];
    out[lane] = %r3;
""",
)
