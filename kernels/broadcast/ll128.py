"""broadcast/ll128: the root stores its input into all inboxes, 120 bytes beside 8 of the launch's number.

When it wins: Never measured. It should win between ll and two_shot: no barrier before or after, as with ll, and 1.07
times the bytes in place of twice, n - 1 times.

Memory: an inbox of one row, eight banks in turn, in lines (kernels/dsl/inbox.py): 8.53 times the buffer in symmetric
memory, filled up to tiles of 1 KiB. The root's blocks are shared out among the ranks that they store to, so that all
links are busy at once. kernels/dsl/lines.py says which lane takes what; a unit of 16 bytes is loaded and stored by
elements where a buffer begins at no 16-byte boundary.

Protocol: no barrier. The spec declares the assumption warp_128, without which a line could come apart:
kernels/dsl/inbox.py; the race checker lists what it explains as advisories. The root hears nothing from the others but
their grants (kernels/dsl/rounds.py), which stop it when it is three launches ahead of the slowest. Any rank may be the
root of the next launch. In place is fine: the root leaves its buffer alone.

Rejected: see all_gather/ll128 and broadcast/ll.
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
    others, is_root = frame.world_size - 1, frame.rank == frame.root
    way = InLines(frame, 1)

    def send(number: Any, index: Any, lanes: Any) -> None:
        way.send(LineMessage(frame, source), frame.after(frame.rank, number + 1), 0, index, lanes, is_root)

    def receive() -> None:
        way.receive(LineMessage(frame, output), 0, frame.root, frame.index, frame.lanes)

    frame.each_peer(others, send)
    way.between()
    frame.when(is_root, lambda: frame.copy(source, output, frame.size, push=True))
    frame.when(frame.rank != frame.root, receive)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.IN_LINES) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def count(case: Case) -> int:
        return slots.in_lines(slots.units(case))

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, count(case), 1, tuning.max_blocks)

    return spec_with(
        "broadcast/ll128",
        body,
        tuning,
        summary="the root stores its input, 120 bytes beside each flag of 8, to all, who poll",
        placements=("out_of_place", "in_place"),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "sizes": "take broadcast/two_shot"},
        assumptions=("warp_128",),
        reduces=False,
        max_size_bytes=4 << 20,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, count(case), shares.groups_of_others(case)),
        loads_per_vector=lambda case: 2,
        groups=shares.groups_of_others,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
