"""vllm#8404: the flags between the two stages of an all-reduce are volatile, and there is no fence.

In the first stage a rank reduces its half into scratch memory; then each tells its peer by `st.volatile`, waits by
`ld.volatile`, and reads the peer's half. PTX takes volatile as relaxed: it orders neither the scratch stores before the
flag nor the reads behind it.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="vllm-project/vllm#8404",
    defect="volatile flags between two stages, with no fence",
    buffers={"input": list(range(64)), "half": [0] * 32, "flag": [0], "out": [0] * 64},
    expected=lambda rank: [2 * word for word in range(64)],
    ways=("races", "weak"),
    body="""
    // The first stage: this rank's half of both inputs.
    mul.lo.u64 %d0, %lane64, 4;
    mad.wide.u32 %d1, %rank, 128, %d0;
    %r1 = input[%d1];
    %r2 = peer_input[%d1];
    add.u32 %r3, %r1, %r2;
    half[lane] = %r3;
    out[%d1] = %r3;
    bar.sync 0;
-   meet volatile volatile;
+   meet release.sys acquire.sys;
    // The second stage: the peer's half.
    %r5 = peer_half[lane];
    xor.b64 %d7, %d1, 128;
    out[%d7] = %r5;
""",
)
