"""all_to_all/push: every rank stores a chunk of its input into each rank's output.

When it wins: nearly always: a store crosses the links once, a load's request takes room, too.

Memory: reads the own input, writes all outputs through peers' addresses. Blocks are shared out among the ranks that
they write to, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's first
target. Vectors are aligned at the far side; where a chunk's two places have no 16-byte boundary in common, the near
side is met element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is refused: a chunk would be overwritten before it is sent.
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
            threads=256,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=64 << 10,
            reason="4 KiB takes 5.7 us, 64 KiB 6.1 (512 threads: 5.8, 6.0)",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 7.6 us (64 blocks: 7.9)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            up_to_bytes=2 << 20,
            reason="2 MiB takes 12.0 us (32 blocks, 8 loads: 12.5)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            reason="16 MiB takes 46.5 us, 128 MiB 307 (512 threads: 45.2, 308; 64 blocks: 49.8, 311)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")
    chunk = frame.size // frame.world_size

    def store(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        target = frame.peer("output", peer) + chunk * frame.rank
        frame.copy(source + chunk * peer, target, chunk, (index, lanes), push=True)

    frame.wait()
    frame.each_peer(frame.world_size, store)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_to_all/push",
        body,
        tuning,
        summary="each rank stores its chunks to their ranks",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "a chunk would be overwritten before it is sent"},
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
