"""all_reduce/lamport: every rank stores its input into all inboxes, polls its own, and reduces what came.

When it wins: the smallest messages. Data takes one trip over the links, and that is all the time there is: nothing
waits for a barrier before or after. Every rank stores its whole input n times, so the others overtake it soon.

Memory: an inbox of n rows, 16 banks in turn (kernels/dsl/inbox.py), 16 n times the message in symmetric memory (half
of that on more than 8 ranks). Each rank stores its input into its row of all ranks' inboxes, its own, too, so that all
ranks see the same; -0.0 in an element says that it has not come yet. Units of 16 bytes of the message, loaded and
stored by elements where a buffer begins at no 16-byte boundary. The stores to peers begin with the next rank, so that
no GPU is everyone's first target.

Protocol: a data half is its own flag; kernels/dsl/inbox.py says why that is sound, and kernels/dsl/rounds.py what keeps
a fast rank from storing where a slow one still reads, or sets back. A thread's first data, the launch's number and the
peers' addresses are loaded together. While the data is under way a rank hands over to its next launch, and sets back
the bank of the launch before: so the last thing that a thread does is to store its output. In place is fine: a unit of
the output is written by the thread that stored that unit of the input to all inboxes, and everything it reduces comes
from there.

Numerics: rank order 0, 1, .. n-1 on all ranks, so all get the same bits. A contribution of -0.0 counts as +0.0; sums
that round to -0.0 stay so. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.
Precision and rounding: kernels/dsl/arithmetic.py.

Rejected: an all-clear to all in each launch, awaited in it, with three banks: 2.9 us at 1 KiB on 2 H200 with lamport,
2.7 with ll, where reduce_scatter/ll with grants took 2.26 in the same kind of run (2026-11-22; kernels/dsl/rounds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.stress import WITH_BARRIERS
from kernels.dsl import slots
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# The first four steps were measured as a cubin in one process on 2 and 4 H100 (NVLink 4, 27 November 2026, bfloat16,
# medians of the maximum over GPUs). The last two were measured on 4 H200 on 21 November 2026, when the kernel had an
# all-clear in each launch, and are for more ranks now: no run since, and none on 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=96,
            blocks=64,
            loads_in_flight=2,
            up_to_bytes=64 << 10,
            up_to_ranks=4,
            reason="16 KiB takes 2.66 us on 4, 2.48 on 2 (64 threads: 2.66, 2.47; 128: 2.64, 2.44)",
        ),
        Step(
            threads=128,
            blocks=132,
            loads_in_flight=2,
            up_to_bytes=256 << 10,
            up_to_ranks=4,
            reason="256 KiB takes 5.18 us on 4, 3.39 on 2; with 8 banks 32 blocks of 256 threads: 5.48, 3.71",
        ),
        Step(
            threads=256,
            blocks=132,
            loads_in_flight=2,
            up_to_bytes=512 << 10,
            up_to_ranks=4,
            reason="512 KiB takes 7.56 us on 4, 4.31 on 2 (512 threads: 7.74, 4.28; 1024: 8.82, 4.57)",
        ),
        Step(
            threads=512,
            blocks=132,
            loads_in_flight=4,
            up_to_ranks=4,
            reason="1 MiB takes 5.82 us on 2 (66 blocks: 6.13; 256 threads: 5.95; 1024: 6.20)",
        ),
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=16 << 10,
            reason="4 KiB takes 3.6 us on 4 H200 (16 blocks: 3.7, 256 threads: 4.1)",
        ),
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            reason="64 KiB takes 4.2 us on 4 H200 (512 threads: 4.4, 1024: 6.0)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.one_way import reduce_on_all

    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    reduce_on_all(frame, is_flagged=False)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.SET_BACK) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, slots.units(case), case.world_size, tuning.max_blocks)

    return spec_with(
        "all_reduce/lamport",
        body,
        tuning,
        summary="each rank stores its input to all, polls for what is not -0.0, and folds in rank order",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="rank_order",
        dtypes=FLOATS,
        why_not={
            "dtype": "an integer has no spare value that could mean 'not written yet'; take all_reduce/ll",
            "sizes": "take all_reduce/two_shot",
        },
        reductions=FLOAT_REDUCTIONS,
        positive_zero="inputs",
        max_size_bytes=256 << 10,
        max_sizes={2: 2 << 20, 3: 512 << 10, 4: 512 << 10},
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox"), address("turns")),
        vectors=lambda case: slots.lanes(case, slots.units(case)),
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
