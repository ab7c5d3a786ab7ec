"""all_gather/push: every rank stores its chunk into all ranks' outputs.

When it wins: nearly always without multicast: a store crosses the links once, a load's request takes room, too.

Memory: reads the own input, writes all outputs through peers' addresses. Blocks are shared out among the ranks that
they write to, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's first
target. Vectors are aligned at the far side; where a chunk's two places have no 16-byte boundary in common, the near
side is met element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: a chunk's place in a rank's own output is its input, and no
other rank writes there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
            reason="64 KiB takes 5.9 us, 512 KiB 7.7 (128 blocks: 8.0)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            up_to_bytes=32 << 20,
            reason="2 MiB takes 12.3 us, 16 MiB 44.1 (32 blocks, 8 loads: 12.7, 49.9)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            reason="128 MiB takes 305 us (512 threads: 308, 32 blocks: 329)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")
    chunk = frame.size // frame.world_size

    def store(number: Any, index: Any, lanes: Any) -> None:
        target = frame.peer("output", frame.after(frame.rank, number)) + chunk * frame.rank
        frame.copy(source, target, chunk, (index, lanes), push=True)

    frame.wait()
    frame.each_peer(frame.world_size, store)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_gather/push",
        body,
        tuning,
        summary="each rank stores its chunk to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
