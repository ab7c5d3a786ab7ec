"""all_reduce/two_shot: each rank reduces its slice from all inputs and stores the result into all outputs.

When it wins: from some 100 KiB on without multicast. Each GPU reads (n-1)/n of the buffer and writes as much: the
least that can be.

Memory: the full vectors of 16 bytes are divided into contiguous slices in rank order, one vector longer for the first
ranks if they do not divide evenly; the elements after the last full vector are the last rank's, one by one
(shares.owner says all that as data). Reads and writes go through peers' addresses, nothing outside [0, numel) is
touched, and there is no scratch buffer.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete). Both block by block: kernels/barrier.py says how they order payload. Payload itself is weak. In
place is fine: an element of any rank's buffer is read and written by its owner only, by one thread, which has read
all ranks' before it stores the sum.

Numerics: the owner begins with the next rank and ends with itself (owner+1, owner+2, .. owner), so that no GPU is
everyone's first target; loads and stores go in that order too. One owner an element, so all ranks get the same bits.
float32: 16-bit types are widened, added by add.rn.f32 and rounded once; native: every addition rounds to the type.

The launch asks for one block an SM: without that ptxas, for the sake of occupancy, moved the loads back between the
additions (32 registers, four loads in flight at most; with it 120 registers and all 16; ptxas 13.0, 8 ranks,
bfloat16, read in the machine code).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.all_reduce import shares
from kernels.spec import Case, KernelSpec, Launch, Parameter, Workspace

BATCH = 8  # kernels/peers.py goes through more ranks than this one vector at a time


@dataclass(frozen=True, slots=True)
class Tuning:
    """Not measured yet on hardware.

    threads and loads_in_flight: an untuned kernel of this kind did best with 512 threads and 2 to 4 vectors of 8
    ranks in flight on 8 H200 from 4 MiB on; 16 loads of 16 bytes are 64 of the 128 registers that 512 threads leave
    each. max_blocks: there 16 blocks were enough at 4 MiB and 64 at 16 MiB; 32 lies between.
    """

    threads: int = 512
    max_blocks: int = 32
    loads_in_flight: int = 16


TUNING = Tuning()


def launch(case: Case) -> Launch:
    """A rank works on its slice; the longest is the first rank's."""
    longest = shares.slice_vectors(shares.vectors(case), case.world_size)[0]
    return Launch(shares.blocks(longest, TUNING.threads, TUNING.max_blocks), TUNING.threads)


def workspaces(case: Case) -> tuple[Workspace, ...]:
    """signals[block][rank]: the last epoch in which that rank's block arrived; epochs[block]: the own last one."""
    return (
        Workspace("signals", TUNING.max_blocks * case.world_size),
        Workspace("epochs", TUNING.max_blocks),
    )


def host_choices(case: Case) -> dict[str, Any]:
    """What the device half takes, by name. No more than 8 vectors at a time, also of few ranks."""
    in_flight = min(BATCH, TUNING.loads_in_flight // case.world_size)
    return {
        "world_size": case.world_size,
        "dtype": case.dtype,
        "accumulator": case.accumulator,
        "threads": TUNING.threads,
        "unroll": max(1, in_flight) if case.world_size <= BATCH else 1,
    }


def build(case: Case) -> Any:
    from kernels.all_reduce.two_shot_device import TwoShot

    return TwoShot(**host_choices(case))


SPEC = KernelSpec(
    op="all_reduce",
    algorithm="two_shot",
    summary="each rank reduces its slice of all inputs and stores it to all outputs",
    dtypes=("float32", "float16", "bfloat16"),
    accumulators=("float32", "native"),
    reductions=("sum",),
    placements=("out_of_place", "in_place"),
    needs_multicast=False,
    fold="from_next_rank",
    parameters=(
        Parameter("peers", "input"),
        Parameter("peers", "output"),
        Parameter("peers", "signals"),
        Parameter("address", "signals"),
        Parameter("address", "epochs"),
        Parameter("numel"),
        Parameter("rank"),
    ),
    workspaces=workspaces,
    launch=launch,
    build=build,
    sources=(
        *shares.DEVICE_SOURCES,
        "kernels/all_reduce/two_shot.py",
        "kernels/all_reduce/two_shot_device.py",
    ),
    owner=shares.owner,
)
