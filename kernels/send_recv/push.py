"""send_recv/push: every rank stores its input into the next rank's output: a shift around the ring.

When it wins: nearly always: a store crosses the links once, a load's request takes room, too.

Memory: reads the own input, writes the next rank's output through its address. Vectors are aligned at the target.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. All ranks take part in both, not only neighbours: what a launch means for memory
does not depend on who is whose neighbour. In place is refused: an input would be overwritten before it is sent.
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
            reason="4 KiB takes 5.3 us, 64 KiB 5.9 (512 threads: 5.4, 6.0)",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 7.9 us (64 blocks: 8.1)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            reason="2 MiB takes 12.8 us, 16 MiB 57.0, 128 MiB 396 (32 blocks, 8 loads: 13.4, 59.6, 408)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")
    target = frame.peer("output", frame.after(frame.rank, 1 % frame.world_size))
    frame.wait()
    frame.copy(source, target, frame.size, push=True)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "send_recv/push",
        body,
        tuning,
        summary="each rank stores its input to the next rank",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "an input would be overwritten before it is sent"},
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
    )


SPEC = spec_of(TUNING)
