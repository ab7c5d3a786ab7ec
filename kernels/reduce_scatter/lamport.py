"""reduce_scatter/lamport: contributions go into their owners' inboxes, where -0.0 says what has not come yet.

When it wins: small buffers of floats: one trip over the links, no barrier before or after, and half the bytes of ll.

Memory: an inbox of n - 1 rows of a chunk, 16 banks in turn (kernels/dsl/inbox.py): 16 (n-1)/n times the input in
symmetric memory. Rows stand in the order of the ring, from the next rank on. Blocks are shared out among the ranks
that they store to, so that all links are busy at once. A unit of 16 bytes is loaded and stored by elements where a
chunk or the output begins at no 16-byte boundary.

Protocol: no barrier; a data half is its own flag: kernels/dsl/inbox.py says why that is sound, kernels/dsl/rounds.py
what keeps a fast rank from storing where a slow one still reads, or sets back. While the data is under way a rank sets
back the bank of the launch before. In place is fine: of a rank's input only its own chunk is overwritten, each unit by
the thread that loaded it, and that chunk is sent to no other rank.

Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits, but that a contribution
of -0.0 counts as +0.0. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.
Precision and rounding: kernels/dsl/arithmetic.py.

Rejected: see all_gather/ll; and fewer banks, which take more grants (kernels/dsl/slots.py has the numbers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.stress import WITH_BARRIERS
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
    chunk, others = frame.size // frame.world_size, frame.world_size - 1
    way = OneWay(frame, others, is_flagged=False, sender=lambda row: frame.after(frame.rank, row + 1))
    own = Message(frame, source + chunk * frame.rank, chunk)

    def send(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number + 1)
        way.send(Message(frame, source + chunk * peer, chunk), peer, others - 1 - number, index, lanes)

    frame.each_peer(others, send)
    way.between(own.count)
    way.reduce(own, Message(frame, output, chunk))


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.SET_BACK) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        rows = max(case.world_size - 1, 1)
        return rounds.workspaces(case, slots.chunk_units(case), rows, tuning.max_blocks)

    return spec_with(
        "reduce_scatter/lamport",
        body,
        tuning,
        summary="each rank stores its contributions to their owners, who poll for what is not -0.0, and fold",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        dtypes=FLOATS,
        why_not={
            "dtype": "an integer has no spare value that could mean 'not written yet'; take reduce_scatter/ll",
            "sizes": "take reduce_scatter/pull",
        },
        reductions=FLOAT_REDUCTIONS,
        positive_zero="inputs",
        max_size_bytes=1 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox"), address("turns")),
        vectors=lambda case: slots.lanes(case, slots.chunk_units(case), shares.groups_of_others(case)),
        loads_per_vector=lambda case: max(case.world_size - 1, 1),
        groups=shares.groups_of_others,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
