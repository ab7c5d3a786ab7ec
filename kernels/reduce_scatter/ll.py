"""reduce_scatter/ll: contributions go into their owners' inboxes, each 4 bytes beside the number of the launch.

When it wins: small buffers of any data type: one trip over the links, and no barrier before or after. lamport moves
half the bytes.

Memory: an inbox of n - 1 rows of a chunk, 16 banks in turn, two slots a unit (kernels/dsl/inbox.py): 32 (n-1)/n times
the input in symmetric memory. Rows stand in the order of the ring, from the next rank on. Blocks are shared out among
the ranks that they store to, so that all links are busy at once. A unit of 16 bytes is loaded and stored by elements
where a chunk or the output begins at no 16-byte boundary.

Protocol: no barrier; kernels/dsl/inbox.py says why data beside a flag is sound, kernels/dsl/rounds.py what keeps a
fast rank from storing where a slow one still reads. In place is fine: of a rank's input only its own chunk is
overwritten, each unit by the thread that loaded it, and that chunk is sent to no other rank.

Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits. Precision and rounding:
kernels/dsl/arithmetic.py.

Rejected: see all_gather/ll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
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
    way = OneWay(frame, others, is_flagged=True, sender=lambda row: frame.after(frame.rank, row + 1))
    own = Message(frame, source + chunk * frame.rank, chunk)

    def send(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number + 1)
        way.send(Message(frame, source + chunk * peer, chunk), peer, others - 1 - number, index, lanes)

    frame.each_peer(others, send)
    way.between()
    way.reduce(own, Message(frame, output, chunk))


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.FLAGGED) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        rows = max(case.world_size - 1, 1)
        return rounds.workspaces(case, slots.chunk_units(case), rows, tuning.max_blocks)

    return spec_with(
        "reduce_scatter/ll",
        body,
        tuning,
        summary="each rank stores its contributions, each word beside a flag, to their owners, who poll and fold",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        why_not={"sizes": "take reduce_scatter/pull"},
        max_size_bytes=1 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, slots.chunk_units(case), shares.groups_of_others(case)),
        loads_per_vector=lambda case: 2 * max(case.world_size - 1, 1),
        groups=shares.groups_of_others,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
