"""all_to_all/pull: every rank loads its chunk from all ranks' inputs.

When it wins: where outputs are not ready early; push is faster for large buffers, for a load's request takes room on
the links, too.

Memory: reads all inputs through peers' addresses, writes the own output only. Blocks are shared out among the ranks
that they read from, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's
first target. Vectors are aligned at the far side; where a chunk's two places have no 16-byte boundary in common, the
near side is met element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is refused: a chunk would be overwritten before its receiver has it.
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
            reason="4 KiB takes 6.2 us (512 threads: 6.4)",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 8.5 us (64 blocks: 8.7)",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=8,
            reason="2 MiB takes 11.9 us, 128 MiB 330 (512 threads: 12.8, 333)",
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
        source = frame.peer("input", peer) + chunk * frame.rank
        frame.copy(source, output + chunk * peer, chunk, (index, lanes), push=False)

    frame.wait()
    frame.each_peer(frame.world_size, load)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_to_all/pull",
        body,
        tuning,
        summary="each rank loads its chunk of all inputs",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "a chunk would be overwritten before its receiver has it"},
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
