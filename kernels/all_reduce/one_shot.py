"""all_reduce/one_shot: every rank reads all ranks' whole inputs and folds them itself.

When it wins: small buffers, where one trip over the links and one barrier before it are all the time there is. It
moves n-1 buffers into each GPU, so two_shot overtakes it as the buffer grows.

Memory: reads all inputs through peers' addresses, writes the own output only. Vectors of 16 bytes by a grid-stride
loop; the elements before the first 16-byte boundary and after the last one by one, a thread each. Nothing outside
[0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written), one at exit (no rank overwrites an input that a peer
still reads). Both block by block: kernels/dsl/signals.py says how they order payload. Payload itself is weak. In place
is refused: a rank would overwrite its input while slower ones read it.

Numerics: rank order 0, 1, .. n-1, on every rank, beginning with rank 0's contribution itself. So all ranks get the
same bits. Precision and rounding: kernels/dsl/arithmetic.py.

World sizes up to 8 have all loads of a vector under way before the first addition (kernels/dsl/peers.py), fewer ranks
take more vectors at a time. The launch asks for one block an SM: without that ptxas, for the sake of occupancy, put
the loads after the additions again (40 registers instead of 72, ptxas 13.0, 8 ranks, bfloat16).

The way of a small buffer is kept short: a rank arrives before it looks up addresses, which travel while it waits;
nothing but the waiting threads stays after the exit's signal; the two barriers have one bar.sync each.

Trials, off until measured (Tuning.options). peer_loads: "no_allocate" (weak, with the advice not to keep lines in
L1, for none is read twice) or "relaxed" (at system scope, past L1). entry_signal "relaxed": no fence before the
arrival; what is released there was written by earlier work on the stream, which the hardware has flushed at that
kernel's end, though the PTX model names no such rule. exit_signal "relaxed": no fence after the sums' stores, which
concern no other rank; the loads that must be over are over, because their values went into those stores before the
bar.sync. Rejected: an exit barrier of those blocks only that had work. The grid never exceeds the work, and block b
has to answer for block b of all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# Measured on 2 and 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16 with float32 sums, CUDA graphs, medians of
# the slowest rank, with 256, 512 and 1024 threads, 1, 2 and 4 vectors at a time, 1 to 128 blocks; no run on 8 GPUs. 512
# threads: 1 KiB takes 5.3 us on 4 GPUs (1024: 5.4), 64 KiB 6.4 to 6.8 either way. 8 loads are the most that
# peers.BATCH allows one vector to have; 4 made no difference beyond the noise.
TUNING = Tuning(
    (
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="256 KiB takes 8.7 us on 4 GPUs (16: 8.9, 8: 9.3) and 6.8 on 2 (16: 6.9, 8: 7.6)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=8,
            reason="1 MiB takes 16.4 us on 4 GPUs (32: 16.0, 128: 17.6) and 8.9 on 2 (32: 9.0, 128: 10.1)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    reduce_all(frame, 0)


def reduce_all(frame: Frame, first: Any) -> None:
    """The reduction of all inputs to the own output, in an order that begins with rank first."""
    frame.arrive()
    inputs = frame.peers("input", first)
    source, output = frame.address("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()
    outputs = frame.at(output)
    frame.reduce(span, inputs, outputs, frame.aligned(source, output))
    frame.reduce_edges(span, inputs, outputs)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_reduce/one_shot",
        body,
        tuning,
        summary="each rank reads all inputs and folds them in rank order",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "a rank would overwrite its input while others read it"},
        fold="rank_order",
        buffers=(address("input"), peers("input"), address("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
