"""A lost update: four blocks on each of two ranks count by load, addition and store, and two of them load the same."""

from tests.museum.exhibit import Exhibit


def count(stage):
    """Launch, and wait for all ranks before the count is read."""
    stage.launch()
    stage.barrier()


EXHIBIT = Exhibit(
    title="lost update",
    defect="a counter of several blocks is loaded, added to and stored",
    buffers={"out": [0]},
    expected=lambda rank: [8 * (rank == 0)],
    grid=4,
    block=1,
    host=count,
    ways=("races", "random"),
    body="""
-   ld.global.u32 %r1, [%out_0];
-   add.u32 %r1, %r1, 1;
-   st.global.u32 [%out_0], %r1;
+   red.relaxed.sys.global.add.u32 [%out_0], 1;
""",
)
