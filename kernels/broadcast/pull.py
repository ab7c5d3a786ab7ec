"""broadcast/pull: every rank loads the root's input.

When it wins: small buffers. The root's links carry the buffer world_size - 1 times, so two_shot overtakes it.

Memory: reads the root's input through its address, writes the own output. Vectors are aligned at the source.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: the root leaves its buffer alone.
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
            reason="64 KiB takes 7.0 us, as with 512 and 1024 threads",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            reason="2 MiB takes 25.2 us, 128 MiB 1100, and so with all others: the root's links are full",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source, output = frame.peer("input", frame.root), frame.address("output")
    frame.wait()
    frame.copy(source, output, frame.size, push=False)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "broadcast/pull",
        body,
        tuning,
        summary="each rank loads the root's input",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
    )


SPEC = spec_of(TUNING)
