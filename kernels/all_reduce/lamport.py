"""all_reduce/lamport: every rank stores its input into all inboxes, polls its own, and reduces what came.

When it wins: the smallest messages. Data takes one trip over the links, and that is all the time there is: nothing
waits for a barrier before or after. Every rank stores its whole input n times, so the others overtake it soon.

Memory: three inboxes of n rows in turn (kernels/dsl/inbox.py), 3 n times the message in symmetric memory. Each rank
stores its input into its row of all ranks' inboxes, its own, too, so that all ranks see the same; -0.0 in an element
says that it has not come yet. Units of 16 bytes of the message, loaded and stored by elements where a buffer begins at
no 16-byte boundary. The stores to peers begin with the next rank, so that no GPU is everyone's first target.

Protocol: a data half is its own flag; kernels/dsl/inbox.py says why that is sound, and what orders a bank's next use.
While the data is under way a rank sets back the bank of the launch before. In place is fine: a unit of the output is
written by the thread that stored that unit of the input to all inboxes, and everything it reduces comes from there.

Numerics: rank order 0, 1, .. n-1 on all ranks, so all get the same bits. A contribution of -0.0 counts as +0.0; sums
that round to -0.0 stay so. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.
Precision and rounding: kernels/dsl/arithmetic.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.dsl import slots
from kernels.dsl.status import DATA
from kernels.family import address, peers, spec_with
from kernels.numeric.dtypes import FLOAT_REDUCTIONS, FLOATS
from kernels.spec import Case, KernelSpec, Workspace
from kernels.stress import WITH_BARRIERS
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

BANKS = 3

# Measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=16 << 10,
            reason="4 KiB takes 3.6 us (16 blocks: 3.7, 256 threads: 4.1)",
        ),
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            reason="64 KiB takes 4.2 us (512 threads: 4.4, 1024: 6.0)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.inbox import Inbox, Sentinel, Turn, exchange

    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    turn = Turn(frame, frame.choice("banks"))
    form = Sentinel(frame.itemsize, frame.choice("safe_zeros", True))
    exchange(frame, Inbox(frame, "inbox", frame.world_size, turn, form, DATA))


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        fill = slots.sentinel(case.itemsize)
        inbox = slots.inbox("inbox", slots.units(case), case.world_size, BANKS, fill=fill)
        return inbox, slots.turns(tuning.max_blocks)

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
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox"), address("turns")),
        vectors=slots.units,
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: {"banks": BANKS, "max_blocks": tuning.max_blocks, "last_threads_signal": True},
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
