"""all_reduce/two_shot: each rank reduces its slice of all inputs and stores the result into all outputs.

When it wins: from some 100 KiB on without multicast. Each GPU receives (n-1)/n of the buffer twice: the least that can
be.

Two ways to bring an owner the contributions to its slice, by size (TUNING) and for up to 8 ranks:
- pull: it loads them from all inputs. No scratch; fewest steps, and best up to 2 MiB.
- push: each rank stores them to the owner's scratch, in a row for the rank. A store crosses the links once, a load
  twice (its request takes room, too): 256 MiB on 4 H200 takes 1160 us pushed, 1251 pulled, in NCCL's ring 1187.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices in rank order, one
vector longer for the first ranks if they do not divide evenly; the elements around them are the last rank's, one by one
and always pulled (shares.slice_owner says all that as data). Reads and writes go through peers' addresses, nothing
outside [0, numel) is touched. Scratch, where pushed, is (n-1)/n of the buffer.

Protocol: two barriers, block by block; kernels/dsl/signals.py says how they order payload. Payload itself is weak.
- pull: one at entry (all inputs are written, all outputs may be overwritten), one at exit (all outputs are complete).
- push: one between the halves (block b of all ranks has pushed what block b of this rank adds; a rank that got there
  has begun, so its output may be overwritten), one at exit (all outputs are complete, and all scratch is read).
  Nothing waits at entry: scratch is free since the exit barrier of the launch before, whose grid was the same.
In place is fine: an element of any rank's buffer is overwritten by its owner only, by one thread, after what pulls or
pushes it has read it.

Numerics: the owner begins with the next rank and ends with itself (owner+1, owner+2, .. owner), so that no GPU is
everyone's first target; loads and stores go in that order too. One owner an element, so all ranks get the same bits,
pulled or pushed. Precision and rounding: kernels/dsl/arithmetic.py.

The launch asks for one block an SM: without that ptxas, for the sake of occupancy, moved the loads back between the
additions (32 registers, four loads in flight at most; with it 120 registers and all 16; ptxas 13.0, 8 ranks,
bfloat16, read in the machine code).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.shares import BATCH
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame
    from kernels.dsl.peers import Peers
    from kernels.dsl.traverse import Span

WORDS_PER_VECTOR = shares.VECTOR_BYTES // 4

# Measured on 2 and 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16 with float32 sums, CUDA graphs, medians of
# the slowest rank, with 256, 512 and 1024 threads, 1 to 8 vectors at a time, 1 to 128 blocks; no run on 8 GPUs. Loads
# past L1 (relaxed, or with L1::no_allocate) and other stores (relaxed, .cs, .wt) made no difference beyond the noise.
TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=16,
            up_to_bytes=512 << 10,
            reason="a thread has one vector: 256 KiB on 4 GPUs takes 6.8 us with 16 blocks, 7.5 with 8, 9.5 with 4; "
            "more threads a block leave a slice fewer SMs: 64 KiB takes 6.0 us, with 512 threads 6.5; pushed 6.9",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=16,
            up_to_bytes=2 << 20,
            reason="2 MiB takes 15.6 us on 4 GPUs (32: 15.7, pushed 15.6) and 11.9 on 2 (pushed 11.8)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=8,
            up_to_bytes=32 << 20,
            push=True,
            reason="16 MiB takes 77.0 us on 4 GPUs (256 threads: 77.5; pulled at best 82.2), 52.0 on 2 (pulled 55.3)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            push=True,
            reason="256 MiB takes 1160 us on 4 GPUs (512 threads: 1161, 16 loads: 1156; pulled at best 1251), 738 on "
            "2 (512: 741; pulled 786)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
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


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial.

    scratch[number][vector] holds the own slice of rank + 1 + number, see exchange().
    """

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    def pushes(case: Case) -> bool:
        return tuning.step(case).push and case.world_size <= BATCH

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        words = vectors(case) * (case.world_size - 1) * WORDS_PER_VECTOR if pushes(case) else 0
        return (Workspace("scratch", max(words, WORDS_PER_VECTOR), zeroed=False),)

    return spec_with(
        "all_reduce/two_shot",
        body,
        tuning,
        summary="each rank reduces its slice of all inputs and stores it to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.slice_owner,
        buffers=(address("input"), address("output"), peers("input"), peers("output"), peers("scratch")),
        vectors=vectors,
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: {"push": pushes(case)},
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
