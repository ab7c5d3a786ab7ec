"""all_reduce/one_shot: every rank reads all ranks' whole inputs and folds them itself.

When it wins: small buffers, where one trip over the links and one barrier before it are all the time there is. It
moves n-1 buffers into each GPU, so two_shot overtakes it as the buffer grows.

Memory: reads all inputs through peers' addresses, writes the own output only. Vectors of 16 bytes by a grid-stride
loop; the elements after the last full vector one by one, a thread each. Nothing outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written), one at exit (nobody overwrites an input that a peer
still reads). Both block by block: kernels/barrier.py says how they order payload. Payload itself is weak. In place is
refused: a rank would overwrite its input while slower ones read it.

Numerics: rank order 0, 1, .. n-1, on every rank, beginning with rank 0's contribution itself. So all ranks get the
same bits. float32: 16-bit types are widened, added by add.rn.f32 and rounded once; native: every addition rounds to
the type.

World sizes up to 8 have all loads of a vector under way before the first addition (kernels/peers.py), fewer ranks
take more vectors at a time. The launch asks for one block an SM: without that ptxas, for the sake of occupancy, put
the loads after the additions again (40 registers instead of 72, ptxas 13.0, 8 ranks, bfloat16).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.all_reduce import shares
from kernels.spec import Case, KernelSpec, Launch, Parameter, Workspace


@dataclass(frozen=True, slots=True)
class Tuning:
    """Not measured yet on hardware.

    threads: 512, as others use; a multiple of a warp that holds a thread for each of 72 ranks. max_blocks: others
    sweep 24 to 64, and at 1 MiB and 8 ranks 32 blocks leave a thread four vectors. loads_in_flight: 16-byte loads of
    a thread before its first addition; eight is the most that peers.BATCH allows one vector to have.
    """

    threads: int = 512
    max_blocks: int = 32
    loads_in_flight: int = 8


TUNING = Tuning()


def launch(case: Case) -> Launch:
    """Every rank works on all vectors."""
    return Launch(shares.blocks(shares.vectors(case), TUNING.threads, TUNING.max_blocks), TUNING.threads)


def workspaces(case: Case) -> tuple[Workspace, ...]:
    """signals[block][rank]: the last epoch in which that rank's block arrived; epochs[block]: the own last one."""
    return (
        Workspace("signals", TUNING.max_blocks * case.world_size),
        Workspace("epochs", TUNING.max_blocks),
    )


def host_choices(case: Case) -> dict[str, Any]:
    """What the device half takes, by name."""
    return {
        "world_size": case.world_size,
        "dtype": case.dtype,
        "accumulator": case.accumulator,
        "threads": TUNING.threads,
        "unroll": max(1, TUNING.loads_in_flight // case.world_size),
    }


def build(case: Case) -> Any:
    from kernels.all_reduce.one_shot_device import OneShot

    return OneShot(**host_choices(case))


SPEC = KernelSpec(
    op="all_reduce",
    algorithm="one_shot",
    summary="each rank reads all inputs and folds them in rank order",
    dtypes=("float32", "float16", "bfloat16"),
    accumulators=("float32", "native"),
    reductions=("sum",),
    placements=("out_of_place",),
    needs_multicast=False,
    fold="rank_order",
    parameters=(
        Parameter("peers", "input"),
        Parameter("address", "output"),
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
        "kernels/all_reduce/one_shot.py",
        "kernels/all_reduce/one_shot_device.py",
    ),
)
