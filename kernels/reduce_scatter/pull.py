"""reduce_scatter/pull: every rank loads its chunk of all inputs and reduces it.

When it wins: nearly always without multicast: one trip over the links, no scratch.

Memory: reads all inputs through peers' addresses, writes the own output. Vectors are aligned at the inputs; where the
output has other boundaries it is written element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: of a rank's input only its own chunk is overwritten, which no
other rank reads.

Numerics: the owner begins with the next rank and ends with itself (rank+1, rank+2, .. rank), so that no GPU is
everyone's first target. Precision and rounding: kernels/dsl/arithmetic.py.
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
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 8.3 us (64 blocks: 8.4)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            reason="2 MiB takes 13.3 us, 16 MiB 51.4, 128 MiB 330 (8 loads: 13.4, 51.0, 337)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    chunk = frame.size // frame.world_size
    begin = chunk * frame.rank
    source, output = frame.address("input") + begin, frame.address("output")
    span = frame.span(source, chunk)
    inputs = frame.peers("input", frame.after(frame.rank)).shifted(begin)
    outputs = frame.at(output)
    frame.wait()
    frame.reduce(span, inputs, outputs, frame.aligned(source, output))
    frame.reduce_edges(span, inputs, outputs)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "reduce_scatter/pull",
        body,
        tuning,
        summary="each rank reduces its chunk of all inputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
