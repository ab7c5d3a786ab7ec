"""send_recv/pull: every rank loads the input of the rank before it: a shift around the ring.

When it wins: where outputs are not ready early; push is faster for large buffers, for a load's request takes room on
the links, too.

Memory: reads the input of the rank before through its address, writes the own output. Vectors are aligned at the
source.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. All ranks take part in both, as in push. In place is refused: an input would be
overwritten before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# Measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=64 << 10,
            reason="4 KiB takes 5.7 us (512 threads: 5.9)",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=8,
            reason="2 MiB takes 14.5 us, 16 MiB 61.6, 128 MiB 426 (512 threads: 14.8, 62.4, 430)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.peer("input", frame.after(frame.rank, frame.world_size - 1))
    output = frame.address("output")
    frame.wait()
    frame.copy(source, output, frame.size, push=False)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "send_recv/pull",
        body,
        tuning,
        summary="each rank loads the input of the rank before",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "an input would be overwritten before it is read"},
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
    )


SPEC = spec_of(TUNING)
