"""send_recv/ll: every rank stores its input, each 4 bytes beside the number of the launch, into the next rank's inbox.

When it wins: small buffers: one trip over the links, and no barrier before or after. It stores twice the bytes, so
push overtakes it.

Memory: an inbox of one row, 16 banks in turn, two slots a unit (kernels/dsl/inbox.py): 32 times the buffer in
symmetric memory. A unit of 16 bytes is loaded and stored by elements where a buffer begins at no 16-byte boundary.

Protocol: no barrier; kernels/dsl/inbox.py says why data beside a flag is sound. A rank hears nothing from the one that
it sends to but its grants (kernels/dsl/rounds.py), which stop it when it is three launches ahead. So a rank that never
launches is missed by its next rank at once, and by the others only later. Grants go to all ranks, not to the one
before alone: what a launch means for memory does not depend on who is whose neighbour. In place would do (who stores a
unit of the output has loaded that unit of the input), but the op has no such form.

Rejected: see all_gather/ll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
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
    before, after = frame.after(frame.rank, frame.world_size - 1), frame.after(frame.rank)
    way = OneWay(frame, 1, is_flagged=True)
    way.send(Message(frame, source), after, 0, frame.index, frame.lanes)
    way.between()
    way.receive(Message(frame, output), 0, before, frame.index, frame.lanes)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.FLAGGED) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, slots.units(case), 1, tuning.max_blocks)

    return spec_with(
        "send_recv/ll",
        body,
        tuning,
        summary="each rank stores its input, each word beside a flag, to the next rank, which polls",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "the op has no such form", "sizes": "take send_recv/push"},
        reduces=False,
        max_size_bytes=1 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, slots.units(case)),
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
