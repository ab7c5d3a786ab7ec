"""all_reduce/ll: like lamport, but each 4 bytes of data travel beside the number of the launch.

When it wins: where lamport would, but for any data type and with every bit of the inputs kept: no value is spare, and
nothing is set back. It moves twice the bytes.

Memory: an inbox of n rows, 16 banks in turn (kernels/dsl/inbox.py), 32 n times the message in symmetric memory. Each
16 bytes of the message become two slots (word, flag, word, flag), stored as two 64-bit elements: each of them is
single-copy atomic in the PTX model, so a word whose flag is the launch's is the launch's. One 16-byte access for all
four is not (it is four scalar ones), though NCCL's protocol of this name relies on it in hardware.

Protocol: no barrier; kernels/dsl/inbox.py says why that is sound, and kernels/dsl/rounds.py what keeps a fast rank from
storing where a slow one still reads. The flag is twice the launch's epoch plus 1: never zero, as the inboxes begin, and
never what was written in this bank before. In place is fine: a unit of the output is written by the thread that
stored that unit of the input to all inboxes, and everything it reduces comes from there.

Numerics: rank order 0, 1, .. n-1 on all ranks, so all get the same bits; nothing else is done to them. Precision and
rounding: kernels/dsl/arithmetic.py.

Rejected: an all-clear to all in each launch, awaited in it, with two banks: 2.9 us at 1 KiB on 2 H200 with lamport, 2.7
with ll, where reduce_scatter/ll with grants took 2.26 in the same kind of run (2026-11-22; kernels/dsl/rounds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels.dsl import slots
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# The larger step was measured on 4 H200 on 21 November 2026 (bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads), when the kernel had an all-clear in each launch;
# no run since, and none on 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=96,
            blocks=64,
            loads_in_flight=4,
            up_to_bytes=64 << 10,
            up_to_ranks=4,
            reason="a unit a thread, as lamport's; 4 ranks were never measured so",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            reason="4 KiB takes 3.9 us, 64 KiB 5.0 (16 blocks and 256 threads: the same; 1024 threads: 3.9, 6.6)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.one_way import reduce_on_all

    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    reduce_on_all(frame, is_flagged=True)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.FLAGGED) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, slots.units(case), case.world_size, tuning.max_blocks)

    return spec_with(
        "all_reduce/ll",
        body,
        tuning,
        summary="each rank stores its input, each word beside a flag, to all, polls, and folds in rank order",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="rank_order",
        max_size_bytes=256 << 10,
        max_sizes={2: 512 << 10},
        why_not={"sizes": "take all_reduce/two_shot"},
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, slots.units(case)),
        loads_per_vector=lambda case: 2 * case.world_size,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
