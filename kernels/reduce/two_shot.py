"""reduce/two_shot: each rank reduces its slice of all inputs and stores it into the root's output.

When it wins: large buffers without multicast: the reduction is divided among all ranks' links; the root's carry the
result once, and the other slices' share of its input.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices, one a rank; the
elements around them are the last rank's (shares.slice_owner says all that as data). Reads all inputs and writes the
root's output through peers' addresses.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: an element of the root's buffer is overwritten by its owner only,
by one thread, after what reads it.

Numerics: the owner begins with the next rank and ends with itself. Precision and rounding: kernels/dsl/arithmetic.py.
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
            reason="64 KiB takes 6.4 us (512 threads: 6.6)",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=2 << 20,
            reason="512 KiB takes 8.8 us, 2 MiB 16.4 (64 blocks: 8.9, 16.9)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=8,
            reason="16 MiB takes 85.0 us, 128 MiB 593 (32 blocks: 85.6, 603)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")
    span = frame.span(source, frame.size)
    inputs = frame.peers("input", frame.after(frame.rank))
    output = frame.peer("output", frame.root)
    outputs = frame.at(output)
    frame.wait()
    frame.reduce(frame.sliced(span, frame.rank), inputs, outputs, frame.aligned(source, output))
    frame.when(frame.rank == frame.world_size - 1, lambda: frame.reduce_edges(span, inputs, outputs))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    return spec_with(
        "reduce/two_shot",
        body,
        tuning,
        summary="each rank reduces its slice of all inputs and stores it to the root",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.slice_owner,
        buffers=(address("input"), peers("input"), peers("output")),
        vectors=vectors,
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
