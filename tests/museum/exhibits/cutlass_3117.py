"""cutlass#3117: the spin on a flag of all ranks is relaxed, and the data behind it is read through the switch.

Each rank stores its part, adds 1 to the flag of every rank with release, and spins with a compare-and-swap until all
have come. The swap is `.relaxed`: it sees the count and acquires nothing, so the multicast reduction after it is not
ordered behind the peers' stores. One maintainer answers that this reduction bypasses the L1 cache and works all the
same; another, that the spin has to acquire.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/cutlass#3117",
    defect="the spin for all ranks' flags is relaxed",
    buffers={"part": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 + 2 * lane for lane in range(32)],
    ways=("races", "weak"),
    body="""
    mad.lo.u32 %r1, %rank, 100, %lane;
    part[lane] = %r1;
    bar.sync 0;
    bra READY if %lane ne 0;
    red.release.sys.global.add.u32 [%flag_0], 1;
    red.release.sys.global.add.u32 [%flag_1], 1;
WAIT:
-   atom.relaxed.sys.global.cas.b32 %r2, [%flag], 2, 0;
+   atom.acquire.sys.global.cas.b32 %r2, [%flag], 2, 0;
    bra WAIT if %r2 ne 2;
READY:
    bar.sync 0;
    fence.proxy.alias;
    mad.lo.u64 %d2, %lane64, 4, %multicast_part;
    multimem.ld_reduce.weak.global.add.u32 %r3, [%d2];
    out[lane] = %r3;
""",
)
