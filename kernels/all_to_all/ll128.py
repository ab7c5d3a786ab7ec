"""all_to_all/ll128: every rank stores each chunk into its rank's inbox, 120 bytes beside 8 of the launch's number.

When it wins: Never measured. It should win between ll and push: no barrier before or after, as with ll, and 1.07 times
the bytes in place of twice.

Memory: an inbox of n - 1 rows of a chunk, eight banks in turn, in lines (kernels/dsl/inbox.py): 8.53 (n-1)/n times the
buffer in symmetric memory, each row filled up to tiles of 1 KiB. Rows stand in the order of the ring, from the next
rank on. Blocks are shared out among the ranks that they store to, and later poll for, so that all links are busy at
once. kernels/dsl/lines.py says which lane takes what; a unit of 16 bytes is loaded and stored by elements where a chunk
begins at no 16-byte boundary.

Protocol: no barrier. The spec declares the assumption warp_128, without which a line could come apart:
kernels/dsl/inbox.py; the race checker lists what it explains as advisories. kernels/dsl/rounds.py says what keeps a
fast rank from storing where a slow one still reads. The own chunk is copied while the others' are under way. In place
would do (who stores a unit of the output has loaded that unit of the input), but the op has no such form.

Rejected: see all_gather/ll128.
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
    chunk = frame.size // frame.world_size
    if frame.world_size == 1:
        frame.copy(source, output, frame.size, push=True)
        return
    others, mine = frame.world_size - 1, chunk * frame.rank
    way = InLines(frame, others)

    def send(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number + 1)
        way.send(LineMessage(frame, source + chunk * peer, chunk), peer, others - 1 - number, index, lanes)

    def receive(number: Any, index: Any, lanes: Any) -> None:
        sender = frame.after(frame.rank, number + 1)
        way.receive(LineMessage(frame, output + chunk * sender, chunk), number, sender, index, lanes)

    frame.each_peer(others, send)
    way.between()
    frame.copy(source + mine, output + mine, chunk, push=True)
    frame.each_peer(others, receive)


def spec_of(tuning: Tuning, rounds: slots.Rounds = slots.IN_LINES) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def count(case: Case) -> int:
        return slots.in_lines(slots.chunk_units(case))

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        rows = max(case.world_size - 1, 1)
        return rounds.workspaces(case, count(case), rows, tuning.max_blocks)

    return spec_with(
        "all_to_all/ll128",
        body,
        tuning,
        summary="each rank stores its chunks, 120 bytes beside each flag of 8, to their ranks, and polls for theirs",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "the op has no such form", "sizes": "take all_to_all/push"},
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
