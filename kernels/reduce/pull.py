"""reduce/pull: the root loads all inputs and reduces them.

When it wins: small buffers: one trip over the links. (There is no push: it would fill the same links, and need scratch
of n - 1 buffers at the root.) The root's links carry every rank's buffer, so two_shot overtakes
it.

Memory: the root reads all inputs through peers' addresses and writes its own output. No other rank's output is touched.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: only the root reads its input, and each thread reads what
it overwrites first.

Numerics: the root begins with the next rank and ends with itself. Precision and rounding: kernels/dsl/arithmetic.py.
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
            reason="64 KiB takes 7.0 us, 512 KiB 11.4",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            reason="2 MiB takes 25.2 us, 128 MiB 1103, and so with all others: the root's links are full",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source, output = frame.address("input"), frame.address("output")
    span = frame.span(source, frame.size)
    inputs = frame.peers("input", frame.after(frame.root))
    outputs = frame.at(output)
    frame.wait()

    def reduce() -> None:
        frame.reduce(span, inputs, outputs, frame.aligned(source, output))
        frame.reduce_edges(span, inputs, outputs)

    frame.when(frame.rank == frame.root, reduce)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "reduce/pull",
        body,
        tuning,
        summary="the root reduces all inputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.roots,
        buffers=(address("input"), address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
