"""two_shot: the buffer is divided into slices, a rank's each, that reach their ranks in a first shot and all in a
second.

When it wins: large buffers without multicast: all ranks' links carry a part of the work.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices in rank order, one
vector longer for the first ranks if they do not divide evenly (kernels/shares.py); the elements around them are one
rank's, one by one. Reads and writes go through peers' addresses; nothing outside [0, numel) is touched.

Protocol, of all but two_shot_lamport: a barrier over ranks at entry (all inputs are written, all outputs may be
overwritten), one at exit (all outputs are complete, and no rank reads an input any more). Both block by block:
kernels/dsl/rank_barriers.py says how they order payload, which itself is weak.

Numerics: a slice's owner begins with the next rank and ends with itself (owner+1, owner+2, .. owner), so that no GPU is
everyone's first target. One owner an element, so all ranks get the same bits. Precision and rounding:
kernels/dsl/arithmetic.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.dsl import slots
from kernels.dsl.status import DATA, RESULT
from kernels.family import Work, address, peers, spec_with
from kernels.shares import BATCH
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    import torch

    from kernels.dsl.frame import Frame
    from kernels.dsl.peers import Peers
    from kernels.dsl.traverse import Span

KIB, MIB = 1 << 10, 1 << 20
WORDS_PER_VECTOR = shares.VECTOR_BYTES // 4


def reduce_slices(frame: Frame) -> None:
    """all_reduce/two_shot: each rank reduces its slice of all inputs and stores the result into all outputs.

    When it wins: from some 100 KiB on. Each GPU receives (n-1)/n of the buffer twice: the least that can be.

    Two ways to bring an owner the contributions to its slice, by size (the tuning's steps) and for up to 8 ranks:
    - pull: it loads them from all inputs. No scratch; fewest steps, and best up to 2 MiB.
    - push: each rank stores them to the owner's scratch, in a row for the rank. A store crosses the links once, a load
      twice (its request takes room, too): 256 MiB on 4 H200 takes 1160 us pushed, 1251 pulled, in NCCL's ring 1187.

    Memory: elements around the vectors are the last rank's, and always pulled (shares.slice_owner says all that as
    data). Scratch, where pushed, is (n-1)/n of the buffer.

    Protocol, where pushed: a barrier between the halves (block b of all ranks has pushed what block b of this rank
    adds; a rank that got there has begun, so its output may be overwritten), one at exit (all outputs are complete, and
    all scratch is read). Nothing waits at entry: scratch is free since the exit barrier of the launch before, whose
    grid was the same. In place is fine: an element of any rank's buffer is overwritten by its owner only, by one
    thread, after what pulls or pushes it has read it.

    The launch asks for one block an SM: without that ptxas, for the sake of occupancy, moved the loads back between the
    additions (32 registers, four loads in flight at most; with it 120 registers and all 16; ptxas 13.0, 8 ranks,
    bfloat16, read in the machine code).
    """
    source, output = frame.address("input"), frame.address("output")
    span = frame.span(source, frame.size)
    first = frame.after(frame.rank)
    if frame.choice("push"):
        inputs = frame.peers("input", first)
        contributions = exchange(frame, span, source, frame.peers("scratch", first))
        outputs = frame.peers("output", first)
        frame.meet()
    else:
        frame.arrive()
        inputs = contributions = frame.peers("input", first)
        outputs = frame.peers("output", first)
        frame.wait()
    frame.reduce(frame.sliced(span, frame.rank), contributions, outputs, frame.aligned(source, output))
    frame.when(frame.rank == frame.world_size - 1, lambda: frame.reduce_edges(span, inputs, outputs))
    frame.leave()


def exchange(frame: Frame, span: Span, source: Any, scratch: Peers) -> Peers:
    """Store this rank's contribution to each other slice to its owner, in the owner's row for this rank.

    Row i of a rank's scratch is for rank + 1 + i, the order in which it adds. Gives where this rank finds its own.
    """
    others = frame.world_size - 1
    longest = ((span.last - span.first) // shares.VECTOR_BYTES + others) // frame.world_size
    row_bytes = longest * shares.VECTOR_BYTES
    for number in range(others):
        theirs = frame.sliced(span, scratch.rank(number))
        target = scratch.addresses[number] + row_bytes * (others - 1 - number) - theirs.first
        frame.push_vectors(theirs, source, target)
    mine = scratch.addresses[others] - frame.sliced(span, frame.rank).first
    return frame.rows(mine, row_bytes, source)


def all_reduce(tuning: Tuning) -> KernelSpec:
    """Return all_reduce/two_shot with a tuning. scratch[number][vector] has the own slice of rank + 1 + number."""

    def pushes(case: Case) -> bool:
        return tuning.step(case).push and case.world_size <= BATCH

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        words = shares.of_slice(case) * (case.world_size - 1) * WORDS_PER_VECTOR if pushes(case) else 0
        return (Workspace("scratch", max(words, WORDS_PER_VECTOR), zeroed=False),)

    return spec_with(
        "all_reduce/two_shot",
        reduce_slices,
        tuning,
        summary="each rank reduces its slice of all inputs and stores it to all outputs",
        promises=WITH_BARRIERS,
        owner=shares.slice_owner,
        buffers=(address("input"), address("output"), peers("input"), peers("output"), peers("scratch")),
        work=Work(shares.of_slice, shares.each_rank),
        options=lambda case: {"push": pushes(case)},
        workspaces=workspaces,
        retuned=all_reduce,
    )


def reduce_slices_to_root(frame: Frame) -> None:
    """reduce/two_shot: each rank reduces its slice of all inputs and stores it into the root's output.

    The root's links carry the result once, and its input once: from three ranks on it has no slice (kernels/shares.py:
    root_owners says what that is worth). The elements around the vectors are the last rank's. In
    place is fine: an element of the root's buffer is overwritten by its owner only, by one thread, after what reads it.
    """
    frame.arrive()
    source = frame.address("input")
    span = frame.span(source, frame.size)
    inputs = frame.peers("input", frame.after(frame.rank))
    output = frame.peer("output", frame.root)
    outputs = frame.at(output)
    frame.wait()
    aligned = frame.aligned(source, output)
    frame.with_root_slice(span, lambda own: frame.reduce(own, inputs, outputs, aligned))
    frame.when(frame.rank == frame.world_size - 1, lambda: frame.reduce_edges(span, inputs, outputs))
    frame.leave()


def pass_slices_on(frame: Frame) -> None:
    """broadcast/two_shot: each rank loads its slice of the root's input and stores it into all outputs.

    The root's links carry the buffer once, and every other rank's as well: from three ranks on the root has no slice
    (kernels/shares.py: root_owners). The elements around the vectors are the root's. Between load and store there is no
    barrier: a slice is passed on by the thread that loaded it. In place the root's buffer is not stored to: it holds
    the result, and others may still read it.
    """
    frame.arrive()
    source = frame.peer("input", frame.root)
    span = frame.span(source, frame.size)
    # The root comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.root), count)
    aligned = frame.aligned(source, frame.address("output"))
    frame.wait()
    frame.with_root_slice(span, lambda own: frame.copy_to_all(own, source, outputs, aligned))
    frame.when(frame.rank == frame.root, lambda: frame.copy_edges_to_all(span, source, outputs))
    frame.leave()


ROUNDS = slots.Rounds(banks=8, grant_every=4, slots=1)
"""Half the banks of slots.SET_BACK: messages are larger, and a grant's time counts for less than the memory."""


class Halves:
    """all_reduce/two_shot_lamport: two_shot with both halves pushed into inboxes that are polled, without barriers.

    When it wins: between lamport, whose traffic grows with the number of ranks, and two_shot, whose two barriers stop
    counting as the buffer grows. Each GPU sends and receives (n-1)/n of the buffer twice, like two_shot.

    Memory: the message's units of 16 bytes (kernels/dsl/inbox.py) are divided into slices as two_shot's vectors; the
    last unit may be cut short. Two inboxes, eight banks each: "contributions" has a row for each other rank, of the
    longest slice; "results" one for the message. Together 16 times the message in symmetric memory. Results can't go
    into outputs straight away: what is there could be anything, and so says nothing of whether a result has come.
    Blocks are shared out among the ranks that they exchange slices with, so that all links are busy at once.

    Protocol: a rank stores its contribution to each other slice to the slice's owner. As an owner it polls for the
    others', reduces, stores the result to all others and into its own output. Then it polls for the other slices'
    results and copies them. A data half is its own flag; kernels/dsl/inbox.py says why that is sound, and
    kernels/dsl/rounds.py what keeps a fast rank from storing where a slow one still reads, or sets back. While the
    first data is under way both inboxes' banks of the launch before are set back. Blocks wait for other blocks' stores,
    of this rank's launch, too, in a circle over ranks: all must be live at once, as for any barrier. In place is fine:
    a unit is overwritten with its result, which is made of this rank's contribution and so can't have come before that
    was read; the own slice's by the thread that read it. This rests on the dependency of the data alone: PTX orders
    nothing between that load and the store of another thread.

    Numerics: as two_shot. A contribution of -0.0 counts as +0.0, and so does a result that rounds to it, on its owner,
    too. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.

    Rejected: an all-clear to all in each launch, with three banks: see kernels/ways/one_way.py.

    The object is what the two halves work on: inboxes, slices, buffers. Made while a kernel is traced.
    """

    def __init__(self, frame: Frame) -> None:
        from kernels.dsl.inbox import Inbox, Sentinel
        from kernels.dsl.messages import Message
        from kernels.dsl.rounds import Round

        self.frame = frame
        self.round = Round(frame, is_set_back=True)
        self.form = Sentinel.of(frame)
        self.others = frame.world_size - 1
        self.parts = Inbox(frame, "contributions", self.others, self.round, self.form, DATA, self.after)
        self.results = Inbox(frame, "results", 1, self.round, self.form, RESULT)
        self.source, self.output = (Message(frame, frame.address(of)) for of in ("input", "output"))

    def after(self, number: Any) -> Any:
        """Numbers and rows begin with the next rank."""
        return self.frame.after(self.frame.rank, number + 1)

    def contribute(self, number: Any, index: Any, lanes: Any) -> None:
        """This rank's contribution to a slice, to its owner: there this rank comes others - 1 - number after it."""
        from kernels.dsl.inbox import push

        owner = self.after(number)
        begin, end = self.source.slice(owner)

        def store(inbox: Any, words: Sequence[Any], at: Any) -> None:
            self.parts.at_peer(inbox, words, at - begin, self.others - 1 - number)

        push(self.source, (begin, end), (index, lanes), partial(self.frame.peer, "contributions", owner), store)

    def reduce(self) -> None:
        """The own slice: what the others contributed, then the own, to the others and into the output."""
        frame = self.frame
        inboxes = frame.peers("results", self.after(0), self.others)
        begin, end = self.source.slice(frame.rank)

        def store(offsets: Sequence[Any], whole: bool) -> None:
            own = [self.form.safe_words(self.source.load(at, whole)) for at in offsets]
            for at, words in zip(offsets, self.parts.fold([at - begin for at in offsets], own), strict=True):
                self.results.at_peers(inboxes, words, at, 0)
                self.output.store(at, self.form.safe_words(words), whole)

        self.source.units(begin, end, frame.index, frame.lanes, store, beside=self.output)

    def collect(self, number: Any, index: Any, lanes: Any) -> None:
        """The result of another rank's slice, into the output."""
        owner = self.after(number)
        begin, end = self.source.slice(owner)

        def copy(offsets: Sequence[Any], whole: bool) -> None:
            for at, (words,) in zip(offsets, self.results.take(offsets, 0, 1, lambda row: owner), strict=True):
                self.output.store(at, words, whole)

        self.output.units(begin, end, index, lanes, copy)


def reduce_in_halves(frame: Frame) -> None:
    """all_reduce/two_shot_lamport, see Halves."""
    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    halves = Halves(frame)
    frame.each_peer(halves.others, halves.contribute)
    halves.round.hand_over(halves.source.count)
    last_units, ranks = halves.round.last_units, frame.world_size
    halves.parts.clear((last_units + ranks - 1) // ranks)
    halves.results.clear(last_units)
    halves.reduce()
    frame.each_peer(halves.others, halves.collect)


def unit_owner(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element where units are sliced: int64[numel] of ranks."""
    import torch

    lengths = torch.tensor(shares.slice_vectors(slots.units(case), case.world_size)) * slots.UNIT_BYTES
    return torch.repeat_interleave(torch.arange(case.world_size), lengths // case.itemsize)[: case.numel]


def two_shot_lamport(tuning: Tuning, rounds: slots.Rounds = ROUNDS) -> KernelSpec:
    """Return all_reduce/two_shot_lamport with a tuning, and with other rounds if given."""

    def longest(case: Case) -> int:
        return shares.longest_slice(slots.units(case), case.world_size)

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        inbox = partial(slots.inbox, banks=rounds.banks, fill=slots.sentinel(case.itemsize))
        contributions = inbox("contributions", longest(case), max(case.world_size - 1, 1))
        return contributions, inbox("results", slots.units(case), 1), slots.turns(tuning.max_blocks)

    return spec_with(
        "all_reduce/two_shot_lamport",
        reduce_in_halves,
        tuning,
        summary="two_shot with slices and results pushed and polled for instead of barriers",
        promises=WITH_BARRIERS,
        owner=unit_owner,
        dtypes=FLOATS,
        why_not={
            "dtype": "an integer has no spare value that could mean 'not written yet'; take all_reduce/ll",
            "sizes": "take all_reduce/two_shot",
        },
        reductions=FLOAT_REDUCTIONS,
        positive_zero="results",
        max_size_bytes=4 * MIB,
        buffers=(
            *(address("input"), address("output"), address("turns")),
            *(address("contributions"), peers("contributions"), address("results"), peers("results")),
        ),
        work=Work(
            lambda case: slots.lanes(case, longest(case), shares.groups_of_others(case)),
            lambda case: max(case.world_size - 1, 1),
            shares.groups_of_others,
        ),
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
        retuned=lambda other: two_shot_lamport(other, rounds),
    )


# Measured on 2 and 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16 with float32 sums, CUDA graphs, medians of
# the slowest rank, with 256, 512 and 1024 threads, 1 to 8 vectors at a time, 1 to 128 blocks; no run on 8 GPUs. Loads
# past L1 (relaxed, or with L1::no_allocate) and other stores (relaxed, .cs, .wt) made no difference beyond the noise.
ALL_REDUCE = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=16,
            up_to_bytes=512 * KIB,
            reason="a thread has one vector: 256 KiB on 4 GPUs takes 6.8 us with 16 blocks, 7.5 with 8, 9.5 with 4; "
            "more threads a block leave a slice fewer SMs: 64 KiB takes 6.0 us, with 512 threads 6.5; pushed 6.9",
        ),
        Step(256, 64, 16, "2 MiB takes 15.6 us on 4 GPUs (32: 15.7, pushed 15.6), 11.9 on 2 (pushed 11.8)", 2 * MIB),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=8,
            up_to_bytes=32 * MIB,
            push=True,
            reason="16 MiB takes 77.0 us on 4 GPUs (256 threads: 77.5; pulled at best 82.2), 52.0 on 2 (pulled 55.3)",
        ),
        Step(
            threads=256,
            blocks=132,
            loads_in_flight=8,
            push=True,
            reason="all SMs: 256 MiB takes 1140 us on 4 H100 (128 blocks of 512 threads: 1146), 738 on 2 H200 (741; "
            "128 of 256 another day 766); pulled on 4 H200 at best 1251",
        ),
    )
)

# The others were measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls,
# medians of the slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs.
# two_shot_lamport had an all-clear in each launch then, and no run since; of the rooted ops the root had a slice, too.

KERNELS = (
    all_reduce(ALL_REDUCE),
    two_shot_lamport(
        Tuning(
            (
                Step(256, 32, 8, "64 KiB takes 5.0 us (512 threads: 5.5)", 64 * KIB),
                Step(512, 64, 8, "512 KiB takes 6.3 us (128 blocks: 7.1, 32: 7.6)", 512 * KIB),
                Step(512, 128, 8, "2 MiB takes 15.5 us (64 blocks: 16.8)"),
            )
        )
    ),
    spec_with(
        "reduce/two_shot",
        reduce_slices_to_root,
        Tuning(
            (
                Step(256, 32, 8, "64 KiB takes 6.4 us (512 threads: 6.6)", 64 * KIB),
                Step(512, 32, 8, "512 KiB takes 8.8 us, 2 MiB 16.4 (64 blocks: 8.9, 16.9)", 2 * MIB),
                Step(512, 64, 8, "16 MiB takes 85.0 us, 128 MiB 593 (32 blocks: 85.6, 603)"),
            )
        ),
        summary="each rank reduces its slice of all inputs and stores it to the root",
        promises=WITH_BARRIERS,
        owner=shares.root_slice_owner,
        buffers=(address("input"), peers("input"), peers("output")),
        work=Work(shares.of_root_slice, shares.each_rank),
    ),
    spec_with(
        "broadcast/two_shot",
        pass_slices_on,
        Tuning(
            (
                Step(256, 32, 8, "64 KiB takes 6.4 us (512 threads: 6.9)", 64 * KIB),
                Step(256, 128, 8, "512 KiB takes 8.8 us (64 blocks: 9.2)", 512 * KIB),
                Step(256, 64, 8, "16 MiB takes 89.5 us, 128 MiB 594 (128 blocks: 106, 600)"),
            )
        ),
        summary="each rank passes its slice of the root's input to all outputs",
        promises=WITH_BARRIERS,
        buffers=(address("output"), peers("input"), peers("output")),
        work=Work(shares.of_root_slice),
        options=lambda case: {"in_place": case.placement == "in_place"},
    ),
)
