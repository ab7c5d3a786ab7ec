"""reduce/lamport: every rank stores its input into the root's inbox, where -0.0 says what has not come yet.

When it wins: small buffers of floats: one trip over the links, no barrier before or after, and half the bytes of ll.
The root's links carry every rank's buffer, so two_shot overtakes it.

Memory: an inbox of n - 1 rows, 16 banks in turn (kernels/dsl/inbox.py): 16 (n-1) times the buffer in symmetric
memory, on all ranks, of which only the root's is used. Rows stand in the order of the ring, from the root's next rank
on. A unit of 16 bytes is loaded and stored by elements where a buffer begins at no 16-byte boundary.

Protocol: no barrier; a data half is its own flag: kernels/dsl/inbox.py says why that is sound, kernels/dsl/rounds.py
what keeps a fast rank from storing where the root still reads, or sets back. A rank sets back its bank of the launch
before, with any root. The others hear nothing from the root but its grants, which stop them when they are six
launches ahead. So launches in a row overlap, and a root that never launches is missed only later. Any rank may be the
root of the next launch. In place is fine: only the root's input is overwritten, each unit by the thread that loaded
it.

Numerics: the root begins with the next rank and ends with itself, as in pull: the same bits, but that a contribution
of -0.0 counts as +0.0. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.
Precision and rounding: kernels/dsl/arithmetic.py.

Rejected: see broadcast/ll, where the root sends and hears nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.dsl import slots
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# Never measured: the threads are those of a trial in plain CUDA on 2 H200 (2026-11-22), which took 1.8 us with 64
# threads a block and a unit a thread, 1.9 to 2.0 with 512; a warp more is left for the signals (slots.lanes).
TUNING = Tuning(
    (
        Step(
            threads=96,
            blocks=64,
            loads_in_flight=1,
            up_to_bytes=64 << 10,
            reason="a unit a thread",
        ),
        Step(threads=256, blocks=128, loads_in_flight=8, reason="several units a thread in flight"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.messages import Message
    from kernels.dsl.one_way import OneWay

    source, output = frame.address("input"), frame.address("output")
    if frame.world_size == 1:
        frame.copy(source, output, frame.size, push=True)
        return
    is_root = frame.rank == frame.root
    row = frame.steps(frame.after(frame.root), frame.rank)
    way = OneWay(frame, frame.world_size - 1, is_flagged=False, sender=lambda row: frame.after(frame.root, row + 1))
    own = Message(frame, source)
    way.send(own, frame.root, row, frame.index, frame.lanes, frame.rank != frame.root)
    way.between(own.count)
    frame.when(is_root, lambda: way.reduce(own, Message(frame, output)))


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.SET_BACK) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, slots.units(case), max(case.world_size - 1, 1), tuning.max_blocks)

    return spec_with(
        "reduce/lamport",
        body,
        tuning,
        summary="each rank stores its input to the root, which polls for what is not -0.0, and folds",
        placements=("out_of_place", "in_place"),
        promises=ONE_WAY,
        fold="from_next_rank",
        owner=shares.roots,
        dtypes=FLOATS,
        why_not={
            **NOT_ONE_WAY,
            "dtype": "an integer has no spare value that could mean 'not written yet'; take reduce/ll",
            "sizes": "take reduce/pull",
        },
        reductions=FLOAT_REDUCTIONS,
        positive_zero="inputs",
        max_size_bytes=256 << 10,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox"), address("turns")),
        vectors=lambda case: slots.lanes(case, slots.units(case)),
        loads_per_vector=lambda case: max(case.world_size - 1, 1),
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
