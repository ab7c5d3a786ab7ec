"""all_reduce/ll128: like ll, in one shot, but 120 bytes of data travel beside 8 of the launch's number.

When it wins: Never measured. It should win where ll does and its messages are no longer tiny: 1.07 times the bytes in
place of twice, for any data type and with every bit of the inputs kept.

Memory: an inbox of n rows, eight banks in turn, in lines (kernels/dsl/inbox.py), 8.53 n times the message in symmetric
memory, each row filled up to tiles of 1 KiB. kernels/dsl/lines.py says which lane takes what.

Protocol: no barrier. The spec declares the assumption warp_128, without which a line could come apart:
kernels/dsl/inbox.py; the race checker lists what it explains as advisories. kernels/dsl/rounds.py says what keeps a
fast rank from storing where a slow one still reads. In place is fine: a unit of the output is written by the lane that
stored that unit of the input to all inboxes, and everything it reduces comes from there.

Numerics: rank order 0, 1, .. n-1 on all ranks, so all get the same bits; nothing else is done to them. Precision and
rounding: kernels/dsl/arithmetic.py.

Rejected: see all_gather/ll128.
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

    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    source, output = LineMessage(frame, frame.address("input")), LineMessage(frame, frame.address("output"))
    way = InLines(frame, frame.world_size)
    way.send_to_all(source)
    way.between()
    way.reduce_rows(output)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.IN_LINES) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def count(case: Case) -> int:
        return slots.in_lines(slots.units(case))

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rounds.workspaces(case, count(case), case.world_size, tuning.max_blocks)

    return spec_with(
        "all_reduce/ll128",
        body,
        tuning,
        summary="each rank stores its input, 120 bytes beside each flag of 8, to all, polls, and folds in rank order",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        assumptions=("warp_128",),
        fold="rank_order",
        max_size_bytes=512 << 10,
        max_sizes={2: 2 << 20},
        why_not={"sizes": "take all_reduce/two_shot"},
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: slots.lanes(case, count(case)),
        loads_per_vector=lambda case: 2 * case.world_size,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
