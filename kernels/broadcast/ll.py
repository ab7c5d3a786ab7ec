"""broadcast/ll: the root stores its input, each 4 bytes beside the number of the launch, into all inboxes.

When it wins: small buffers: one trip over the links, and no barrier before or after. The root stores twice the bytes n
- 1 times, so two_shot overtakes it.

Memory: an inbox of one row, 16 banks in turn, two slots a unit (kernels/dsl/inbox.py): 32 times the buffer in
symmetric memory. The root's blocks are shared out among the ranks that they store to, so that all links are busy at
once. A unit of 16 bytes is loaded and stored by elements where a buffer begins at no 16-byte boundary.

Protocol: no barrier; kernels/dsl/inbox.py says why data beside a flag is sound. The root hears nothing from the others
but their grants (kernels/dsl/rounds.py), which stop it when it is three launches ahead of the slowest. So launches in
a row overlap: the root ends before the others have the data, and a rank that never launches is missed only later. Any
rank may be the root of the next launch. In place is fine: the root leaves its buffer alone.

Rejected: an answer of each receiver in the same launch: one more trip, and a release, at the end of each launch. A
credit word that the root alone reads: the next launch may have another root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
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
        Step(threads=256, blocks=128, loads_in_flight=4, reason="several units a thread in flight"),
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
    others, is_root = frame.world_size - 1, frame.rank == frame.root
    way = OneWay(frame, 1, is_flagged=True)

    def send(number: Any, index: Any, lanes: Any) -> None:
        way.send(Message(frame, source), frame.after(frame.rank, number + 1), 0, index, lanes, is_root)

    def receive() -> None:
        way.receive(Message(frame, output), 0, frame.root, frame.index, frame.lanes)

    frame.each_peer(others, send)
    way.between()
    frame.when(is_root, lambda: frame.copy(source, output, frame.size, push=True))
    frame.when(frame.rank != frame.root, receive)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.FLAGGED) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, slots.units(case), 1, tuning.max_blocks)

    return spec_with(
        "broadcast/ll",
        body,
        tuning,
        summary="the root stores its input, each word beside a flag, to all, who poll",
        placements=("out_of_place", "in_place"),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "sizes": "take broadcast/two_shot"},
        reduces=False,
        max_size_bytes=1 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, slots.units(case), shares.groups_of_others(case)),
        groups=shares.groups_of_others,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
