"""multimem: the switch reduces what ranks give, or stores what one gives to all, through the multicast address.

When it wins: on GPUs whose switch does multicast: a reduction is one load a vector instead of n, and links carry each
byte about once in each direction.

Memory: 16 bytes at a time, at the boundaries of the multicast side; where the own buffer has others, it is met element
by element. Reductions by multimem.ld_reduce: one a vector for floats of up to 4 bytes; integers and float64 have no
vectors and take one an element (kernels/multimem.py has the forms as data). Stores by one multimem.st of 16 bytes. The
elements before the first 16-byte boundary and after the last, fewer than 16 bytes each, go through peers' addresses,
folded here in rank order and the accumulator's precision: no access of the switch is narrower than 4 bytes. Nothing
outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and the switch reads no input any more). Both block by block, by a reduction on the multicast
address of a counter, with proxy fences on both sides, before the release and after the acquire: payload crosses from
ordinary addresses to the multicast one at entry, and back at exit, and a release and an acquire alone do not order
accesses to aliases of the same bytes. (Vendor libraries leave these fences out; by PTX 8.6.1 only strong accesses are
safe without.)

Numerics: the switch's. Order and, without `.acc::f32`, precision of the sum are its own; -0.0 may come out as 0.0. So
there is no promise of bits, only of a bound (kernels/numeric/numerics.py), and equal bits on all ranks are expected,
not promised. accumulator float32 asks for `.acc::f32` where the type is of 16 bits, float16 for `.acc::f16` where it is
of 8; native asks for nothing. avg: the switch's sum times 1/n, in float32, here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cases.stress import THROUGH_SWITCH
from kernels import shares
from kernels.family import Work, address, multicast, peers, spec_with
from kernels.multimem import instructions, refuses_multimem
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


def reduce_all(frame: Frame) -> None:
    """all_reduce/multimem_one_shot: every rank lets the switch add all ranks' inputs, and stores the sum in its own
    output.

    When it wins: small buffers: one barrier before the sum. In place is refused: a rank would overwrite its input while
    the switch reads it for slower ones.
    """
    frame.arrive()
    source, output = frame.multicast("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()
    frame.reduce_by_switch(span, source, output)
    frame.reduce_edges(span, frame.peers("input"), frame.at(output))
    frame.leave()


def reduce_slices(frame: Frame) -> None:
    """all_reduce/multimem_two_shot: each rank gets the switch's sum of its slice and stores it to all through the
    switch.

    When it wins: large buffers. Slices are two_shot's; the elements around them are the last rank's. All loads of a
    thread's turn are issued before its first store: each load with a store that depends on it is a round trip of its
    own. In place is fine: an element of any rank's buffer is read and written by its owner only, by one thread, which
    has the sum before it stores it. One owner an element stores the same bits to all ranks, so they are equal
    everywhere.
    """
    frame.arrive()
    source, target = frame.multicast("input"), frame.multicast("output")
    span = frame.span(source, frame.size)
    frame.wait()
    frame.reduce_through_switch(frame.sliced(span, frame.rank), source, target)
    inputs, outputs = frame.peers("input"), frame.peers("output")
    frame.when(frame.rank == frame.world_size - 1, lambda: frame.reduce_edges(span, inputs, outputs))
    frame.leave()


def reduce_chunk(frame: Frame) -> None:
    """reduce_scatter/multimem: every rank gets the switch's reduction of its chunk of all inputs.

    A rank's links carry its chunk in once. In place is fine: of a rank's input only its own chunk is overwritten, which
    no other rank reads.
    """
    frame.arrive()
    chunk = frame.size // frame.world_size
    begin = chunk * frame.rank
    source, output = frame.multicast("input") + begin, frame.address("output")
    span = frame.span(source, chunk)
    inputs = frame.peers("input").shifted(begin)
    frame.wait()
    frame.reduce_by_switch(span, source, output)
    frame.reduce_edges(span, inputs, frame.at(output))
    frame.leave()


def reduce_at_root(frame: Frame) -> None:
    """reduce/multimem: the root gets the switch's reduction of all inputs.

    The root's links carry the buffer in once. No other rank's output is touched. In place is fine: only the root reads
    its input, and each thread reads what it overwrites first.
    """
    frame.arrive()
    source, output = frame.multicast("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()

    def reduce() -> None:
        frame.reduce_by_switch(span, source, output)
        frame.reduce_edges(span, frame.peers("input"), frame.at(output))

    frame.when(frame.rank == frame.root, reduce)
    frame.leave()


def store_chunk(frame: Frame) -> None:
    """all_gather/multimem: every rank stores its chunk to all ranks' outputs through the switch.

    A rank's links carry its chunk out once. In place is fine: the own replica is overwritten with itself.
    """
    frame.arrive()
    chunk = frame.size // frame.world_size
    source, target = frame.address("input"), frame.multicast("output") + chunk * frame.rank
    span = frame.span(target, chunk)
    frame.wait()
    frame.copy_to_switch(span, source, target)
    frame.copy_edges_to_all(span, source, frame.peers("output").shifted(chunk * frame.rank))
    frame.leave()


def store_root(frame: Frame) -> None:
    """broadcast/multimem: the root stores its input to all ranks' outputs through the switch.

    The root's links carry the buffer once. In place is fine: the root's own replica is overwritten with itself.
    """
    frame.arrive()
    source, target = frame.address("input"), frame.multicast("output")
    span = frame.span(target, frame.size)
    frame.wait()

    def store() -> None:
        frame.copy_to_switch(span, source, target)
        frame.copy_edges_to_all(span, source, frame.peers("output"))

    frame.when(frame.rank == frame.root, store)
    frame.leave()


kernel = partial(spec_with, promises=THROUGH_SWITCH, needs_multicast=True)
reducing = partial(
    kernel,
    fold="unordered",
    buffers=(multicast("input"), peers("input"), address("output")),
    refusal=refuses_multimem,
    multimem=partial(instructions, stores=False),
)
moving = partial(
    kernel,
    buffers=(address("input"), multicast("output"), peers("output")),
    multimem=partial(instructions, stores=True),
)

# Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads; 4, as at
# 1 MiB and 8 ranks a thread of two_shot has two vectors, and one of one_shot 16, but one below 128 KiB.
TUNING = Tuning((Step(512, 8, 4, "others' values, not measured"),))

KERNELS = (
    reducing(
        "all_reduce/multimem_one_shot",
        reduce_all,
        TUNING,
        summary="each rank loads the switch's reduction of all inputs into its output",
        why_not={"placement": "a rank would overwrite its input while the switch reads it for others"},
        work=Work(shares.of_buffer),
    ),
    kernel(
        "all_reduce/multimem_two_shot",
        reduce_slices,
        TUNING,
        summary="each rank stores the switch's reduction of its slice through the switch",
        fold="unordered",
        one_owner=True,
        buffers=(multicast("input"), multicast("output"), peers("input"), peers("output")),
        work=Work(shares.of_slice),
        refusal=refuses_multimem,
        multimem=partial(instructions, stores=True),
    ),
    reducing(
        "reduce_scatter/multimem",
        reduce_chunk,
        TUNING,
        summary="each rank loads the switch's reduction of its chunk",
        work=Work(shares.of_chunk),
    ),
    reducing(
        "reduce/multimem",
        reduce_at_root,
        TUNING,
        summary="the root loads the switch's reduction of all inputs",
        work=Work(shares.of_buffer),
    ),
    moving(
        "all_gather/multimem",
        store_chunk,
        TUNING,
        summary="each rank stores its chunk through the switch",
        work=Work(shares.of_chunk),
    ),
    moving(
        "broadcast/multimem",
        store_root,
        TUNING,
        summary="the root stores its input through the switch",
        work=Work(shares.of_buffer),
    ),
)
