"""send_recv/ll128: every rank stores its input into the next rank's inbox, 120 bytes beside 8 of the launch's number.

When it wins: Never measured. It should win between ll and push: no barrier before or after, as with ll, and 1.07 times
the bytes in place of twice.

Memory: an inbox of one row, eight banks in turn, in lines (kernels/dsl/inbox.py): 8.53 times the buffer in symmetric
memory, filled up to tiles of 1 KiB. kernels/dsl/lines.py says which lane takes what; a unit of 16 bytes is loaded and
stored by elements where a buffer begins at no 16-byte boundary.

Protocol: no barrier. The spec declares the assumption warp_128, without which a line could come apart:
kernels/dsl/inbox.py; the race checker lists what it explains as advisories. A rank hears nothing from the one that it
sends to but its grants (kernels/dsl/rounds.py), which stop it when it is three launches ahead. So a rank that never
launches is missed by its next rank at once, and by the others only later. In place would do (who stores a unit of the
output has loaded that unit of the input), but the op has no such form.

Rejected: see all_gather/ll128 and send_recv/ll.
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

# Never measured: blocks as ll's, of which a warp takes a tile of 960 bytes, two loads a lane.
TUNING = Tuning(
    (
        Step(
            threads=96,
            blocks=64,
            loads_in_flight=2,
            up_to_bytes=64 << 10,
            reason="a tile a warp",
        ),
        Step(threads=256, blocks=128, loads_in_flight=8, reason="several tiles a warp in flight"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.lines import InLines, LineMessage

    source, output = frame.address("input"), frame.address("output")
    if frame.world_size == 1:
        frame.copy(source, output, frame.size, push=True)
        return
    before, after = frame.after(frame.rank, frame.world_size - 1), frame.after(frame.rank)
    way = InLines(frame, 1)
    way.send(LineMessage(frame, source), after, 0, frame.index, frame.lanes)
    way.between()
    way.receive(LineMessage(frame, output), 0, before, frame.index, frame.lanes)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.IN_LINES) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def count(case: Case) -> int:
        return slots.in_lines(slots.units(case))

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, count(case), 1, tuning.max_blocks)

    return spec_with(
        "send_recv/ll128",
        body,
        tuning,
        summary="each rank stores its input, 120 bytes beside each flag of 8, to the next rank, which polls",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "the op has no such form", "sizes": "take send_recv/push"},
        assumptions=("warp_128",),
        reduces=False,
        max_size_bytes=4 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, count(case)),
        loads_per_vector=lambda case: 2,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
