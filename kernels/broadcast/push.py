"""broadcast/push: the root stores its input into all ranks' outputs.

When it wins: small buffers. The root's links carry the buffer world_size - 1 times, so two_shot overtakes it.

Memory: reads the root's input, writes all outputs through peers' addresses. The root's blocks are shared out among the
ranks that they write to, so that all links are busy at once. Vectors are aligned at the target.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, which itself is weak. In place is fine: the root leaves its buffer alone.
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
            up_to_bytes=64 << 10,
            reason="64 KiB takes 6.3 us (16 blocks: 6.4)",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 10.6 us (512 threads: 10.9)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            reason="2 MiB takes 24.6 us (64 blocks: 25.4), 128 MiB 1119, as with all others: the root's links are full",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")

    def store(number: Any, index: Any, lanes: Any) -> None:
        target = frame.peer("output", frame.after(frame.rank, number))
        frame.copy(source, target, frame.size, (index, lanes), push=True)

    frame.wait()
    frame.when(frame.rank == frame.root, lambda: frame.each_peer(frame.world_size, store))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "broadcast/push",
        body,
        tuning,
        summary="the root stores its input to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel, case.itemsize, case.offset),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
