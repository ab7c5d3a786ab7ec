"""A flag stored before its data: the release covers nothing."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    title="flag before data",
    defect="the flag is stored before its data",
    buffers={"data": [0], "flag": [0], "out": [0]},
    expected=lambda rank: [7],
    block=1,
    ways=("races", "random"),
    body="""
-   st.release.sys.global.u32 [%peer_flag], 1;
    st.global.u32 [%peer_data], 7;
+   st.release.sys.global.u32 [%peer_flag], 1;
    spin acquire.sys [%flag];
    ld.global.u32 %r2, [%data];
    st.global.u32 [%out], %r2;
""",
)
