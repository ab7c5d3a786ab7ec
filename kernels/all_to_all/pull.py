"""all_to_all/pull: every rank loads its chunk from all ranks' inputs.

When it wins: where outputs are not ready early; push is faster for large buffers, for a load's request takes room on
the links, too.

Memory: reads all inputs through peers' addresses, writes the own output only. Blocks are shared out among the ranks
that they read from, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's
first target. Vectors are aligned at the far side; where a chunk's two places have no 16-byte boundary in common, the
near side is met element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and nobody reads an input any more). Both block by block: kernels/signals.py says how they order
payload, which itself is weak. In place is refused: a chunk would be overwritten before its receiver has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.frame import Frame

TUNING = Tuning((Step(threads=512, blocks=64, loads_in_flight=8, reason="all_reduce/two_shot's, not measured yet"),))


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    output = frame.address("output")
    chunk = frame.size // frame.world_size

    def load(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        source = frame.peer("input", peer) + chunk * frame.rank
        frame.copy(source, output + chunk * peer, chunk, (index, lanes), push=False)

    frame.wait()
    frame.each_peer(frame.world_size, load)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_to_all/pull",
        body,
        tuning,
        summary="each rank loads its chunk of all inputs",
        placements=("out_of_place",),
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
    )


SPEC = spec_of(TUNING)
