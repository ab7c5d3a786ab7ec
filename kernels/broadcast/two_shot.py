"""broadcast/two_shot: each rank loads its slice of the root's input and stores it into all outputs.

When it wins: large buffers without multicast: the root's links carry the buffer once, and every other rank's as well.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices, one a rank
(kernels/shares.py); the elements around them are the root's. Reads the root's input and writes all outputs through
peers' addresses.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. Between load and store there is none: a slice is passed on by the thread that
loaded it. In place the root's buffer is not stored to: it holds the result, and others may still read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
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
            reason="64 KiB takes 6.4 us (512 threads: 6.9)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 8.8 us (64 blocks: 9.2)",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=8,
            reason="16 MiB takes 89.5 us, 128 MiB 594 (128 blocks: 106, 600)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.peer("input", frame.root)
    span = frame.span(source, frame.size)
    # The root comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.root), count)
    aligned = frame.aligned(source, frame.address("output"))
    frame.wait()
    frame.copy_to_all(frame.sliced(span, frame.rank), source, outputs, aligned)
    frame.when(frame.rank == frame.root, lambda: frame.copy_edges_to_all(span, source, outputs))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    return spec_with(
        "broadcast/two_shot",
        body,
        tuning,
        summary="each rank passes its slice of the root's input to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("output"), peers("input"), peers("output")),
        vectors=vectors,
        options=lambda case: {"in_place": case.placement == "in_place"},
    )


SPEC = spec_of(TUNING)
