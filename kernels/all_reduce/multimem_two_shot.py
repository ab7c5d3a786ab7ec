"""all_reduce/multimem_two_shot: each rank gets the switch's sum of its slice and stores it to all through the switch.

When it wins: large buffers on GPUs whose switch does multicast: the links carry each byte about once in each direction.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices by rank, as in
two_shot; each is reduced as in multimem_one_shot and stored by one multimem.st of 16 bytes. The elements around them
are the last rank's, folded in rank order and the accumulator's precision and stored through peers' addresses. Nothing
outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete). Both block by block, by a reduction on the multicast address of a counter, with proxy fences on
both sides, before the release and after the acquire: payload crosses from ordinary addresses to the multicast one at
entry, and back at exit. (Vendor libraries leave those out; by PTX 8.6.1 only strong accesses are safe without them.) In
place is fine: an element of any rank's buffer is read and written by its owner only, by one thread, which has the sum
before it stores it.

Numerics: the switch's, as in multimem_one_shot. One owner an element stores the same bits to all ranks, so they are
equal everywhere.

All loads of a thread's turn are issued before its first store: each load with a store that depends on it is a round
trip of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import THROUGH_SWITCH
from kernels import shares
from kernels.family import multicast, peers, spec_with
from kernels.multimem import instructions, refuses_multimem
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning(
    (
        # Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads; 4,
        # because at 1 MiB and 8 ranks a thread has two vectors.
        Step(threads=512, blocks=8, loads_in_flight=4, reason="others' values, not measured"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source, target = frame.multicast("input"), frame.multicast("output")
    span = frame.span(source, frame.size)
    frame.wait()
    frame.reduce_through_switch(frame.sliced(span, frame.rank), source, target)
    inputs, outputs = frame.peers("input"), frame.peers("output")
    frame.when(frame.rank == frame.world_size - 1, lambda: frame.reduce_edges(span, inputs, outputs))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    return spec_with(
        "all_reduce/multimem_two_shot",
        body,
        tuning,
        summary="each rank stores the switch's reduction of its slice through the switch",
        placements=("out_of_place", "in_place"),
        promises=THROUGH_SWITCH,
        needs_multicast=True,
        fold="unordered",
        one_owner=True,
        buffers=(multicast("input"), multicast("output"), peers("input"), peers("output")),
        vectors=vectors,
        refusal=refuses_multimem,
        multimem=lambda case: instructions(case, stores=True),
    )


SPEC = spec_of(TUNING)
