"""pytorch#196546: an allocator zeroes its pad of signals after the allocation that let peers signal into it.

The allocation is collective: when it returns, peers may signal. Each rank then zeroes its own pad on its stream. A
peer that is faster has signalled by then, its signal is erased, and the rank waits for ever. The mended allocator has a
barrier of all ranks after the zeroes.
"""

from tests.museum.exhibit import Exhibit


def allocate_then_signal(stage):
    """Zero the pad, as the allocator does, and exchange signals."""
    stage.launch(launch=0)
    if stage.is_mended:
        stage.barrier()
    stage.launch(launch=1)


EXHIBIT = Exhibit(
    thread="pytorch/pytorch#196546",
    defect="a rank zeroes its pad of signals when peers may signal already (host)",
    buffers={"pad": [0xDEAD] * 2, "out": [0]},
    expected=lambda rank: [1],
    block=1,
    host=allocate_then_signal,
    ways=("races", "random"),
    body="""
    bra EXCHANGE if %launch eq 1;
    st.global.u32 [%pad], 0;
    ret;
EXCHANGE:
    st.release.sys.global.u32 [%peer_pad], 1;
WAIT:
    ld.acquire.sys.global.u32 %r1, [%pad];
    bra WAIT if %r1 ne 1;
    st.global.u32 [%out], %r1;
""",
)
