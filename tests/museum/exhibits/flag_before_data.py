"""A flag stored before its data: the release covers nothing."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="flag before data",
    thread="",
    defect="the flag is stored before its data",
    parameters=("u64 data", "u64 peer_data", "u64 flag", "u64 peer_flag", "u64 out", "u32 rank"),
    buffers={"data": [0], "flag": [0], "out": [0]},
    expected=lambda rank: [7],
    block=1,
    ways=("races", "random"),
    body="""
-   st.release.sys.global.u32 [%peer_flag], 1;
    st.global.u32 [%peer_data], 7;
+   st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    ld.acquire.sys.global.u32 %r1, [%flag];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra WAIT;
    ld.global.u32 %r2, [%data];
    st.global.u32 [%out], %r2;
""",
)
