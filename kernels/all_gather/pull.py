"""all_gather/pull: every rank loads the chunks of all ranks into its output.

When it wins: where outputs are not ready early: each rank alone writes to its memory. A load's request takes
room on the links, too, so push is faster for large buffers.

Memory: reads all inputs through peers' addresses, writes the own output only. Blocks are shared out among the ranks
that they read from, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's
first target. Vectors are aligned at the far side; where a chunk's two places have no 16-byte boundary in common, the
near side is met element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: a rank's own chunk is where it belongs.
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
            reason="64 KiB takes 6.7 us, 2 MiB 12.8, 128 MiB 329 (64 blocks: 13.6, 333)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    output = frame.address("output")
    chunk = frame.size // frame.world_size

    def load(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        frame.copy(frame.peer("input", peer), output + chunk * peer, chunk, (index, lanes), push=False)

    frame.wait()
    frame.each_peer(frame.world_size, load)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_gather/pull",
        body,
        tuning,
        summary="each rank loads the chunks of all",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
